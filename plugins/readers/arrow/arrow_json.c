/* Writes rows of Arrow arrays as JSON. The layouts of the arrays are those of the Arrow columnar
 * format (https://arrow.apache.org/docs/format/Columnar.html); buffers[0] is the bitmap of rows
 * that are not null, except for type "n". The caller has validated the arrays. */
#include "arrow_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 };
enum { WRITTEN = 1, INFINITE = 0 };

/* ---- text ---- */

static void put(arrow_text *t, const char *data, int64_t n)
{
    if (t->failed)
        return;
    if (n > t->most_bytes - t->n) {
        t->failed = ARROW_TOO_LONG;
        return;
    }
    if (t->n + n > t->capacity) {
        const int64_t capacity = 2 * (t->n + n) + 256;
        char *grown = realloc(t->data, (size_t)capacity);
        t->failed = grown == NULL ? ARROW_NO_MEMORY : 0;
        if (t->failed)
            return;
        t->data = grown;
        t->capacity = capacity;
    }
    memcpy(t->data + t->n, data, (size_t)n);
    t->n += n;
}

/* Counts a value that is looked at. 0: the record has failed, and the caller stops. */
static int count_value(arrow_text *t)
{
    if (!t->failed && ++t->n_values > t->most_bytes / ARROW_BYTES_PER_VALUE)
        t->failed = ARROW_TOO_MANY;
    return !t->failed;
}

static void puts_of(arrow_text *t, const char *text)
{
    put(t, text, (int64_t)strlen(text));
}

static void put_string(arrow_text *t, const char *s, int64_t n)
{
    int64_t from = 0;
    put(t, "\"", 1);
    for (int64_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        char escape[8];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        put(t, s + from, i - from);
        from = i + 1;
        (void)snprintf(escape, sizeof escape,
                       c == '"'    ? "\\\""
                       : c == '\\' ? "\\\\"
                       : c == '\n' ? "\\n"
                       : c == '\t' ? "\\t"
                                   : "\\u%04x",
                       c);
        puts_of(t, escape);
    }
    put(t, s + from, n - from);
    put(t, "\"", 1);
}

/* Writes a finite number as Python's json does: the shortest digits that give the same number
 * again, without an exponent from 1e-4 to 1e16. least, most: digits to try; is_f32: only 24 bits
 * count. */
static void put_number(arrow_text *t, double x, int is_f32)
{
    char digits[40], out[64];
    int n = is_f32 ? 6 : 15;
    for (;; n++) {
        (void)snprintf(digits, sizeof digits, "%.*e", n - 1, x);
        const double back = strtod(digits, NULL);
        if (is_f32 ? (float)back == (float)x : back == x)
            break;
    }
    const char *e = strchr(digits, 'e');
    const int exponent = atoi(e + 1);
    if (exponent < -4 || exponent >= 16) {
        const int negative = digits[0] == '-';
        int64_t mantissa = e - digits;
        while (mantissa > 2 + negative && digits[mantissa - 1] == '0')
            mantissa--;
        mantissa -= digits[mantissa - 1] == '.';
        put(t, digits, mantissa);
        puts_of(t, e);
        return;
    }
    const int decimals = n - 1 - exponent > 1 ? n - 1 - exponent : 1;
    (void)snprintf(out, sizeof out, "%.*f", decimals, x);
    size_t end = strlen(out);
    while (out[end - 1] == '0' && out[end - 2] != '.')
        end--;
    put(t, out, (int64_t)end);
}

static double half(uint16_t bits)
{
    const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    const double x = exponent == 0    ? ldexp(mantissa, -24)
                     : exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                                      : ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -x : x;
}

/* ---- types ---- */

/* Whether the format of a type is this one; a format with parameters ends with ':'. */
static int is(const struct ArrowSchema *type, const char *format)
{
    const size_t n = strlen(format);
    return strncmp(type->format, format, n) == 0 && (format[n - 1] == ':' || !type->format[n]);
}

static int is_one_of(const struct ArrowSchema *type, const char *letters)
{
    return type->format[0] && !type->format[1] && strchr(letters, type->format[0]) != NULL;
}

static int is_list(const struct ArrowSchema *type)
{
    return is(type, "+l") || is(type, "+L") || is(type, "+vl") || is(type, "+vL") ||
           is(type, "+w:");
}

