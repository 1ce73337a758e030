/* Decodes and encodes base64. */
#include "base/base64.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int value_of(char c)
{
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

int64_t lathe_base64_decode(const char *text, int64_t n, uint8_t *out)
{
    uint32_t bits = 0;
    int n_bits = 0;
    int64_t n_out = 0, i = 0;
    for (; i < n && value_of(text[i]) >= 0; i++) {
        bits = bits << 6 | (uint32_t)value_of(text[i]);
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n_out++] = (uint8_t)(bits >> n_bits);
        }
    }
    const int64_t n_digits = i;
    while (i < n && text[i] == '=')
        i++;
    return i != n || n % 4 || n - n_digits > 2 ? -1 : n_out;
}

void lathe_base64_append(lathe_buffer *out, const uint8_t *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i += 3) {
        const uint32_t bits = (uint32_t)bytes[i] << 16 |
                              (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) |
                              (i + 2 < n ? bytes[i + 2] : 0);
        const char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                              i + 1 < n ? digits[bits >> 6 & 63] : '=',
                              i + 2 < n ? digits[bits & 63] : '='};
        lathe_buffer_append(out, four, 4);
    }
}
