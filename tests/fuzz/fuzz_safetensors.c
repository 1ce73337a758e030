/* libFuzzer target: any bytes as a safetensors file: as they are, and (first byte '{') as a header
 * up to the first NUL followed by the data, with the header's length before it. Tensors of an
 * accepted file must be inside its input. */
#include <stdlib.h>
#include <string.h>

#include "files/safetensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void open_image(const uint8_t *data, size_t size)
{
    lathe_safetensors *set = NULL;
    if (lathe_safetensors_parse("fuzz", data, (int64_t)size, &set) != LATHE_OK)
        return;
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        const uint8_t *begin = t->data;
        const int64_t bytes = lathe_desc_bytes(&t->desc);
        if (begin < data || bytes < 0 || begin + bytes > data + size ||
            lathe_safetensors_find(set, t->name) != t)
            abort();
    }
    lathe_safetensors_close(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_image(data, size);
    if (size == 0 || data[0] != '{')
        return 0;
    const uint8_t *end = memchr(data, 0, size);
    const size_t header = end != NULL ? (size_t)(end - data) : size;
    const size_t content = end != NULL ? size - header - 1 : 0;
    uint8_t *const image = malloc(8 + header + content);
    if (image == NULL)
        return 0;
    for (int i = 0; i < 8; i++)
        image[i] = (uint8_t)((uint64_t)header >> (8 * i));
    memcpy(image + 8, data, header);
    if (content > 0)
        memcpy(image + 8 + header, data + header + 1, content);
    open_image(image, 8 + header + content);
    free(image);
    return 0;
}
