/* Progress of preparing data: a rewritten line on a terminal, log lines elsewhere, and not too many
 * of them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "metrics/data_progress.h"
#include "metrics/progress.h"

static int n_lines;

static void sink(void *arg, int32_t level, const char *message)
{
    (void)arg, (void)level, (void)message;
    n_lines++;
}

static const char *show(int32_t mode, int in_place)
{
    static char text[4096];
    lathe_data_progress p;
    FILE *file = tmpfile();
    cr_assert_not_null(file);
    lathe_data_progress_init(&p, file, mode);
    cr_expect_eq(p.in_place, 0, "a file is no terminal");
    p.in_place = in_place;
    lathe_log_set_sink(sink, NULL);
    for (int64_t done = 1; done <= 1000; done++)
        lathe_data_progress_show(&p, "corpus", done * 1000000, 1000000000, done * 250000);
    lathe_data_progress_end(&p);
    lathe_log_set_sink(NULL, NULL);
    rewind(file);
    const size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = 0;
    fclose(file);
    return text;
}

Test(data_progress, a_log_stays_quiet_for_ten_seconds)
{
    cr_expect_str_eq(show(LATHE_PROGRESS_AUTO, 0), "", "escape codes are for terminals");
    cr_expect_eq(n_lines, 0);
    cr_expect_str_eq(show(LATHE_PROGRESS_OFF, 1), "");
}

Test(data_progress, a_terminal_gets_one_line_rewritten_and_ended)
{
    cr_assert_eq(setenv("COLUMNS", "120", 1), 0);
    const char *text = show(LATHE_PROGRESS_AUTO, 1);
    cr_expect_not_null(strstr(text, "\rcorpus:  tokenised 1000.0 of 1000.0 MB (100%)"), "%s", text);
    cr_expect_not_null(strstr(text, "250.0M tokens"), "%s", text);
    int ends = 0, rewritten = 0;
    for (const char *c = text; *c; c++) {
        ends += *c == '\n';
        rewritten += *c == '\r';
    }
    cr_expect_eq(ends, 1);
    cr_expect_leq(rewritten, 20, "%d lines in a moment", rewritten); /* one per 0.1 s */
}

Test(data_progress, the_line_fits_a_narrow_terminal)
{
    cr_assert_eq(setenv("COLUMNS", "48", 1), 0);
    const char *text = show(LATHE_PROGRESS_AUTO, 1);
    cr_expect_lt(strcspn(text + 1, "\x1b"), 48, "%s", text);
    cr_expect_not_null(strstr(text, "(100%)"), "%s", text);
}
