/* Opens tokenizers, reads input and shows bytes for the tokenizer commands. */
#include "cmd/text/tokenizer_open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checkpoint_path.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"
#include "base/utf8.h"
#include "tokenizer/json/tokenizer_file.h"

lathe_status lathe_app_tokenizer_place(const char *path, lathe_arena *arena, const char **out)
{
    *out = path;
    return !lathe_path_is_dir(path) || lathe_folder_holds(path, "tokenizer.json")
               ? LATHE_OK
               : lathe_checkpoint_resolve(arena, path, out);
}

lathe_status lathe_app_tokenizer(const char *path, lathe_tokenizer **out)
{
    if (strcmp(path, "bytes") == 0)
        return lathe_tokenizer_bytes(out);
    char hint[LATHE_HUB_HINT];
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *place = NULL;
    if (!lathe_path_exists(path))
        return lathe_error(LATHE_E_NOT_FOUND,
                           "%s: no such file or folder; expected a tokenizer.json, a folder that "
                           "holds one, or \"bytes\"%s",
                           path, lathe_hub_hint(path, hint, sizeof hint));
    lathe_status status = lathe_app_tokenizer_place(path, &arena, &place);
    if (status == LATHE_OK)
        status = lathe_tokenizer_load(place, out);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status read_stdin(char **out, int64_t *out_bytes)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    static char block[1 << 16];
    size_t n;
    while ((n = fread(block, 1, sizeof block, stdin)) > 0 && text.status == LATHE_OK)
        lathe_buffer_append(&text, block, (int64_t)n);
    lathe_buffer_append(&text, "", 0);
    lathe_status status = text.status;
    if (status == LATHE_OK && ferror(stdin))
        status = lathe_error(LATHE_E_IO, "standard input: %s", strerror(errno));
    if (status != LATHE_OK) {
        lathe_buffer_fini(&text);
        return status;
    }
    *out = text.data;
    *out_bytes = text.len;
    return LATHE_OK;
}

lathe_status lathe_app_read(const char *path, char **out, int64_t *out_bytes)
{
    if (strcmp(path, "-") == 0)
        return read_stdin(out, out_bytes);
    return lathe_file_read(path, 0, out, out_bytes);
}

void lathe_app_show_bytes(lathe_buffer *out, const char *text, int64_t n)
{
    for (int64_t i = 0; i < n;) {
        int32_t len;
        const uint8_t byte = (uint8_t)text[i];
        const int32_t c = lathe_utf8_at((const uint8_t *)text + i, n - i, &len);
        if (c == '\n' || c == '\r' || c == '\t')
            lathe_buffer_puts(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (c == '\\' || c == '"')
            lathe_buffer_printf(out, "\\%c", (char)c);
        else if (c < 0 || c < 0x20 || c == 0x7f)
            lathe_buffer_printf(out, "\\x%02x", byte);
        else if ((c >= 0x80 && c < 0xa0) || (c > 0x7f && lathe_is_space(c)) ||
                 (c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) || c == 0xfeff)
            for (int32_t k = 0; k < len; k++)
                lathe_buffer_printf(out, "\\x%02x", (uint8_t)text[i + k]);
        else
            lathe_buffer_append(out, text + i, len);
        i += len;
    }
}
