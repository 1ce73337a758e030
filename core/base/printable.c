/* The form in which foreign text is printed: nothing in it controls a terminal. */
#include "base/printable.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

int lathe_is_printable(int32_t c)
{
    if (c < 0x20)
        return c == '\n' || c == '\t';
    return c < 0x7f ||
           (c >= 0xa0 && !(c >= 0x202a && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069) &&
            !(c >= 0xfdd0 && c <= 0xfdef) && !(c >= 0xe0000 && c <= 0xe007f));
}

int64_t lathe_printable_plain(const char *text, int64_t n)
{
    int64_t i = 0;
    while (i < n && ((text[i] >= 0x20 && text[i] < 0x7f) || text[i] == '\n' || text[i] == '\t'))
        i++;
    return i;
}

int32_t lathe_printable_at(const char *text, int64_t n, char out[LATHE_PRINTABLE_BYTES],
                           int32_t *out_bytes)
{
    int32_t length = 1;
    const int32_t c = lathe_utf8_at((const uint8_t *)text, n, &length);
    if (lathe_is_printable(c)) {
        memcpy(out, text, (size_t)length);
        *out_bytes = length;
    } else if (c > 0xffff) {
        *out_bytes = snprintf(out, LATHE_PRINTABLE_BYTES, "\\u%04x\\u%04x",
                              (unsigned)(0xd7c0 + (c >> 10)), (unsigned)(0xdc00 + (c & 0x3ff)));
    } else if (c >= 0x7f) {
        *out_bytes = snprintf(out, LATHE_PRINTABLE_BYTES, "\\u%04x", (unsigned)c);
    } else {
        *out_bytes = snprintf(out, LATHE_PRINTABLE_BYTES, "\\x%02x", (unsigned char)text[0]);
    }
    return length;
}

void lathe_printable_copy(char *out, int64_t bytes, const char *text)
{
    const int64_t n = (int64_t)strlen(text);
    int64_t at = 0;
    for (int64_t i = 0; i < n;) {
        char form[LATHE_PRINTABLE_BYTES];
        int32_t size;
        i += lathe_printable_at(text + i, n - i, form, &size);
        if (at + size >= bytes)
            break;
        memcpy(out + at, form, (size_t)size);
        at += size;
    }
    out[at] = '\0';
}
