/* Escapes text for HTML and SVG. */
#include "view/html.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Length of the UTF-8 character at text[0, n); 0: it is invalid (Unicode 15, table 3-7). */
static int64_t char_bytes(const unsigned char *text, int64_t n)
{
    const unsigned char a = text[0];
    if (a < 0x80)
        return 1;
    if (a < 0xC2 || a > 0xF4)
        return 0;
    const int64_t want = a < 0xE0 ? 2 : a < 0xF0 ? 3 : 4;
    const unsigned char low = a == 0xE0 ? 0xA0 : a == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = a == 0xED ? 0x9F : a == 0xF4 ? 0x8F : 0xBF;
    if (n < want || text[1] < low || text[1] > high)
        return 0;
    for (int64_t i = 2; i < want; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    return want;
}

void lathe_html_text_n(lathe_buffer *out, const char *text, int64_t n)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + n;
    while (at < end) {
        const int64_t bytes = char_bytes(at, end - at);
        if (*at == '&')
            lathe_buffer_puts(out, "&amp;");
        else if (*at == '<')
            lathe_buffer_puts(out, "&lt;");
        else if (*at == '>')
            lathe_buffer_puts(out, "&gt;");
        else if (*at == '"')
            lathe_buffer_puts(out, "&quot;");
        else if (*at == '\'')
            lathe_buffer_puts(out, "&#39;");
        else if (bytes == 0 || *at == 0x7F || (*at < 0x20 && *at != '\n' && *at != '\t'))
            lathe_buffer_puts(out, "\xEF\xBF\xBD");
        else
            lathe_buffer_append(out, at, bytes);
        at += bytes > 0 ? bytes : 1;
    }
}

void lathe_html_text(lathe_buffer *out, const char *text)
{
    if (text)
        lathe_html_text_n(out, text, (int64_t)strlen(text));
}

void lathe_html_printf(lathe_buffer *out, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lathe_html_text(out, text);
}
