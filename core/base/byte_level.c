/* The byte-level alphabet: a printable character of Latin-1 stands for itself, and the k-th other
 * byte is U+0100 + k. Source: GPT-2's bytes_to_unicode. */
#include "base/byte_level.h"

#include "base/utf8.h"

static int is_printable(int32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The bytes that are not printable, in order: 0x00-0x20, 0x7f-0xa0, 0xad. */
int32_t lathe_byte_char(int32_t byte)
{
    if (is_printable(byte))
        return byte;
    if (byte <= 0x20)
        return 0x100 + byte;
    return byte == 0xad ? 0x143 : 0x100 + 33 + byte - 0x7f;
}

static int32_t byte_of_char(int32_t c)
{
    if (c < 0x100)
        return c >= 0 && is_printable(c) ? c : -1;
    if (c <= 0x120)
        return c - 0x100;
    if (c <= 0x142)
        return c - 0x121 + 0x7f;
    return c == 0x143 ? 0xad : -1;
}

int64_t lathe_bytes_of_chars(const char *text, int64_t n, uint8_t *out)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n;) {
        int32_t len = 1;
        if ((uint8_t)text[i] - 0x21u < 0x5eu) { /* printable ASCII stands for itself */
            out[at++] = (uint8_t)text[i++];
            continue;
        }
        const int32_t byte = byte_of_char(lathe_utf8_at((const uint8_t *)text + i, n - i, &len));
        if (byte < 0)
            return -1;
        out[at++] = (uint8_t)byte;
        i += len;
    }
    return at;
}

uint8_t *lathe_chars_of_bytes(const uint8_t *bytes, int64_t n, uint8_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out += lathe_utf8_put(out, lathe_byte_char(bytes[i]));
    return out;
}
