/* Reads JSON with jansson, with limited depth and errors that name file:line:column. */
#include "base/json/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json_memory.h"
#include "base/json/json_wide.h"

/* More than any configuration or tokenizer needs, and small enough for the stack. */
enum { MAX_DEPTH = 256 };

/* Bytes that a tree may take beyond the size of its text. The total limit is 2 x the text + 64
 * MiB; the other 4 MiB are for malloc's overhead. */
#define MEMORY_BEYOND ((int64_t)60 << 20)

/* The text, from which jansson reads some bytes at a time. */
typedef struct source {
    const char *text;
    int64_t left, max; /* most: bytes that the tree may take */
    int32_t over;      /* 1: the tree needs more memory; parsing stops */
} source;

/* Results of one pass over the text before jansson parses it. */
typedef struct scan {
    const char *name, *text;
    int64_t bytes, line_start;
    int line;
    int64_t at;     /* number of the text's first line in the file */
    int64_t n_wide; /* integers beyond 64 bits */
} scan;

static lathe_status error_at(const scan *s, int line, int64_t column, const char *what)
{
    return lathe_error_in(LATHE_E_PARSE, s->name, s->at + line - 1, column, "%s", what);
}

static lathe_status scan_error(const scan *s, int64_t at, const char *what)
{
    return error_at(s, s->line, at - s->line_start + 1, what);
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
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
            i = lathe__json_number_end(s->text, s->bytes, i, &wide) - 1;
            s->n_wide += wide;
        }
    }
    return LATHE_OK;
}

/* A copy with ".0" after every integer beyond 64 bits, so that it is read as a real number; keeps:
 * a real number of as many bytes takes its place, because any number of digits is kept. */
static char *widen(const scan *s, int keeps, int64_t *out_bytes)
{
    char *out = malloc((size_t)(s->bytes + 2 * s->n_wide));
    int64_t n = 0;
    int in_string = 0;
    for (int64_t i = 0; out != NULL && i < s->bytes; i++) {
        const char c = s->text[i];
        if (!in_string && (is_digit(c) || c == '-')) {
            int wide;
            const int64_t end = lathe__json_number_end(s->text, s->bytes, i, &wide);
            const int64_t length = end > i ? end - i : 1;
            memcpy(out + n, s->text + i, (size_t)length);
            const int64_t first = c == '-';
            if (wide && keeps && s->text[i + first] != '0') {
                memset(out + n + first, '0', (size_t)(length - first));
                out[n + first + 1] = '.';
            } else if (wide) {
                memcpy(out + n + length, ".0", 2);
                n += 2;
            }
            n += length;
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
    s->over |= lathe_json_memory_live() > s->max;
    const size_t n = s->over ? 0 : (int64_t)room < s->left ? room : (size_t)s->left;
    memcpy(out, s->text, n);
    s->text += n;
    s->left -= (int64_t)n;
    return n;
}

/* at: number of the text's first line; keeps 1: integers beyond 64 bits are kept (json_wide.h). */
static lathe_status load(const char *name, int64_t at, const char *text, int64_t bytes,
                         size_t flags, int keeps, json_t **out)
{
    const int64_t n_text = bytes;
    scan s = {.name = name, .text = text, .bytes = bytes, .line = 1, .at = at};
    char *copy = NULL;
    *out = NULL;
    LATHE_TRY(scan_text(&s));
    if (s.n_wide > 0) {
        copy = widen(&s, keeps, &bytes);
        if (copy == NULL)
            return lathe_error(LATHE_E_NOMEM, "%s: out of memory", name);
    }
    json_error_t error;
    source in = {copy != NULL ? copy : text, bytes, bytes + MEMORY_BEYOND, 0};
    if (copy != NULL)
        in.max -= bytes;
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
        return keeps && s.n_wide > 0 ? lathe__json_keep_wide(text, n_text, out) : LATHE_OK;
    if (in.over && !no_memory)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: refused, its values would take many times the file's size in "
                           "memory: more than %lld bytes",
                           name, (long long)in.max);
    if (no_memory || json_error_code(&error) == json_error_out_of_memory)
        return lathe_error(LATHE_E_NOMEM, "%s: out of memory", name);
    const lathe_status status = error_at(&s, error.line, error.column, error.text);
    const int is_nul = json_error_code(&error) == json_error_null_byte_in_key;
    return is_nul && (flags & JSON_ALLOW_NUL) ? LATHE_E_UNSUPPORTED : status;
}

lathe_status lathe_json_load(const char *name, const char *text, int64_t bytes, json_t **out)
{
    return load(name, 1, text, bytes, 0, 0, out);
}

lathe_status lathe_json_load_with_nul(const char *name, const char *text, int64_t bytes,
                                      json_t **out)
{
    return load(name, 1, text, bytes, JSON_ALLOW_NUL, 0, out);
}

lathe_status lathe_json_load_exact(const char *name, const char *text, int64_t bytes, int with_nul,
                                   json_t **out)
{
    return load(name, 1, text, bytes, with_nul ? JSON_ALLOW_NUL : 0, 1, out);
}

lathe_status lathe_json_load_line(const char *file, int64_t line, const char *text, int64_t bytes,
                                  int with_nul, json_t **out)
{
    while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--;
    return load(file, line, text, bytes, with_nul ? JSON_ALLOW_NUL : 0, 1, out);
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
