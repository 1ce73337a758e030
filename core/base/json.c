/* JSON in: jansson, with bounded depth and errors that name file:line:column. */
#include "base/json.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/fs.h"

/* Far above any configuration or tokenizer, far below what a stack holds. */
enum { MAX_DEPTH = 256 };

/* Depth, and NUL bytes: jansson passes over those, and who keeps the text as a string loses the rest. */
static lathe_status check_text(const char *name, const char *text, int64_t bytes)
{
    int depth = 0, in_string = 0, line = 1;
    int64_t line_start = 0;
    for (int64_t i = 0; i < bytes; i++) {
        const char c = text[i];
        if (c == '\0')
            return lathe_error(LATHE_E_PARSE, "%s:%d:%lld: a NUL byte", name, line,
                               (long long)(i - line_start + 1));
        if (c == '\n') {
            line++;
            line_start = i + 1;
        } else if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '[' || c == '{') {
            if (++depth > MAX_DEPTH)
                return lathe_error(LATHE_E_PARSE, "%s:%d:%lld: nested deeper than %d", name, line,
                                   (long long)(i - line_start + 1), MAX_DEPTH);
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return LATHE_OK;
}

lathe_status lathe_json_load(const char *name, const char *text, int64_t bytes, json_t **out)
{
    *out = NULL;
    LATHE_TRY(check_text(name, text, bytes));
    json_error_t error;
    *out = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (*out == NULL)
        return lathe_error(LATHE_E_PARSE, "%s:%d:%d: %s", name, error.line, error.column,
                           error.text);
    return LATHE_OK;
}

lathe_status lathe_json_load_file(const char *path, json_t **out)
{
    char *text = NULL;
    int64_t bytes = 0;
    *out = NULL;
    LATHE_TRY(lathe_file_read(path, 0, &text, &bytes));
    const lathe_status status = lathe_json_load(path, text, bytes, out);
    free(text);
    return status;
}
