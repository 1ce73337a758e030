/* The progress line: number of lines in a log, output to a terminal, and an output that fails. */
#include "metrics/progress.h"
#include "metrics/status_line.h"

#include <criterion/criterion.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/log.h"

static double clock_seconds;

static double fake_now(void)
{
    return clock_seconds;
}

static FILE *out;
static char text[1 << 20];

static void begin(lathe_progress *p, int32_t log_every)
{
    out = tmpfile();
    cr_assert(out);
    clock_seconds = 1000.0;
    lathe_progress_init(p, out, LATHE_PROGRESS_AUTO, log_every);
    p->now = fake_now;
    p->begun = fake_now();
}

static int64_t count_lines(void)
{
    int64_t n = 0;
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    for (const char *c = text; *c; c++)
        n += *c == '\n';
    return n;
}

static lathe_progress_step step_of(int64_t step, int64_t max_steps)
{
    return (lathe_progress_step){.step = step,
                                 .max_steps = max_steps,
                                 .loss = 2.5,
                                 .grad_norm = 1.0,
                                 .param_norm = 10.0,
                                 .lr = 1e-3,
                                 .tokens_per_second = 100.0,
                                 .flops_per_second = 1e9,
                                 .step_seconds = 0.01};
}

/* Each step takes `seconds`; an evaluation and a checkpoint follow each. */
static int64_t lines_of(double seconds, int64_t steps, int64_t *out_max_ahead)
{
    lathe_progress p;
    begin(&p, 0);
    *out_max_ahead = 0;
    for (int64_t i = 1; i <= steps; i++) {
        clock_seconds += seconds;
        const lathe_progress_step s = step_of(i, steps);
        lathe_progress_show(&p, &s);
        lathe_progress_validation(&p, i, 2.75, "perplexity 15.60  over 640 targets", 0, i == steps);
        lathe_progress_note(&p, i == steps, "checkpoint step-%08lld", (long long)i);
        const int64_t ahead = p.n_lines - (int64_t)((clock_seconds - p.begun) / 10.0);
        *out_max_ahead = i < steps && ahead > *out_max_ahead ? ahead : *out_max_ahead;
    }
    return count_lines();
}

Test(progress, a_log_gets_under_one_line_per_ten_seconds)
{
    static const double seconds[] = {0.001, 0.5, 7.0};
    for (int i = 0; i < 3; i++) {
        int64_t ahead;
        const int64_t steps = 4000, lines = lines_of(seconds[i], steps, &ahead);
        const double span = seconds[i] * (double)steps;
        cr_expect_leq(ahead, 2, "%lld lines more than the ration at %g s a step", (long long)ahead,
                      seconds[i]);
        cr_expect_leq((double)lines, span / 10.0 + 4.0, "%lld lines in %g s", (long long)lines,
                      span);
        cr_expect_geq((double)lines, span / 20.0 + 3.0, "%lld lines in %g s: too few",
                      (long long)lines, span);
        cr_expect_null(strchr(text, '\x1b'));
        cr_expect_null(strchr(text, '\r'));
        cr_expect_not_null(strstr(text, "step 4000/4000"));
        cr_expect_not_null(strstr(text, "checkpoint step-00004000"));
    }
}

Test(progress, an_evaluation_without_a_line_stands_in_the_next_one)
{
    lathe_progress p;
    begin(&p, 0);
    lathe_progress_step s = step_of(1, 10);
    lathe_progress_show(&p, &s);
    lathe_progress_validation(&p, 1, 2.125, "perplexity 8.40  over 64 targets", 0, 0);
    cr_expect_eq(count_lines(), 1);
    clock_seconds += 30.0;
    s = step_of(2, 10);
    lathe_progress_show(&p, &s);
    cr_expect_eq(count_lines(), 2);
    cr_expect_not_null(strstr(text, "validation 2.1250"), "%s", text);
    clock_seconds += 10.0;
    s = step_of(3, 10);
    lathe_progress_show(&p, &s);
    count_lines();
    char *last = strstr(text, "step 3/10");
    cr_assert_not_null(last);
    cr_expect_null(strstr(last, "validation"), "told once: %s", last);
}

Test(progress, log_every_writes_each_line_that_is_due)
{
    lathe_progress p;
    begin(&p, 5);
    for (int64_t i = 1; i <= 21; i++) {
        const lathe_progress_step s = step_of(i, 21);
        lathe_progress_show(&p, &s);
    }
    cr_expect_eq(count_lines(), 6); /* 1, 5, 10, 15, 20, 21 */
}

Test(progress, the_headline_of_a_stage_follows_the_loss)
{
    lathe_progress p;
    begin(&p, 1);
    lathe_progress_step s = step_of(1, 2);
    s.headline_name = "rewards/accuracies";
    s.headline = 0.75;
    lathe_progress_show(&p, &s);
    cr_expect_eq(count_lines(), 1);
    cr_expect(strstr(text, "loss 2.5000  rewards/accuracies 0.75  |g| 1"), "%s", text);
    (void)fclose(out);
}

