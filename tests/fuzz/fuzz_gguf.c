/* libFuzzer target: any bytes as a GGUF file: as they are, and after the magic number and version.
 * Tensors and values of an accepted file must be inside its input; their rows are decoded. The file
 * is also read as a model's folder: its texts, and its tensors by their names in the folder. */
#include <stdlib.h>
#include <string.h>

#include "files/gguf/gguf_codec.h"
#include "files/gguf/gguf_file.h"
#include "files/gguf/gguf_folder.h"
#include "files/safetensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_values(const lathe_gguf *file, const uint8_t *data, size_t size)
{
    for (int64_t i = 0; i < lathe_gguf_value_count(file); i++) {
        const lathe_gguf_entry *v = lathe_gguf_value_at(file, i);
        const uint8_t *at = v->data;
        int64_t n = 0;
        if (at < data || v->end > data + size || lathe_gguf_value(file, v->key) != v)
            abort();
        for (int64_t k = 0; k < v->n && v->type == LATHE_GGUF_TEXT; k++) {
            const char *text = lathe_gguf_next_text(&at, &n);
            if (n < 0 || (const uint8_t *)text + n != at || at > v->end)
                abort();
        }
    }
}

static void check_tensors(const lathe_gguf *file, const uint8_t *data, size_t size)
{
    float row[256];
    for (int64_t i = 0; i < lathe_gguf_count(file); i++) {
        const lathe_gguf_tensor *t = lathe_gguf_at(file, i);
        if (t->data < data || t->bytes < 0 || t->data + t->bytes > data + size ||
            lathe_gguf_find(file, t->name) != t ||
            t->rows * lathe_gguf_row_bytes(t->type, t->cols) != t->bytes)
            abort();
        lathe_gguf_decode(t->type, t->data, t->type->block, row);
    }
}

static void read_texts(const lathe_gguf *file)
{
    for (int i = 0; lathe_gguf_folder_files[i] != NULL; i++) {
        lathe_buffer text = LATHE_BUFFER_INIT;
        if (lathe_gguf_folder_text(file, lathe_gguf_folder_files[i], &text) == LATHE_OK &&
            text.len > 0 && memchr(text.data, 0, (size_t)text.len) != NULL)
            abort();
        lathe_buffer_fini(&text);
    }
}

/* Takes the file. */
static void read_tensors(lathe_gguf *file)
{
    lathe_safetensors *set = NULL;
    if (lathe_gguf_tensors(file, &set) != LATHE_OK)
        return;
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        const int64_t n = lathe_desc_count(&t->desc), part = n < 300 ? n : 300;
        uint16_t values[300];
        if (lathe_st_read(t, 0, part, values, LATHE_BF16) != LATHE_OK ||
            lathe_st_read(t, n - part, part, values, LATHE_BF16) != LATHE_OK)
            abort();
    }
    lathe_safetensors_close(set);
}

static void open_image(const uint8_t *data, size_t size)
{
    lathe_gguf *file = NULL;
    if (lathe_gguf_parse("fuzz", data, (int64_t)size, &file) != LATHE_OK)
        return;
    check_values(file, data, size);
    check_tensors(file, data, size);
    read_texts(file);
    read_tensors(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_image(data, size);
    uint8_t *const image = malloc(8 + size);
    if (image == NULL)
        return 0;
    memcpy(image, "GGUF\3\0\0\0", 8);
    if (size > 0)
        memcpy(image + 8, data, size);
    open_image(image, 8 + size);
    free(image);
    return 0;
}
