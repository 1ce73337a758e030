/* A grid of terminal cells: draws characters, text and bars, and writes the grid out. */
#include "view/canvas.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

#include "base/error.h"

lathe_status lathe_canvas_init(lathe_canvas *c, int32_t width, int32_t height, int32_t is_unicode)
{
    width = width < 1 ? 1 : width > 1000 ? 1000 : width;
    height = height < 1 ? 1 : height > 1000 ? 1000 : height;
    *c = (lathe_canvas){width, height, is_unicode, width, NULL};
    c->cells = calloc((size_t)width * (size_t)height, sizeof *c->cells);
    if (c->cells == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a canvas of %d by %d", width, height);
    for (int32_t i = 0; i < width * height; i++)
        c->cells[i].glyph = ' ';
    return LATHE_OK;
}

void lathe_canvas_fini(lathe_canvas *c)
{
    free(c->cells);
    c->cells = NULL;
}

void lathe_canvas_put(lathe_canvas *c, int32_t x, int32_t y, int32_t style, uint32_t glyph)
{
    if (x >= 0 && x < c->width && y >= 0 && y < c->height)
        c->cells[y * c->width + x] = (lathe_cell){glyph, style};
}

/* The next character of UTF-8 text; 0xFFFD for an invalid byte. */
static uint32_t next_char(const unsigned char **text)
{
    const unsigned char *at = *text;
    const int more = at[0] < 0x80   ? 0
                     : at[0] < 0xE0 ? 1
                     : at[0] < 0xF0 ? 2
                                    : 3; /* continuation bytes */
    *text = at + 1;
    if (at[0] < 0x80)
        return at[0];
    if (at[0] < 0xC2 || at[0] > 0xF4)
        return 0xFFFD;
    uint32_t value = at[0] & (0x3Fu >> more);
    for (int i = 1; i <= more; i++) {
        if ((at[i] & 0xC0) != 0x80)
            return 0xFFFD;
        value = value << 6 | (at[i] & 0x3Fu);
    }
    *text = at + 1 + more;
    return value;
}

int32_t lathe_canvas_text(lathe_canvas *c, int32_t x, int32_t y, int32_t style, const char *format,
                          ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        uint32_t glyph = next_char(&at);
        int cells = glyph < 0x80 ? 1 : wcwidth((wchar_t)glyph);
        if (glyph < 0x20 || glyph == 0x7F || cells < 0 || (glyph >= 0x80 && !c->is_unicode)) {
            glyph = '?';
            cells = 1;
        }
        if (cells == 0) /* a combining mark: the cell already has its character */
            continue;
        if (x + cells > c->right)
            return c->right;
        lathe_canvas_put(c, x, y, style, glyph);
        if (cells == 2)
            lathe_canvas_put(c, x + 1, y, style, 0);
        x += cells;
    }
    return x;
}

void lathe_canvas_bar(lathe_canvas *c, int32_t x, int32_t y, int32_t width, int32_t style,
                      double share)
{
    const double full = share > 1.0 ? 1.0 : share > 0.0 ? share : 0.0;
    const int32_t eighths = (int32_t)(full * 8.0 * (double)width + 0.5);
    for (int32_t i = 0; i < width; i++) {
        const int32_t part = eighths - 8 * i;
        if (!c->is_unicode)
            lathe_canvas_put(c, x + i, y, part >= 4 ? style : LATHE_STYLE_DIM,
                             part >= 4 ? '#' : '.');
        else if (part >= 8)
            lathe_canvas_put(c, x + i, y, style, 0x2588);
        else if (part > 0) /* 7/8 block is 2589, 1/8 block 258F */
            lathe_canvas_put(c, x + i, y, style, 0x2590u - (uint32_t)part);
        else
            lathe_canvas_put(c, x + i, y, LATHE_STYLE_DIM, 0x2591);
    }
}

static void put_glyph(lathe_buffer *out, uint32_t g)
{
    char s[4];
    int n = 0;
    if (g < 0x80) {
        s[n++] = (char)g;
    } else if (g < 0x800) {
        s[n++] = (char)(0xC0 | g >> 6);
        s[n++] = (char)(0x80 | (g & 0x3F));
    } else if (g < 0x10000) {
        s[n++] = (char)(0xE0 | g >> 12);
        s[n++] = (char)(0x80 | (g >> 6 & 0x3F));
        s[n++] = (char)(0x80 | (g & 0x3F));
    } else {
        s[n++] = (char)(0xF0 | g >> 18);
        s[n++] = (char)(0x80 | (g >> 12 & 0x3F));
        s[n++] = (char)(0x80 | (g >> 6 & 0x3F));
        s[n++] = (char)(0x80 | (g & 0x3F));
    }
    lathe_buffer_append(out, s, n);
}

void lathe_canvas_write(const lathe_canvas *c, int with_colors, const char *end, lathe_buffer *out)
{
    static const char *const codes[LATHE_N_STYLES] = {
        "\x1b[0m",    "\x1b[0;2m",  "\x1b[0;1m",  "\x1b[0;32m", "\x1b[0;33m", "\x1b[0;31m",
        "\x1b[0;36m", "\x1b[0;33m", "\x1b[0;35m", "\x1b[0;32m", "\x1b[0;34m", "\x1b[0;31m"};
    for (int32_t y = 0; y < c->height; y++) {
        const lathe_cell *row = &c->cells[y * c->width];
        int32_t n = c->width, style = LATHE_STYLE_PLAIN;
        while (n > 0 && row[n - 1].glyph == ' ')
            n--;
        for (int32_t x = 0; x < n; x++) {
            if (with_colors && row[x].style != style && row[x].glyph != ' ') {
                style = row[x].style;
                lathe_buffer_puts(out, codes[style]);
            }
            if (row[x].glyph)
                put_glyph(out, row[x].glyph);
        }
        if (with_colors && style != LATHE_STYLE_PLAIN)
            lathe_buffer_puts(out, codes[LATHE_STYLE_PLAIN]);
        lathe_buffer_puts(out, end);
    }
}
