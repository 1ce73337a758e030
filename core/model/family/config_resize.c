/* Writes another vocab_size into the text of a config.json. */
#include "model/family/config_resize.h"

#include "lathe/kit/json_text.h"

/* Puts vocab_size first into an object that lacks it; *at moves after its brace. */
static void put_size(lathe_chars object, int64_t rows, const char **at, lathe_buffer *out)
{
    const char *brace = object.data;
    lathe_json_members members = lathe_json_open(object);
    const int is_empty = !lathe_json_next(&members);
    lathe_buffer_append(out, *at, brace + 1 - *at);
    lathe_buffer_printf(out, "\n  \"vocab_size\": %lld%s", (long long)rows, is_empty ? "\n" : ",");
    *at = brace + 1;
}

void lathe_config_text_resize(const char *text, int64_t n, int64_t rows, lathe_buffer *out)
{
    lathe_chars all = {text, n};
    const char *at = text;
    lathe_json__skip(&all, 0);
    const lathe_chars part = lathe_json_get(all, "text_config");
    const int has_part = lathe_json_kind(part) == LATHE_JSON_OBJECT;
    const lathe_chars own = lathe_json_get(all, "vocab_size"),
                      inner = lathe_json_get(part, "vocab_size");
    const int is_first = inner.data == NULL || (own.data != NULL && own.data < inner.data);
    const lathe_chars sizes[2] = {is_first ? own : inner, is_first ? inner : own};
    for (int i = 0; i < 2; i++) {
        if (sizes[i].data == NULL)
            continue;
        lathe_buffer_append(out, at, sizes[i].data - at);
        lathe_buffer_printf(out, "%lld", (long long)rows);
        at = sizes[i].data + sizes[i].bytes;
    }
    if (at == text)
        put_size(has_part ? part : all, rows, &at, out);
    lathe_buffer_append(out, at, text + n - at);
}
