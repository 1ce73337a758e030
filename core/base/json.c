/* Reads JSON with jansson, with limited depth and errors that name file:line:column. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json_memory.h"

/* More than any configuration or tokenizer needs, and small enough for the stack. */
enum { MAX_DEPTH = 256 };

/* Bytes that a tree may take beyond the size of its text. The total limit is 2 x the text + 64
 * MiB; the other 4 MiB are for malloc's overhead. */
#define MEMORY_BEYOND ((int64_t)60 << 20)

/* The text, from which jansson reads some bytes at a time. */
typedef struct source {
    const char *text;
    int64_t left, most; /* most: bytes that the tree may take */
    int32_t over;       /* 1: the tree needs more memory; parsing stops */
} source;

/* Results of one pass over the text before jansson parses it. */
typedef struct scan {
    const char *name, *text;
    int64_t bytes, line_start;
    int line;
    int64_t n_wide; /* integers beyond 64 bits */
} scan;

static lathe_status scan_error(const scan *s, int64_t at, const char *what)
{
    return lathe_error(LATHE_E_PARSE, "%s:%d:%lld: %s", s->name, s->line,
                       (long long)(at - s->line_start + 1), what);
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The end of the number that begins at `at`; *out_wide: it is an integer beyond 64 bits. */
static int64_t number_end(const char *text, int64_t bytes, int64_t at, int *out_wide)
{
    const int64_t begin = at + (text[at] == '-');
    for (at = begin; at < bytes && is_digit(text[at]);)
        at++;
    const int whole = at == bytes || (text[at] != '.' && text[at] != 'e' && text[at] != 'E');
    const char *const limit =
        begin > 0 && text[begin - 1] == '-' ? "9223372036854775808" : "9223372036854775807";
    const int64_t n = at - begin;
    *out_wide = whole && (n > 19 || (n == 19 && memcmp(text + begin, limit, 19) > 0));
    while (at < bytes && text[at] != '\0' && (is_digit(text[at]) || strchr(".eE+-", text[at])))
        at++;
    return at;
}

/* Checks depth and NUL bytes. jansson accepts NUL bytes, but a caller that uses C strings would
 * lose the text after them. */
static lathe_status scan_text(scan *s)
{
    int depth = 0, in_string = 0;
    if (s->bytes >= 3 && memcmp(s->text, "\xEF\xBB\xBF", 3) == 0)
        return scan_error(s, 0, "a byte order mark; JSON begins without one");
    for (int64_t i = 0; i < s->bytes; i++) {
        const char c = s->text[i];
        if (c == '\0')
            return scan_error(s, i, "a NUL byte");
        if (c == '\n') {
            s->line++;
            s->line_start = i + 1;
        } else if (in_string) {
            if (c == '\\' && i + 1 < s->bytes && s->text[i + 1] != '\0')
                i++;
            else if (c == '"')
                in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '[' || c == '{') {
            if (++depth > MAX_DEPTH)
                return scan_error(s, i, "nested deeper than 256");
        } else if (c == ']' || c == '}') {
            depth--;
        } else if (is_digit(c) || c == '-') {
            int wide;
            i = number_end(s->text, s->bytes, i, &wide) - 1;
            s->n_wide += wide;
        }
    }
    return LATHE_OK;
}

/* A copy with ".0" after every integer beyond 64 bits, so that it is read as a real number. */
static char *widen(const scan *s, int64_t *out_bytes)
{
    char *out = malloc((size_t)(s->bytes + 2 * s->n_wide));
    int64_t n = 0;
    int in_string = 0;
    for (int64_t i = 0; out != NULL && i < s->bytes; i++) {
        const char c = s->text[i];
        if (!in_string && (is_digit(c) || c == '-')) {
            int wide;
            const int64_t end = number_end(s->text, s->bytes, i, &wide);
            const int64_t length = end > i ? end - i : 1;
            memcpy(out + n, s->text + i, (size_t)length);
            memcpy(out + n + length, ".0", wide ? 2 : 0);
            n += length + (wide ? 2 : 0);
            i += length - 1;
            continue;
        }
        out[n++] = c;
        if (in_string && c == '\\' && i + 1 < s->bytes)
            out[n++] = s->text[++i];
        else if (c == '"')
            in_string = !in_string;
    }
    *out_bytes = n;
    return out;
}

static size_t feed(void *out, size_t room, void *arg)
{
    source *s = arg;
    s->over |= lathe_json_memory_live() > s->most;
    const size_t n = s->over ? 0 : (int64_t)room < s->left ? room : (size_t)s->left;
    memcpy(out, s->text, n);
    s->text += n;
    s->left -= (int64_t)n;
    return n;
}

static lathe_status load(const char *name, const char *text, int64_t bytes, size_t flags,
                         json_t **out)
{
    scan s = {.name = name, .text = text, .bytes = bytes, .line = 1};
    char *copy = NULL;
    *out = NULL;
    LATHE_TRY(scan_text(&s));
    if (s.n_wide > 0) {
        copy = widen(&s, &bytes);
        if (copy == NULL)
            return lathe_error(LATHE_E_NOMEM, "%s: out of memory", name);
    }
    json_error_t error;
    source in = {copy != NULL ? copy : text, bytes, bytes + MEMORY_BEYOND, 0};
    if (copy != NULL)
        in.most -= bytes;
    lathe_json_memory_begin(bytes);
    *out = json_load_callback(feed, &in, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &error);
    free(copy);
    const int32_t no_memory = lathe_json_memory_failed();
    if (no_memory) {
        json_decref(*out);
        *out = NULL;
    }
    lathe_json_memory_end();
    if (*out != NULL)
        return LATHE_OK;
    if (in.over && !no_memory)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: refused, its values would take many times the file's size in "
                           "memory: more than %lld bytes",
                           name, (long long)in.most);
    if (no_memory || json_error_code(&error) == json_error_out_of_memory)
        return lathe_error(LATHE_E_NOMEM, "%s: out of memory", name);
    return lathe_error(LATHE_E_PARSE, "%s:%d:%d: %s", name, error.line, error.column, error.text);
}

lathe_status lathe_json_load(const char *name, const char *text, int64_t bytes, json_t **out)
{
    return load(name, text, bytes, 0, out);
}

lathe_status lathe_json_load_with_nul(const char *name, const char *text, int64_t bytes,
                                      json_t **out)
{
    return load(name, text, bytes, JSON_ALLOW_NUL, out);
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

json_t *lathe__json_text(const char *text)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    lathe_buffer_json_string(&b, text);
    json_t *out = b.status == LATHE_OK ? json_loadb(b.data, (size_t)b.len, JSON_DECODE_ANY, NULL)
                                       : json_null();
    lathe_buffer_fini(&b);
    return out;
}
