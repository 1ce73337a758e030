/* lathe watch as a program: on a pseudo terminal it takes the screen, follows the run, and always
 * restores the screen; elsewhere it prints one frame without escape codes. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"

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

/* A watch on its own terminal. */
static struct {
    int master, slave;
    pid_t pid;
    char text[1 << 20];
    size_t n;
    struct termios before;
} tty;

static void start(const char *const *more)
{
    struct winsize size = {.ws_row = 30, .ws_col = 100};
    const char *args[8] = {LATHE, "watch", dir};
    for (int i = 0; more && more[i]; i++)
        args[3 + i] = more[i];
    cr_assert_eq(openpty(&tty.master, &tty.slave, NULL, NULL, &size), 0);
    cr_assert_eq(tcgetattr(tty.slave, &tty.before), 0);
    tty.n = 0;
    tty.pid = fork();
    if (tty.pid == 0) {
        (void)setsid();
        (void)ioctl(tty.slave, TIOCSCTTY, 0);
        (void)dup2(tty.slave, 0);
        (void)dup2(tty.slave, 1);
        (void)dup2(tty.slave, 2);
        (void)close(tty.master);
        (void)setenv("TERM", "xterm-256color", 1);
        (void)setenv("LC_ALL", "C", 1);
        (void)unsetenv("NO_COLOR");
        (void)execv(LATHE, (char **)(uintptr_t)args);
        _exit(127);
    }
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads the program's output until `text` appears after position `from`; fails after ten
 * seconds. */
static void await_from(size_t from, const char *text)
{
    const double end = now() + 10.0;
    while (now() < end) {
        struct pollfd p = {tty.master, POLLIN, 0};
        tty.text[tty.n] = '\0';
        if (strstr(tty.text + from, text))
            return;
        if (poll(&p, 1, 100) <= 0)
            continue;
        const ssize_t n = read(tty.master, tty.text + tty.n, sizeof tty.text - tty.n - 1);
        if (n > 0)
            tty.n += (size_t)n;
    }
    cr_assert(0, "'%s' did not come", text);
}

static int wait_end(void)
{
    const double end = now() + 10.0;
    int status = 0;
    while (now() < end) {
        if (waitpid(tty.pid, &status, WNOHANG) == tty.pid)
            return status;
        usleep(10000);
    }
    (void)kill(tty.pid, SIGKILL);
    cr_assert(0, "it did not end");
    return -1;
}

/* Checks that the screen is restored and the terminal's modes are as before. */
static void expect_given_back(void)
{
    struct termios after;
    await_from(0, "\x1b[?1049l");
    cr_expect_not_null(strstr(tty.text, "\x1b[?25h"), "the cursor stays hidden");
    cr_assert_eq(tcgetattr(tty.slave, &after), 0);
    cr_expect_eq(after.c_lflag, tty.before.c_lflag);
    cr_expect_eq(after.c_iflag, tty.before.c_iflag);
    (void)close(tty.master);
    (void)close(tty.slave);
}

Test(watch, takes_the_screen_and_q_gives_it_back)
{
    append("{\"step\": 1, \"loss\": 4}\n{\"step\": 7, \"loss\": 3}\n");
    start(NULL);
    await_from(0, "step 7");
    cr_expect_not_null(strstr(tty.text, "\x1b[?1049h"));
    cr_assert_eq(write(tty.master, "q", 1), 1);
    const int status = wait_end();
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_given_back();
}

Test(watch, follows_the_run_while_it_grows)
{
    append("{\"step\": 1, \"loss\": 4}\n");
    start(NULL);
    await_from(0, "step 1");
    append("{\"step\": 123, \"loss\": 3}\n{\"step\": 4");
    await_from(0, "step 123");
    append("56, \"loss\": 2}\n");
    await_from(0, "step 456");
    (void)unlink(metrics); /* resumed from step 2 */
    append("{\"step\": 2, \"loss\": 4}\n");
    await_from(tty.n, "step 2");
    cr_assert_eq(write(tty.master, "q", 1), 1);
    (void)wait_end();
    expect_given_back();
}

Test(watch, every_signal_that_ends_it_restores_the_terminal)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    append("{\"step\": 1, \"loss\": 4}\n");
    for (int i = 0; i < 4; i++) {
        start(NULL);
        await_from(0, "step 1");
        cr_assert_eq(kill(tty.pid, signals[i]), 0);
        const int status = wait_end();
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "signal %d", signals[i]);
        expect_given_back();
    }
}

Test(watch, ctrl_c_typed_at_it_leaves)
{
    append("{\"step\": 1, \"loss\": 4}\n");
    start(NULL);
    await_from(0, "step 1");
    cr_assert_eq(write(tty.master, "\x03", 1), 1);
    (void)wait_end();
    expect_given_back();
}

Test(watch, ctrl_z_gives_the_screen_back_until_it_goes_on)
{
    struct termios meanwhile;
    int status = 0;
    append("{\"step\": 1, \"loss\": 4}\n");
    start(NULL);
    await_from(0, "step 1");
    cr_assert_eq(kill(tty.pid, SIGTSTP), 0);
    await_from(0, "\x1b[?1049l");
    cr_assert_eq(waitpid(tty.pid, &status, WUNTRACED), tty.pid);
    cr_assert(WIFSTOPPED(status));
    cr_assert_eq(tcgetattr(tty.slave, &meanwhile), 0);
    cr_expect_eq(meanwhile.c_lflag, tty.before.c_lflag);
    const size_t from = tty.n;
    cr_assert_eq(kill(tty.pid, SIGCONT), 0);
    await_from(from, "\x1b[?1049h");
    await_from(from, "step 1");
    cr_assert_eq(write(tty.master, "q", 1), 1);
    status = wait_end();
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_given_back();
}

Test(watch, redraws_for_a_new_size)
{
    const struct winsize small = {.ws_row = 12, .ws_col = 40};
    append("{\"step\": 1, \"loss\": 4}\n");
    start(NULL);
    await_from(0, "grad norm"); /* a small curve, for which there is room */
    cr_assert_eq(ioctl(tty.master, TIOCSWINSZ, &small), 0);
    const size_t from = tty.n;
    await_from(from, "q quits");
    cr_expect_null(strstr(tty.text + from, "grad norm"));
    cr_assert_eq(write(tty.master, "q", 1), 1);
    (void)wait_end();
    expect_given_back();
}

Test(watch, one_frame_on_a_terminal_takes_no_screen)
{
    static const char *const once[] = {"--once", NULL};
    append("{\"step\": 1, \"loss\": 4}\n");
    start(once);
    await_from(0, "grad norm");
    cr_expect_null(strstr(tty.text, "\x1b[?1049h"));
    cr_expect_null(strstr(tty.text, "q quits"));
    const int status = wait_end();
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void)close(tty.master);
    (void)close(tty.slave);
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
    await_from(0, "step 1");
    const double end = now() + 3.0;
    while (now() < end) {
        struct pollfd p = {tty.master, POLLIN, 0};
        if (poll(&p, 1, 100) > 0)
            tty.n += (size_t)read(tty.master, tty.text + tty.n, sizeof tty.text - tty.n - 1);
    }
    cr_assert_eq(clock_getcpuclockid(tty.pid, &clock), 0);
    cr_assert_eq(clock_gettime(clock, &t), 0);
    const double used = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    cr_expect_lt(used, 0.15, "%g s of CPU in three seconds",
                 used); /* 5 % of a core, also with sanitizers */
    cr_assert_eq(write(tty.master, "q", 1), 1);
    (void)wait_end();
    expect_given_back();
}
