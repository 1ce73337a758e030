/* Text that is safe to write to a terminal. */
#include "view/printable.h"

#include "base/utf8.h"

int64_t lathe_view_printable(lathe_buffer *out, const char *text, int64_t n, int64_t room)
{
    int64_t shown = 0;
    for (int64_t i = 0; i < n && shown < room; shown++) {
        int32_t length = 1;
        const int32_t c = lathe_utf8_at((const uint8_t *)text + i, n - i, &length);
        if (c == '\n' || c == '\t' || (c >= 0x20 && c < 0x7f) || c >= 0xa0)
            lathe_buffer_append(out, text + i, length);
        else
            for (int32_t k = 0; k < length; k++)
                lathe_buffer_printf(out, "\\x%02x", (unsigned char)text[i + k]);
        i += length;
    }
    return shown;
}
