/* Reading a record of the data and writing JSON, for rewards that are plugins.
 *
 * A record is a JSON object that the core has checked, so the functions do not check it again.
 */
#ifndef LATHE_KIT_RECORD_H
#define LATHE_KIT_RECORD_H

#include <stdint.h>
#include <string.h>

#include "lathe/kit/hex.h"

/* A value: the bytes of its JSON text. */
typedef struct lathe_record_value {
    const char *json; /* NULL: the record has no such column */
    int64_t bytes;
} lathe_record_value;

/** Skips a string, whose quote is at text[at]; returns the place after it. */
static inline int64_t lathe_record_skip_string(const char *text, int64_t n, int64_t at)
{
    for (at++; at < n && text[at] != '"'; at++)
        if (text[at] == '\\')
            at++;
    return at < n ? at + 1 : n;
}

/** Skips any value; returns the place after it. */
static inline int64_t lathe_record_skip(const char *text, int64_t n, int64_t at)
{
    int depth = 0;
    while (at < n) {
        const char c = text[at];
        if (c == '"') {
            at = lathe_record_skip_string(text, n, at);
            if (depth == 0)
                return at;
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']' || (unsigned char)c <= ' '))
            return at;
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        at++;
        if (depth == 0 && (c == '}' || c == ']'))
            return at;
    }
    return n;
}

static inline int64_t lathe_record_blank(const char *text, int64_t n, int64_t at)
{
    while (at < n && (text[at] == ',' || text[at] == ':' || (unsigned char)text[at] <= ' '))
        at++;
    return at;
}

static inline int64_t lathe_record_put_utf8(int32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/** Reads one character or escape at text[*at], which moves on, and writes it; returns its bytes. */
static inline int64_t lathe_record_unescape(const char *text, int64_t n, int64_t *at, char *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char c = text[(*at)++];
    if (c != '\\' || *at >= n) {
        *out = c;
        return 1;
    }
    const char kind = text[(*at)++];
    if (kind != 'u' || *at + 4 > n) {
        const char *known = strchr(from, kind);
        *out = known != NULL && kind != '\0' ? to[known - from] : kind;
        return 1;
    }
    int32_t code = lathe_hex_four(text + *at, 4);
    *at += 4;
    if (code >= 0xd800 && code < 0xdc00 && *at + 6 <= n && text[*at] == '\\') {
        code = 0x10000 + ((code - 0xd800) << 10) + (lathe_hex_four(text + *at + 2, 4) - 0xdc00);
        *at += 6;
    }
    return lathe_record_put_utf8(code, out);
}

/** Writes the text of a value and a NUL: a string without quotes and escapes, anything else as its
 *  JSON. out: at least value.bytes + 1 bytes. Returns the length. */
static inline int64_t lathe_record_text(lathe_record_value value, char *out)
{
    int64_t length = 0;
    if (value.bytes > 0 && value.json[0] == '"')
        for (int64_t at = 1; at < value.bytes - 1;)
            length += lathe_record_unescape(value.json, value.bytes - 1, &at, out + length);
    else
        for (; length < value.bytes; length++)
            out[length] = value.json[length];
    out[length] = '\0';
    return length;
}

/** Whether the key, a string with its quotes, is `name`. */
static inline int lathe_record_is(const char *key, int64_t bytes, const char *name)
{
    const int64_t n = (int64_t)strlen(name);
    int64_t at = 1, same = 0;
    while (at < bytes - 1) {
        char one[4];
        const int64_t m = lathe_record_unescape(key, bytes - 1, &at, one);
        if (same + m > n || memcmp(one, name + same, (size_t)m) != 0)
            return 0;
        same += m;
    }
    return same == n;
}

/** The value of a column of the record, json[0, bytes); .json is NULL if it has no such column. */
static inline lathe_record_value lathe_record_find(const char *json, int64_t bytes,
                                                   const char *column)
{
    int64_t at = lathe_record_blank(json, bytes, 0);
    if (at < bytes && json[at] == '{')
        at++;
    for (at = lathe_record_blank(json, bytes, at); at < bytes && json[at] == '"';
         at = lathe_record_blank(json, bytes, at)) {
        const int64_t key = at, after = lathe_record_skip_string(json, bytes, at);
        const int64_t begin = lathe_record_blank(json, bytes, after);
        at = lathe_record_skip(json, bytes, begin);
        if (lathe_record_is(json + key, after - key, column)) {
            const lathe_record_value found = {json + begin, at - begin};
            return found;
        }
    }
    const lathe_record_value none = {NULL, 0};
    return none;
}

/** Writes text[0, bytes), UTF-8, as a JSON string with its quotes; returns the length, at most
 *  6 * bytes + 2. */
static inline int64_t lathe_record_quote(const char *text, int64_t bytes, char *out)
{
    static const char hex[] = "0123456789abcdef";
    int64_t n = 0;
    out[n++] = '"';
    for (int64_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') {
            out[n++] = '\\';
            out[n++] = (char)c;
        } else if (c < 0x20) {
            memcpy(out + n, "\\u00", 4);
            out[n + 4] = hex[c >> 4];
            out[n + 5] = hex[c & 15];
            n += 6;
        } else {
            out[n++] = (char)c;
        }
    }
    out[n++] = '"';
    return n;
}

#endif
