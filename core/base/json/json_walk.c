/* Reads JSON strings, numbers and literals in place. */
#include "base/json/json_walk.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "lathe/kit/hex.h"

static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";

int lathe_json_wrong(lathe_json_walk *walk, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(walk->what, sizeof walk->what, format, args);
    va_end(args);
    return 0;
}

/* The character of the escape whose backslash is at *p; moves *p past it. -1: not a valid
 * escape. */
static int32_t escape_at(const char **p, const char *end)
{
    const char *at = *p + 1;
    if (at >= end || *at == '\0')
        return -1;
    if (*at != 'u') {
        const char *found = strchr(letters, *at);
        if (found == NULL)
            return -1;
        *p = at + 1;
        return values[found - letters];
    }
    int32_t c = lathe_hex_four(at + 1, end - (at + 1));
    at += 5;
    if (c >= 0xd800 && c < 0xdc00) {
        const int32_t low = end - at >= 6 && at[0] == '\\' && at[1] == 'u'
                                ? lathe_hex_four(at + 2, end - (at + 2))
                                : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return -1;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
    }
    if (c < 0 || (c >= 0xd800 && c <= 0xdfff))
        return -1;
    *p = at;
    return c;
}

static int is_plain(uint8_t c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

static int pass_escape(lathe_json_walk *walk, lathe_json_string *out)
{
    uint8_t bytes[4];
    const int32_t c = escape_at(&walk->at, walk->end);
    if (c < 0)
        return lathe_json_wrong(walk, "invalid escape");
    out->escaped = 1;
    out->has_nul |= c == 0;
    out->n += lathe_utf8_put(bytes, c);
    return 1;
}

int lathe_json_pass_string(lathe_json_walk *walk, lathe_json_string *out)
{
    if (walk->at >= walk->end || *walk->at != '"')
        return lathe_json_wrong(walk, "expected a string");
    const char *const begin = ++walk->at;
    *out = (lathe_json_string){.text = begin};
    while (walk->at < walk->end && *walk->at != '"') {
        const char *const from = walk->at;
        while (walk->at < walk->end && is_plain((uint8_t)*walk->at))
            walk->at++;
        out->n += walk->at - from;
        if (walk->at >= walk->end || *walk->at == '"')
            break;
        const uint8_t c = (uint8_t)*walk->at;
        if (c == '\\') {
            if (!pass_escape(walk, out))
                return 0;
        } else if (c < 0x20) {
            return lathe_json_wrong(walk, "control character 0x%02x in a string", c);
        } else {
            int32_t n;
            if (lathe_utf8_at((const uint8_t *)walk->at, walk->end - walk->at, &n) < 0)
                return lathe_json_wrong(walk, "byte 0x%02x is not UTF-8", c);
            walk->at += n;
            out->n += n;
        }
    }
    if (walk->at >= walk->end)
        return lathe_json_wrong(walk, "a string without an end");
    out->n_raw = walk->at++ - begin;
    return 1;
}

static int pass_digits(lathe_json_walk *walk)
{
    const char *const from = walk->at;
    while (walk->at < walk->end && *walk->at >= '0' && *walk->at <= '9')
        walk->at++;
    return walk->at > from;
}

static int pass_number(lathe_json_walk *walk)
{
    walk->at += *walk->at == '-';
    const char *const whole = walk->at;
    if (!pass_digits(walk) || (*whole == '0' && walk->at > whole + 1))
        return lathe_json_wrong(walk, "invalid number");
    if (walk->at < walk->end && *walk->at == '.') {
        walk->at++;
        if (!pass_digits(walk))
            return lathe_json_wrong(walk, "invalid number");
    }
    if (walk->at < walk->end && (*walk->at == 'e' || *walk->at == 'E')) {
        walk->at++;
        walk->at += walk->at < walk->end && (*walk->at == '+' || *walk->at == '-');
        if (!pass_digits(walk))
            return lathe_json_wrong(walk, "invalid number");
    }
    return 1;
}

/* The length of NaN, Infinity or -Infinity at p; 0: it is none of them. */
static int64_t nan_length(const char *p, const char *end)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const int64_t n = (int64_t)strlen(words[i]);
        if (end - p >= n && memcmp(p, words[i], (size_t)n) == 0)
            return n;
    }
    return 0;
}