Test(progress, a_terminal_gets_one_line_rewritten)
{
    const int terminal = posix_openpt(2 /* O_RDWR */);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
        cr_skip_test("no pseudo terminal here");
    setenv("TERM", "xterm", 1);
    FILE *to = fopen(ptsname(terminal), "w");
    cr_assert(to);
    lathe_progress p;
    lathe_progress_init(&p, to, LATHE_PROGRESS_AUTO, 0);
    cr_expect_eq(p.in_place, 1);
    for (int64_t i = 1; i <= 2; i++) {
        const lathe_progress_step s = step_of(i, 3);
        lathe_progress_show(&p, &s);
    }
    /* a terminal may return its content in any number of reads */
    size_t n = 0;
    struct pollfd waits = {.fd = terminal, .events = POLLIN};
    for (text[0] = '\0'; !strstr(text, "\rstep 2/3") && poll(&waits, 1, 2000) == 1;) {
        const ssize_t got = read(terminal, text + n, sizeof text - 1 - n);
        cr_assert_gt(got, 0);
        n += (size_t)got;
        text[n] = '\0';
    }
    cr_expect_not_null(strstr(text, "\rstep 2/3"), "%s", text);
    cr_expect_not_null(strstr(text, "\x1b[K"));
    cr_expect_null(strchr(text, '\n'));
    lathe_progress_init(&p, to, LATHE_PROGRESS_PLAIN, 0);
    cr_expect_eq(p.in_place, 0);
    setenv("TERM", "dumb", 1);
    lathe_progress_init(&p, to, LATHE_PROGRESS_AUTO, 0);
    cr_expect_eq(p.in_place, 0);
    fclose(to);
    close(terminal);
}

/* The widest values of a long run. */
static lathe_progress_step wide_step(void)
{
    return (lathe_progress_step){.step = 123456,
                                 .max_steps = 1000000,
                                 .loss = 12.3456,
                                 .grad_norm = 1.23e-5,
                                 .param_norm = 12345.0,
                                 .lr = 1.25e-5,
                                 .tokens_per_second = 123456.0,
                                 .flops_per_second = 5.9e14,
                                 .peak_flops = 9.9e14,
                                 .memory_bytes = INT64_C(1) << 36,
                                 .step_seconds = 1.5};
}

Test(progress, the_line_fits_any_width_from_40_columns_and_drops_the_least_important_figures)
{
    const int terminal = posix_openpt(2 /* O_RDWR */);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
        cr_skip_test("no pseudo terminal here");
    setenv("TERM", "xterm", 1);
    FILE *to = fopen(ptsname(terminal), "w");
    cr_assert(to);
    int last = 0;
    for (int columns = 40; columns <= 190; columns++) {
        const struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = 24};
        const lathe_progress_step s = wide_step();
        lathe_progress p;
        cr_assert_eq(ioctl(terminal, TIOCSWINSZ, &size), 0);
        lathe_progress_init(&p, to, LATHE_PROGRESS_AUTO, 0);
        lathe_progress_show(&p, &s);
        size_t n = 0;
        struct pollfd waits = {.fd = terminal, .events = POLLIN};
        for (text[0] = '\0'; !strstr(text, "\x1b[K") && poll(&waits, 1, 2000) == 1;) {
            const ssize_t got = read(terminal, text + n, sizeof text - 1 - n);
            cr_assert_gt(got, 0);
            n += (size_t)got;
            text[n] = '\0';
        }
        const int width = (int)strcspn(text + 1, "\x1b");
        cr_expect_lt(width, columns, "%d columns: '%s'", columns, text + 1);
        cr_expect_geq(width, last, "a wider terminal shows less: '%s'", text + 1);
        cr_expect_not_null(strstr(text, "step 123456/1000000  loss 12.3456"), "%s", text + 1);
        if (columns >= 60)
            cr_expect_not_null(strstr(text, "ETA"), "%s", text + 1);
        last = width;
    }
    cr_expect_not_null(strstr(text, "GFLOP/s"), "%s", text + 1);
    fclose(to);
    close(terminal);
}

static int n_warnings;
static char warning[512];

static void catch_log(void *arg, int32_t level, const char *message)
{
    (void)arg;
    n_warnings += level == LATHE_LOG_WARN;
    snprintf(warning, sizeof warning, "%s", message);
}

Test(progress, a_full_disk_silences_it_with_one_warning)
{
    lathe_progress p;
    FILE *full = fopen("/dev/full", "w");
    if (!full)
        cr_skip_test("no /dev/full here");
    lathe_log_set_sink(catch_log, NULL);
    lathe_progress_init(&p, full, LATHE_PROGRESS_PLAIN, 1);
    for (int64_t i = 1; i <= 5; i++) {
        const lathe_progress_step s = step_of(i, 5);
        lathe_progress_show(&p, &s);
        lathe_progress_note(&p, 1, "note");
    }
    cr_expect_eq(n_warnings, 1);
    cr_expect_not_null(strstr(warning, "No space left on device"), "%s", warning);
    lathe_log_set_sink(NULL, NULL);
    fclose(full);
}

/* ---- remaining time ---- */

Test(status_line, a_long_time_is_shown_in_days)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0.0, "ETA 00:00"},
                 {-1.0, "ETA 00:00"},
                 {59.6, "ETA 01:00"},
                 {3661.0, "ETA 1:01:01"},
                 {86400.0 * 4 - 1, "ETA 95:59:59"},
                 {86400.0 * 12 + 5 * 3600, "ETA 12d 5h"},
                 {86400.0 * 1000, "ETA >999d"},
                 {1e300, "ETA >999d"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lathe_status_line line = {.n = 0};
        lathe_status_line_add_eta(&line, 1, cases[i].seconds);
        cr_expect_str_eq(line.text[0], cases[i].text);
    }
}