static const char *name_of(const struct ArrowSchema *type)
{
    static const struct {
        const char *begin, *name;
    } names[] = {{"z", "binary"},
                 {"Z", "large binary"},
                 {"vz", "binary"},
                 {"w:", "fixed-size binary"},
                 {"d:", "decimal"},
                 {"td", "date"},
                 {"ts", "timestamp"},
                 {"tt", "time"},
                 {"tD", "duration"},
                 {"ti", "interval"},
                 {"+u", "union"},
                 {"+r", "run-end encoded"},
                 {"+m", "map with keys that are not strings"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(type->format, names[i].begin, strlen(names[i].begin)) == 0)
            return names[i].name;
    return type->format;
}

static int has_form(const struct ArrowSchema *type, int depth, char *what, size_t what_bytes)
{
    const int is_map = is(type, "+m");
    if (depth == MAX_DEPTH) {
        (void)snprintf(what, what_bytes, "nested too deep");
        return 0;
    }
    if (type->dictionary)
        return has_form(type->dictionary, depth + 1, what, what_bytes);
    if (is_one_of(type, "nbcCsSiIlLefguU") || is(type, "vu"))
        return 1;
    if ((!is_list(type) && !is(type, "+s") && !is_map) ||
        (is_map && !is_one_of(type->children[0]->children[0], "uU"))) {
        (void)snprintf(what, what_bytes, "%s", name_of(type));
        return 0;
    }
    for (int64_t i = 0; i < type->n_children; i++)
        if (!has_form(type->children[i], depth + 1, what, what_bytes))
            return 0;
    return 1;
}

int arrow_json_has_form(const struct ArrowSchema *type, char *what, size_t what_bytes)
{
    return has_form(type, 0, what, what_bytes);
}

/* ---- values ---- */

static int bit(const void *bits, int64_t i)
{
    return (((const uint8_t *)bits)[i / 8] >> (i % 8)) & 1;
}

static int64_t integer(char format, const void *data, int64_t i)
{
    switch (format) {
    case 'c':
        return ((const int8_t *)data)[i];
    case 'C':
        return ((const uint8_t *)data)[i];
    case 's':
        return ((const int16_t *)data)[i];
    case 'S':
        return ((const uint16_t *)data)[i];
    case 'i':
        return ((const int32_t *)data)[i];
    case 'I':
        return ((const uint32_t *)data)[i];
    default:
        return ((const int64_t *)data)[i];
    }
}

static double real(char format, const void *data, int64_t i)
{
    return format == 'e'   ? half(((const uint16_t *)data)[i])
           : format == 'f' ? (double)((const float *)data)[i]
                           : ((const double *)data)[i];
}

/* Whether row i is null, or a NaN. */
static int is_null(const struct ArrowSchema *type, const struct ArrowArray *a, int64_t i)
{
    if (is(type, "n"))
        return 1;
    if (a->null_count != 0 && a->buffers[0] && !bit(a->buffers[0], i + a->offset))
        return 1;
    if (type->dictionary)
        return is_null(type->dictionary, a->dictionary,
                       integer(type->format[0], a->buffers[1], i + a->offset));
    return is_one_of(type, "efg") && isnan(real(type->format[0], a->buffers[1], i + a->offset));
}

/* The string of row i (types u, U and vu). */
static const char *string_of(const struct ArrowSchema *type, const struct ArrowArray *a, int64_t i,
                             int64_t *out_n)
{
    const int64_t at = i + a->offset;
    if (is(type, "u") || is(type, "U")) {
        const char format = is(type, "u") ? 'i' : 'l';
        const int64_t begin = integer(format, a->buffers[1], at);
        *out_n = integer(format, a->buffers[1], at + 1) - begin;
        return a->buffers[2] ? (const char *)a->buffers[2] + begin : "";
    }
    /* a view of 16 bytes: length, then up to 12 bytes, or prefix, buffer and offset */
    const char *view = (const char *)a->buffers[1] + 16 * at;
    int32_t parts[4];
    memcpy(parts, view, sizeof parts);
    *out_n = parts[0];
    return parts[0] <= 12 ? view + 4 : (const char *)a->buffers[2 + parts[2]] + parts[3];
}

/* The range of the list of row i in the child. */
static void list_of(const struct ArrowSchema *type, const struct ArrowArray *a, int64_t i,
                    int64_t *out_begin, int64_t *out_end)
{
    const int64_t at = i + a->offset;
    const int is_large = is(type, "+L") || is(type, "+vL");
    const char format = is_large ? 'l' : 'i';
    if (is(type, "+w:")) {
        const int64_t n = atoll(type->format + 3);
        *out_begin = at * n;
        *out_end = *out_begin + n;
        return;
    }
    *out_begin = integer(format, a->buffers[1], at);
    *out_end = type->format[1] == 'v' ? *out_begin + integer(format, a->buffers[2], at)
                                      : integer(format, a->buffers[1], at + 1);
}

static int put_value(arrow_text *t, const struct ArrowSchema *type, const struct ArrowArray *a,
                     int64_t i);

static int put_list(arrow_text *t, const struct ArrowSchema *type, const struct ArrowArray *a,
                    int64_t i)
{
    int64_t begin, end;
    list_of(type, a, i, &begin, &end);
    put(t, "[", 1);
    for (int64_t k = begin; k < end && count_value(t); k++) {
        if (k > begin)
            put(t, ", ", 2);
        if (!put_value(t, type->children[0], a->children[0], k))
            return INFINITE;
    }
    put(t, "]", 1);
    return WRITTEN;
}

/* A list of keys and values. */
static int put_map(arrow_text *t, const struct ArrowSchema *type, const struct ArrowArray *a,
                   int64_t i)
{
    const struct ArrowSchema *entry = type->children[0];
    const struct ArrowArray *entries = a->children[0];
    const int64_t begin = integer('i', a->buffers[1], i + a->offset);
    const int64_t end = integer('i', a->buffers[1], i + a->offset + 1);
    int64_t n = 0;
    put(t, "{", 1);
    for (int64_t k = begin; k < end && count_value(t); k++) {
        int64_t n_key = 0;
        const int64_t at = k + entries->offset;
        const char *key = string_of(entry->children[0], entries->children[0], at, &n_key);
        if (is_null(entry->children[1], entries->children[1], at))
            continue;
        put(t, ", ", n++ ? 2 : 0);
        put_string(t, key, n_key);
        put(t, ": ", 2);
        if (!put_value(t, entry->children[1], entries->children[1], at))
            return INFINITE;
    }
    put(t, "}", 1);
    return WRITTEN;
}

/* *out_child: the member that is infinite. */
static int put_struct(arrow_text *t, const struct ArrowSchema *type, const struct ArrowArray *a,
                      int64_t i, int64_t *out_child)
{
    int64_t n = 0;
    put(t, "{", 1);
    for (int64_t c = 0; c < type->n_children && count_value(t); c++) {
        const char *name = type->children[c]->name;
        if (is_null(type->children[c], a->children[c], i + a->offset))
            continue;
        put(t, ", ", n++ ? 2 : 0);
        put_string(t, name, (int64_t)strlen(name));
        put(t, ": ", 2);
        *out_child = c;
        if (!put_value(t, type->children[c], a->children[c], i + a->offset))
            return INFINITE;
    }
    put(t, "}", 1);
    return WRITTEN;
}

static int put_value(arrow_text *t, const struct ArrowSchema *type, const struct ArrowArray *a,
                     int64_t i)
{
    char number[32];
    const int64_t at = i + a->offset;
    int64_t n = 0;
    if (is_null(type, a, i)) {
        puts_of(t, "null");
    } else if (type->dictionary) {
        return put_value(t, type->dictionary, a->dictionary,
                         integer(type->format[0], a->buffers[1], at));
    } else if (is(type, "b")) {
        puts_of(t, bit(a->buffers[1], at) ? "true" : "false");
    } else if (is(type, "L")) {
        (void)snprintf(number, sizeof number, "%" PRIu64, ((const uint64_t *)a->buffers[1])[at]);
        puts_of(t, number);
    } else if (is_one_of(type, "cCsSiIl")) {
        (void)snprintf(number, sizeof number, "%" PRId64,
                       integer(type->format[0], a->buffers[1], at));
        puts_of(t, number);
    } else if (is_one_of(type, "efg")) {
        const double x = real(type->format[0], a->buffers[1], at);
        if (isinf(x))
            return INFINITE;
        put_number(t, x, !is(type, "g"));
    } else if (is_list(type)) {
        return put_list(t, type, a, i);
    } else if (is(type, "+m")) {
        return put_map(t, type, a, i);
    } else if (is(type, "+s")) {
        return put_struct(t, type, a, i, &n);
    } else {
        const char *s = string_of(type, a, i, &n);
        put_string(t, s, n);
    }
    return WRITTEN;
}

int arrow_json_row(arrow_text *text, const struct ArrowSchema *type, const struct ArrowArray *batch,
                   int64_t i, const char **out_column)
{
    int64_t column = 0;
    if (put_struct(text, type, batch, i, &column))
        return 1;
    *out_column = type->children[column]->name;
    return 0;
}
