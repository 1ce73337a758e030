/* The canvas: text that stays inside, output with and without colours, plots of any size. */
#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "view/canvas.h"

static lathe_canvas c;
static lathe_buffer out = LATHE_BUFFER_INIT;

static void clean(void)
{
    lathe_canvas_fini(&c);
    lathe_buffer_fini(&out);
}

TestSuite(canvas, .fini = clean);

static void make(int32_t width, int32_t height, int32_t is_unicode)
{
    clean();
    cr_assert_eq(lathe_canvas_init(&c, width, height, is_unicode), LATHE_OK);
}

static const char *text(int with_colors)
{
    out.len = 0;
    lathe_canvas_write(&c, with_colors, "\n", &out);
    return out.data;
}

Test(canvas, text_is_cut_at_every_edge)
{
    make(5, 2, 0);
    cr_expect_eq(lathe_canvas_text(&c, 3, 0, 0, "abcdef"), 5);
    lathe_canvas_text(&c, 0, 1, 0, "%d", 42);
    lathe_canvas_text(&c, -1, 5, 0, "no");
    lathe_canvas_text(&c, 0, -1, 0, "no");
    cr_expect_str_eq(text(0), "   ab\n42\n");
}

Test(canvas, no_text_brings_codes_of_its_own)
{
    make(20, 1, 0);
    lathe_canvas_text(&c, 0, 0, 0, "a\x1b[31mb\n\x7f\xc3\xa9\xff");
    cr_expect_str_eq(text(0), "a?[31mb????\n");
}

Test(canvas, wide_characters_take_two_cells)
{
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        cr_skip_test("no C.UTF-8");
    make(6, 1, 1);
    cr_expect_eq(lathe_canvas_text(&c, 0, 0, 0, "é語x"), 4);
    cr_expect_str_eq(text(0), "é語x\n");
    make(2, 1, 1);
    lathe_canvas_text(&c, 1, 0, 0, "語");
    cr_expect_str_eq(text(0), "\n");
    make(4, 1, 1);
    /* a combining accent; an incomplete character */
    lathe_canvas_text(&c, 0, 0, 0, "e\xcc\x81!\xc3");
    cr_expect_str_eq(text(0), "e!\xef\xbf\xbd\n");
}

Test(canvas, colours_come_only_when_asked_and_end)
{
    make(4, 1, 0);
    lathe_canvas_text(&c, 0, 0, LATHE_STYLE_BAD, "ab");
    lathe_canvas_text(&c, 3, 0, 0, "c");
    cr_expect_null(strchr(text(0), '\x1b'));
    cr_expect_str_eq(text(1), "\x1b[0;31mab \x1b[0mc\n");
    make(2, 1, 0);
    lathe_canvas_text(&c, 0, 0, LATHE_STYLE_BOLD, "ab");
    cr_expect_str_eq(text(1), "\x1b[0;1mab\x1b[0m\n");
}

Test(canvas, a_bar_is_as_long_as_its_share)
{
    make(8, 1, 0);
    lathe_canvas_bar(&c, 0, 0, 8, 0, 0.5);
    cr_expect_str_eq(text(0), "####....\n");
    lathe_canvas_bar(&c, 0, 0, 8, 0, 7.0);
    cr_expect_str_eq(text(0), "########\n");
    lathe_canvas_bar(&c, 0, 0, 8, 0, (double)NAN);
    cr_expect_str_eq(text(0), "........\n");
}

static const double x[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
static const double falling[] = {10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};

Test(canvas, a_falling_curve_falls)
{
    const lathe_curve curve = {.x = x, .y = falling, .n = 11, .last = 0.0};
    const lathe_plot plot = {.title = "loss", .curves = &curve, .n_curves = 1};
    make(24, 8, 0);
    lathe_canvas_plot(&c, 0, 0, 24, 8, &plot);
    cr_expect_str_eq(text(0),
                     "loss                 - 0\n"
                     "10 +*\n"
                     "   | ****\n"
                     "   |     ****\n"
                     " 5 +         ***\n"
                     "   |            ****\n"
                     " 0 +                ****\n"
                     "    0                 10\n",
                     "%s", out.data);
}

Test(canvas, braille_has_eight_dots_a_cell)
{
    const double two[] = {0, 1}, y[] = {0, 1};
    const lathe_curve curve = {.x = two, .y = y, .n = 2};
    const lathe_plot plot = {.title = "", .curves = &curve, .n_curves = 1};
    make(17, 5, 1);
    lathe_canvas_plot(&c, 0, 0, 17, 5, &plot);
    /* the ends of a rising line: lowest left dot (bit 40) and highest right dot (bit 08) */
    int has_low = 0, has_high = 0;
    for (int i = 0; i < 17 * 5; i++) {
        const uint32_t g = c.cells[i].glyph;
        has_low |= g >= 0x2800 && g < 0x2900 && i / 17 == 3 && (g & 0x40);
        has_high |= g >= 0x2800 && g < 0x2900 && i / 17 == 1 && i % 17 == 16 && (g & 0x08);
    }
    cr_expect(has_low && has_high, "%s", text(0));
}

Test(canvas, plots_stay_inside_at_any_size)
{
    const double wild[] = {1e300, -1e300, (double)NAN, (double)INFINITY, 0, 1, 2, 3, 4, 5, 6};
    const lathe_curve curves[] = {{.label = "a", .x = x, .y = wild, .n = 11, .last = 6.0},
                                  {.label = "b", .x = x, .y = falling, .n = 11, .is_marks = 1},
                                  {.label = "c", .x = x, .y = falling, .n = 0}};
    const lathe_plot plot = {.title = "t", .curves = curves, .n_curves = 3};
    for (int32_t width = 1; width < 60; width += 3)
        for (int32_t height = 1; height < 20; height++) {
            make(70, 24, width % 2);
            lathe_canvas_plot(&c, 5, 2, width, height, &plot);
            for (int32_t i = 0; i < 70 * 24; i++) {
                const int32_t col = i % 70, row = i / 70;
                if (col < 5 || col >= 5 + width || row < 2 || row >= 2 + height)
                    cr_assert_eq(c.cells[i].glyph, ' ', "%d by %d: outside at %d, %d", width,
                                 height, col, row);
            }
        }
}

Test(canvas, an_empty_plot_says_so)
{
    const lathe_plot plot = {.title = "loss"};
    make(30, 6, 0);
    lathe_canvas_plot(&c, 0, 0, 30, 6, &plot);
    cr_expect_not_null(strstr(text(0), "nothing yet"));
}