int64_t lathe_json_nulls_for_nan(const char *text, int64_t n, char *out)
{
    const char *const end = text + n;
    int64_t length = 0;
    int in_string = 0;
    for (const char *p = text; p < end;) {
        const int64_t k = in_string ? 0 : nan_length(p, end);
        const int64_t used = k > 0 ? k : in_string && *p == '\\' && p + 1 < end ? 2 : 1;
        in_string ^= *p == '"';
        if (out)
            memcpy(out + length, k > 0 ? "null" : p, (size_t)(k > 0 ? 4 : used));
        length += k > 0 ? 4 : used;
        p += used;
    }
    return length;
}

int64_t lathe_json_count_nan(const char *text, int64_t n)
{
    const char *const end = text + n;
    int64_t count = 0;
    int in_string = 0;
    if (memmem(text, (size_t)n, "NaN", 3) == NULL && memmem(text, (size_t)n, "Infinity", 8) == NULL)
        return 0;
    for (const char *p = text; p < end;) {
        const int64_t k = in_string ? 0 : nan_length(p, end);
        count += k > 0;
        in_string ^= *p == '"';
        p += k > 0 ? k : in_string && *p == '\\' ? 2 : 1;
    }
    return count;
}

int lathe_json_pass_scalar(lathe_json_walk *walk)
{
    static const char *const words[] = {"true", "false", "null"};
    const char *const at = walk->at;
    if (at >= walk->end)
        return lathe_json_wrong(walk, "expected a value, seen the end");
    const int64_t n_nan = walk->takes_nan ? nan_length(at, walk->end) : 0;
    if (n_nan > 0) {
        walk->at += n_nan;
        walk->n_nan++;
        return 1;
    }
    if (*at == '-' || (*at >= '0' && *at <= '9'))
        return pass_number(walk);
    for (int i = 0; i < 3; i++) {
        const int64_t n = (int64_t)strlen(words[i]);
        if (walk->end - at < n || memcmp(at, words[i], (size_t)n) != 0)
            continue;
        walk->at += n;
        return 1;
    }
    return lathe_json_wrong(
        walk, *at > ' ' && *at <= '~' ? "unexpected token near '%c'" : "unexpected byte 0x%02x",
        (uint8_t)*at);
}

int64_t lathe_json_unescape(const char *raw, int64_t n_raw, char *out)
{
    const char *const end = raw + n_raw;
    char *to = out;
    while (raw < end) {
        const char *escape = memchr(raw, '\\', (size_t)(end - raw));
        const int64_t n = (escape ? escape : end) - raw;
        memmove(to, raw, (size_t)n);
        to += n;
        raw += n;
        if (escape)
            to += lathe_utf8_put((uint8_t *)to, escape_at(&raw, end));
    }
    return to - out;
}

/* The next character of a checked string, -1 at its closing quote. */
static int32_t next_char(const char **p)
{
    int32_t n;
    if (**p == '"')
        return -1;
    if (**p == '\\')
        return escape_at(p, *p + 12);
    const int32_t c = lathe_utf8_at((const uint8_t *)*p, 4, &n);
    *p += n;
    return c;
}

int lathe_json_is(const lathe_json_string *string, const char *text, int64_t n)
{
    if (string->n != n)
        return 0;
    if (!string->escaped)
        return n == 0 || memcmp(string->text, text, (size_t)n) == 0;
    uint8_t bytes[4];
    for (const char *p = string->text, *at = text; at < text + n;) {
        const int32_t length = lathe_utf8_put(bytes, next_char(&p));
        if (length > text + n - at || memcmp(bytes, at, (size_t)length) != 0)
            return 0;
        at += length;
    }
    return 1;
}

int lathe_json_compare(const char *a, const char *b)
{
    while (*a == *b && *a != '"' && *a != '\\') {
        a++;
        b++;
    }
    while (((uint8_t)*a & 0xc0) == 0x80) { /* back to the first character that differs */
        a--;
        b--;
    }
    for (;;) {
        const int32_t x = next_char(&a), y = next_char(&b);
        if (x != y)
            return x < y ? -1 : 1;
        if (x < 0)
            return 0;
    }
}
