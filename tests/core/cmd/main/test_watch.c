/* lathe watch as a program: on a pseudo terminal it takes the screen, follows the run, and always
 * restores the screen; elsewhere it prints one frame without escape codes. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "support/terminal.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static char dir[] = "/tmp/lathe_watch_XXXXXX";
static char metrics[64];

static void prepare(void)
{
    cr_assert(mkdtemp(dir));
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", dir);
}

static void clean(void)
{
    cr_assert_eq(lathe_dir_remove(dir), LATHE_OK);
}

TestSuite(watch, .init = prepare, .fini = clean);

static void append(const char *text)
{
    FILE *f = fopen(metrics, "a");
    fputs(text, f);
    fclose(f);
}

static terminal tty;

static void start(const char *const *more)
{
    const char *args[8] = {LATHE, "watch", dir};
    for (int i = 0; more && more[i]; i++)
        args[3 + i] = more[i];
    terminal_start(&tty, 30, 100, args);
}

static void expect_success(int status)
{
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
}

/* Checks that the screen is restored and the terminal's modes are as before. */
static void expect_given_back(void)
{
    struct termios after;
    terminal_await(&tty, 0, "\x1b[?1049l");
    cr_expect_not_null(strstr(tty.text, "\x1b[?25h"), "the cursor stays hidden");
    cr_assert_eq(tcgetattr(tty.slave, &after), 0);
    cr_expect_eq(after.c_lflag, tty.before.c_lflag);
    cr_expect_eq(after.c_iflag, tty.before.c_iflag);
    terminal_close(&tty);
}

Test(watch, takes_the_screen_and_q_gives_it_back)
{
    append("{\"step\": 1, \"loss\": 4}\n{\"step\": 7, \"loss\": 3}\n");
    start(NULL);
    terminal_await(&tty, 0, "step 7");
    cr_expect_not_null(strstr(tty.text, "\x1b[?1049h"));
    terminal_type(&tty, "q");
    expect_success(terminal_wait(&tty));
    expect_given_back();
}

Test(watch, follows_the_run_while_it_grows)
{
    append("{\"step\": 1, \"loss\": 4}\n");
    start(NULL);
    terminal_await(&tty, 0, "step 1");
    append("{\"step\": 123, \"loss\": 3}\n{\"step\": 4");
    terminal_await(&tty, 0, "step 123");
    append("56, \"loss\": 2}\n");
    terminal_await(&tty, 0, "step 456");
    (void)unlink(metrics); /* resumed from step 2 */
    append("{\"step\": 2, \"loss\": 4}\n");
    terminal_await(&tty, tty.n, "step 2");
    terminal_type(&tty, "q");
    (void)terminal_wait(&tty);
    expect_given_back();
}

Test(watch, every_signal_that_ends_it_restores_the_terminal)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    append("{\"step\": 1, \"loss\": 4}\n");
    for (int i = 0; i < 4; i++) {
        start(NULL);
        terminal_await(&tty, 0, "step 1");
        cr_assert_eq(kill(tty.pid, signals[i]), 0);
        expect_success(terminal_wait(&tty));
        expect_given_back();
    }
}

Test(watch, ctrl_c_typed_at_it_leaves)
{
    append("{\"step\": 1, \"loss\": 4}\n");
    start(NULL);
    terminal_await(&tty, 0, "step 1");
    terminal_type(&tty, "\x03");
    (void)terminal_wait(&tty);
    expect_given_back();
}

Test(watch, ctrl_z_gives_the_screen_back_until_it_goes_on)
{
    struct termios meanwhile;
    int status = 0;
    append("{\"step\": 1, \"loss\": 4}\n");
    start(NULL);
    terminal_await(&tty, 0, "step 1");
    cr_assert_eq(kill(tty.pid, SIGTSTP), 0);
    terminal_await(&tty, 0, "\x1b[?1049l");
    cr_assert_eq(waitpid(tty.pid, &status, WUNTRACED), tty.pid);
    cr_assert(WIFSTOPPED(status));
    cr_assert_eq(tcgetattr(tty.slave, &meanwhile), 0);
    cr_expect_eq(meanwhile.c_lflag, tty.before.c_lflag);
    const size_t from = tty.n;
    cr_assert_eq(kill(tty.pid, SIGCONT), 0);
    terminal_await(&tty, from, "\x1b[?1049h");
    terminal_await(&tty, from, "step 1");
    terminal_type(&tty, "q");
    expect_success(terminal_wait(&tty));
    expect_given_back();
}

Test(watch, redraws_for_a_new_size)
{
    const struct winsize small = {.ws_row = 12, .ws_col = 40};
    append("{\"step\": 1, \"loss\": 4}\n");
    start(NULL);
    terminal_await(&tty, 0, "grad norm"); /* a small curve, for which there is room */
    cr_assert_eq(ioctl(tty.master, TIOCSWINSZ, &small), 0);
    const size_t from = tty.n;
    terminal_await(&tty, from, "q quits");
    cr_expect_null(strstr(tty.text + from, "grad norm"));
    terminal_type(&tty, "q");
    (void)terminal_wait(&tty);
    expect_given_back();
}

Test(watch, one_frame_on_a_terminal_takes_no_screen)
{
    static const char *const once[] = {"--once", NULL};
    append("{\"step\": 1, \"loss\": 4}\n");
    start(once);
    terminal_await(&tty, 0, "grad norm");
    cr_expect_null(strstr(tty.text, "\x1b[?1049h"));
    cr_expect_null(strstr(tty.text, "q quits"));
    expect_success(terminal_wait(&tty));
    terminal_close(&tty);
}

Test(watch, no_escape_codes_when_the_output_is_no_terminal)
{
    char command[256], text[1 << 16];
    append("{\"step\": 1, \"loss\": 4}\n{\"step\": 7, \"loss\": 3}\n");
    static const char *const settings[] = {"LC_ALL=C", "LC_ALL=C.UTF-8", "LC_ALL=C TERM=xterm"};
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command, "%s COLUMNS=90 LINES=24 " LATHE " watch %s", settings[i],
                 dir);
        FILE *pipe = popen(command, "r");
        const size_t n = fread(text, 1, sizeof text - 1, pipe);
        text[n] = '\0';
        cr_expect_eq(pclose(pipe), 0);
        cr_expect_null(memchr(text, '\x1b', n));
        cr_expect_null(memchr(text, '\r', n));
        cr_expect_not_null(strstr(text, "step 7"));
        int lines = 0;
        for (size_t k = 0; k < n; k++) {
            lines += text[k] == '\n';
            cr_expect(i == 1 || (unsigned char)text[k] < 0x80);
        }
        cr_expect_eq(lines, 24);
    }
}

Test(watch, uses_next_to_no_time)
{
    struct timespec t;
    clockid_t clock;
    append("{\"step\": 1, \"loss\": 4}\n");
    start(NULL);
    terminal_await(&tty, 0, "step 1");
    const double end = terminal_now() + 3.0;
    while (terminal_now() < end)
        terminal_read(&tty, 100);
    cr_assert_eq(clock_getcpuclockid(tty.pid, &clock), 0);
    cr_assert_eq(clock_gettime(clock, &t), 0);
    const double used = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    cr_expect_lt(used, 0.15, "%g s of CPU in three seconds",
                 used); /* 5 % of a core, also with sanitizers */
    terminal_type(&tty, "q");
    (void)terminal_wait(&tty);
    expect_given_back();
}
