/* Checks, reads and writes UTF-8. */
#ifndef LATHE_BASE_UTF8_H
#define LATHE_BASE_UTF8_H

#include <stdint.h>
#include <string.h>

/** The character at p, n > 0 bytes left; its length in *len. -1 (len 1) when it is not valid:
 *  truncated, overlong, a surrogate, or beyond U+10FFFF. */
static inline int32_t lathe_utf8_at(const uint8_t *p, int64_t n, int32_t *len)
{
    const uint8_t a = p[0];
    *len = 1;
    if (a < 0x80)
        return a;
    const int32_t want = a >= 0xf0 ? 4 : a >= 0xe0 ? 3 : 2;
    if (a < 0xc2 || a > 0xf4 || n < want)
        return -1;
    int32_t c = want == 2 ? a & 0x1f : want == 3 ? a & 0x0f : a & 0x07;
    for (int32_t i = 1; i < want; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return -1;
        c = c << 6 | (p[i] & 0x3f);
    }
    if ((want == 3 && c < 0x800) || (want == 4 && (c < 0x10000 || c > 0x10ffff)) ||
        (c >= 0xd800 && c <= 0xdfff))
        return -1;
    *len = want;
    return c;
}

/** Bytes of the longest valid prefix. */
static inline int64_t lathe_utf8_prefix(const uint8_t *p, int64_t n)
{
    int64_t i = 0;
    while (i < n) {
        uint64_t word;
        if (i + 8 <= n && (memcpy(&word, p + i, 8), (word & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        int32_t len;
        if (lathe_utf8_at(p + i, n - i, &len) < 0)
            return i;
        i += len;
    }
    return n;
}

/** Length of the invalid sequence at p, with n > 0 bytes left: the longest prefix that could
 *  begin a character, at least one byte. Rust's from_utf8_lossy replaces each such sequence by
 *  one U+FFFD. */
static inline int32_t lathe_utf8_bad(const uint8_t *p, int64_t n)
{
    const uint8_t a = p[0];
    const int32_t want = a >= 0xc2 && a <= 0xdf ? 2 : (a & 0xf0) == 0xe0 ? 3 : 4;
    if (a < 0xc2 || a > 0xf4 || n < 2)
        return 1;
    /* The range of the second byte excludes overlong forms, surrogates and characters above
     * U+10FFFF. */
    const uint8_t low = a == 0xe0 ? 0xa0 : a == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = a == 0xed ? 0x9f : a == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high)
        return 1;
    int32_t len = 2;
    while (len < want && len < n && (p[len] & 0xc0) == 0x80)
        len++;
    return len;
}

/** Writes a character; returns its length (1..4). c is a valid scalar value. */
static inline int32_t lathe_utf8_put(uint8_t *out, int32_t c)
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    const int32_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int32_t i = len - 1; i > 0; i--, c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)(lead[len] | c);
    return len;
}

/** Whether a byte is one of those of `set`. strchr would also find NUL, the end of the set, and a
 * NUL of a foreign text would then pass for what the set means. */
static inline int lathe_is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

/** Unicode's White_Space property. */
static inline int lathe_is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

#endif
