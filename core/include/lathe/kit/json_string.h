/* The characters of a string in a JSON text (lathe/kit/json_text.h).
 *
 *     lathe_chars inside = lathe_json_inside(value), part;
 *     char room[4];
 *     while ((part = lathe_json_part(&inside, room)).bytes > 0)
 *         put(part);
 *
 * Nothing is allocated. The core writes valid JSON; of an escape that is none its characters are
 * given, and of a surrogate alone U+FFFD.
 */
#ifndef LATHE_KIT_JSON_STRING_H
#define LATHE_KIT_JSON_STRING_H

#include <string.h>

#include "lathe/kit/hex.h"
#include "lathe/renderer.h"

/** Whether a value is a string: it has its quotes. */
static inline int lathe_json_is_string(lathe_chars value)
{
    return value.data != NULL && value.bytes > 0 && value.data[0] == '"';
}

/* Writes a character as UTF-8; its bytes. */
static inline int64_t lathe_json__utf8(int32_t c, char out[4])
{
    const int64_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const int32_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int64_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(first[n] | c);
    return n;
}

/* The character of the escape that text begins with, and its bytes. A surrogate alone is U+FFFD. */
static inline int32_t lathe_json__escaped(lathe_chars text, int64_t *bytes)
{
    static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";
    const int is_ascii = text.bytes > 1 && (unsigned char)text.data[1] < 0x80;
    const char c = is_ascii ? text.data[1] : '\\';
    const char *name = c != '\0' ? strchr(names, c) : NULL;
    const int32_t high = c == 'u' ? lathe_hex_four(text.data + 2, text.bytes - 2) : -1;
    *bytes = is_ascii ? 2 : 1;
    if (high < 0)
        return name != NULL ? values[name - names] : c;
    *bytes = 6;
    if (high < 0xd800 || high > 0xdfff)
        return high;
    const int has_low = text.bytes >= 12 && text.data[6] == '\\' && text.data[7] == 'u';
    const int32_t low = has_low ? lathe_hex_four(text.data + 8, text.bytes - 8) : -1;
    if (high >= 0xdc00 || low < 0xdc00 || low > 0xdfff)
        return 0xfffd;
    *bytes = 12;
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/** A string without its quotes, for lathe_json_part(). Other values: none. */
static inline lathe_chars lathe_json_inside(lathe_chars string)
{
    const int closed = string.bytes > 1 && string.data[string.bytes - 1] == '"';
    if (!lathe_json_is_string(string))
        return (lathe_chars){NULL, 0};
    return (lathe_chars){string.data + 1, string.bytes - 1 - closed};
}

/** Takes a part of a string's characters from its inside: a run as it stands there, or one escaped
 *  character, whose bytes are put into room. No bytes: the end. */
static inline lathe_chars lathe_json_part(lathe_chars *inside, char room[4])
{
    lathe_chars part = {inside->data, 0};
    int64_t used = 0;
    if (inside->bytes <= 0)
        return part; /* of a text of no bytes, data may be NULL */
    if (inside->data[0] == '\\') {
        const int32_t c = lathe_json__escaped(*inside, &used);
        part = (lathe_chars){room, lathe_json__utf8(c, room)};
    } else {
        while (used < inside->bytes && inside->data[used] != '\\')
            used++;
        part.bytes = used;
    }
    inside->data += used;
    inside->bytes -= used;
    return part;
}

/** Whether a value is this string. */
static inline int lathe_json_is(lathe_chars value, const char *text)
{
    lathe_chars inside = lathe_json_inside(value), part;
    char room[4];
    size_t at = 0;
    const size_t n = strlen(text);
    if (!lathe_json_is_string(value))
        return 0;
    while ((part = lathe_json_part(&inside, room)).bytes > 0) {
        if ((size_t)part.bytes > n - at || memcmp(text + at, part.data, (size_t)part.bytes) != 0)
            return 0;
        at += (size_t)part.bytes;
    }
    return at == n;
}

#endif
