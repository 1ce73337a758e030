/* Reads and writes texts as JSON strings, one per line. */
#include "cmd/text/tokenizer_lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json_walk.h"
#include "base/utf8.h"

static void put_ids(lathe_buffer *out, const lathe_ids *ids)
{
    lathe_buffer_puts(out, "[");
    for (int64_t i = 0; i < ids->n; i++)
        lathe_buffer_printf(out, i ? ", %d" : "%d", ids->data[i]);
    lathe_buffer_puts(out, "]\n");
}

/* Reads the JSON string line[0, n) into text (room for n bytes); returns its length. */
static lathe_status read_line(const char *name, int64_t number, const char *line, int64_t n,
                              char *text, int64_t *out_n)
{
    lathe_json_walk walk = {.at = line, .end = line + n};
    lathe_json_string string;
    lathe_json_pass_blank(&walk);
    if (walk.at == walk.end || *walk.at != '"')
        return lathe_error_in(LATHE_E_PARSE, name, number, walk.at - line + 1,
                              "expected a JSON string, one per line");
    if (!lathe_json_pass_string(&walk, &string))
        return lathe_error_in(LATHE_E_PARSE, name, number, walk.at - line + 1, "%s", walk.what);
    lathe_json_pass_blank(&walk);
    if (walk.at != walk.end)
        return lathe_error_in(LATHE_E_PARSE, name, number, walk.at - line + 1,
                              "text after the JSON string; expected the line's end");
    *out_n = lathe_json_unescape(string.text, string.n_raw, text);
    return LATHE_OK;
}

static lathe_status encode_lines(lathe_encoder *enc, const char *name, const char *text, int64_t n,
                                 int32_t flags, char *line, lathe_ids *ids, lathe_buffer *out)
{
    int64_t number = 1;
    for (int64_t at = 0; at < n; number++) {
        const char *end = memchr(text + at, '\n', (size_t)(n - at));
        const int64_t length = (end ? end - text : n) - at;
        int64_t n_line = 0;
        LATHE_TRY(read_line(name, number, text + at, length, line, &n_line));
        ids->n = 0;
        LATHE_TRY(lathe_encoder_run(enc, line, n_line, flags, ids));
        put_ids(out, ids);
        at += length + 1;
    }
    return out->status;
}

lathe_status lathe_app_encode_lines(const lathe_tokenizer *tok, const char *name, const char *text,
                                    int64_t n, int32_t flags, lathe_text_loss *loss,
                                    lathe_buffer *out)
{
    lathe_encoder *enc = NULL;
    lathe_ids ids = {NULL, 0, 0};
    char *line = malloc((size_t)n + 1);
    lathe_status status = line ? lathe_encoder_create(tok, &enc)
                               : lathe_error(LATHE_E_NOMEM, "a text of %lld bytes", (long long)n);
    if (status == LATHE_OK) {
        status = encode_lines(enc, name, text, n, flags, line, &ids, out);
        lathe_text_loss_add(loss, lathe_encoder_loss(enc));
    }
    lathe_encoder_destroy(enc);
    lathe_ids_fini(&ids);
    free(line);
    return status;
}

void lathe_app_put_json_text(lathe_buffer *out, const char *text, int64_t n)
{
    const uint8_t *const bytes = (const uint8_t *)text;
    lathe_buffer_puts(out, "\"");
    for (int64_t i = 0; i < n;) {
        int32_t len;
        const int32_t c = lathe_utf8_at(bytes + i, n - i, &len);
        if (c < 0) {
            lathe_buffer_puts(out, "\xef\xbf\xbd");
            len = lathe_utf8_bad(bytes + i, n - i);
        } else if (c == '"' || c == '\\') {
            lathe_buffer_printf(out, "\\%c", (char)c);
        } else if (c < 0x20 || c == 0x7f) {
            lathe_buffer_printf(out, "\\u%04x", (unsigned)c);
        } else {
            lathe_buffer_append(out, text + i, len);
        }
        i += len;
    }
    lathe_buffer_puts(out, "\"");
}
