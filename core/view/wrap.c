/* Breaks text into lines of a given width. */
#include "view/wrap.h"

#include <stdlib.h>
#include <string.h>

#include "view/terminal.h"

int32_t lathe_wrap_columns(void)
{
    const char *text = getenv("COLUMNS");
    int32_t width = 0, height = 0;
    if (!lathe_terminal_is_screen() && (text == NULL || atoi(text) <= 0))
        return 0;
    lathe_terminal_size(&width, &height);
    return width;
}

/* Number of characters in n bytes of UTF-8. */
static int32_t count_chars(const char *text, size_t n)
{
    int32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] & 0xc0u) != 0x80u;
    return count;
}

void lathe_wrap_text(lathe_buffer *out, const char *text, int32_t at, int32_t indent,
                     int32_t columns)
{
    int begins_line = 1; /* the line has no word of this text yet */
    if (columns <= 0) {
        lathe_buffer_puts(out, text);
        return;
    }
    for (const char *word = text + strspn(text, " "); *word != '\0';) {
        const size_t n = strcspn(word, " ");
        const int32_t width = count_chars(word, n);
        if (!begins_line && at + 1 + width > columns) {
            lathe_buffer_printf(out, "\n%*s", indent, "");
            at = indent;
            begins_line = 1;
        }
        lathe_buffer_printf(out, "%s%.*s", begins_line ? "" : " ", (int)n, word);
        at += width + !begins_line;
        begins_line = 0;
        word += n + strspn(word + n, " ");
    }
}
