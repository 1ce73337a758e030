/* A program on a pseudo terminal of its own, as a person has it: what it prints is collected, and
 * keys are typed when it has printed what a person would have waited for. script(1) cannot do that:
 * it types at fixed times, and ends the program when its own input ends. */
#ifndef LATHE_TEST_TERMINAL_H
#define LATHE_TEST_TERMINAL_H

#include <criterion/criterion.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/** Seconds after which what is waited for counts as missing; far more than a loaded machine needs.
 */
#define TERMINAL_PATIENCE 60.0

typedef struct terminal {
    int master, slave; /* the test's end, and the program's, which is kept open to read its modes */
    pid_t pid;
    struct termios before; /* modes at the start */
    size_t n;              /* bytes of `text` */
    char text[1 << 20];    /* all that the program has printed; ends with NUL */
} terminal;

static inline double terminal_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/** Starts args[0] with `args`, which end with NULL, on a new terminal of rows x columns, which is
 * its controlling one. */
static inline void terminal_start(terminal *tty, int rows, int columns, const char *const *args)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    cr_assert_eq(openpty(&tty->master, &tty->slave, NULL, NULL, &size), 0);
    cr_assert_eq(tcgetattr(tty->slave, &tty->before), 0);
    tty->n = 0;
    tty->text[0] = '\0';
    tty->pid = fork();
    cr_assert_geq(tty->pid, 0);
    if (tty->pid == 0) {
        (void)setsid();
        (void)ioctl(tty->slave, TIOCSCTTY, 0);
        for (int fd = 0; fd < 3; fd++)
            (void)dup2(tty->slave, fd);
        (void)close(tty->master);
        (void)setenv("TERM", "xterm-256color", 1);
        (void)setenv("LC_ALL", "C", 1);
        (void)unsetenv("NO_COLOR");
        (void)execv(args[0], (char *const *)(uintptr_t)args);
        _exit(127);
    }
}

/** Takes what the program prints within `ms` milliseconds. */
static inline void terminal_read(terminal *tty, int ms)
{
    struct pollfd p = {tty->master, POLLIN, 0};
    if (poll(&p, 1, ms) <= 0)
        return;
    const ssize_t n = read(tty->master, tty->text + tty->n, sizeof tty->text - tty->n - 1);
    if (n > 0)
        tty->n += (size_t)n;
    tty->text[tty->n] = '\0';
}

/** Waits until `text` has been printed behind byte `from`; returns the number of the byte behind
 * it. */
static inline size_t terminal_await(terminal *tty, size_t from, const char *text)
{
    const double end = terminal_now() + TERMINAL_PATIENCE;
    for (;;) {
        const char *found = strstr(tty->text + from, text);
        if (found)
            return (size_t)(found - tty->text) + strlen(text);
        cr_assert_lt(terminal_now(), end, "'%s' did not come:\n%s", text, tty->text + from);
        terminal_read(tty, 100);
    }
}

static inline void terminal_type(terminal *tty, const char *keys)
{
    cr_assert_eq(write(tty->master, keys, strlen(keys)), (ssize_t)strlen(keys));
}

/** Waits for the program's end, taking what it prints until then; returns the status of waitpid. */
static inline int terminal_wait(terminal *tty)
{
    const double end = terminal_now() + TERMINAL_PATIENCE;
    int status = 0;
    while (waitpid(tty->pid, &status, WNOHANG) != tty->pid) {
        if (terminal_now() > end) {
            (void)kill(tty->pid, SIGKILL);
            cr_assert(0, "it did not end:\n%s", tty->text);
        }
        terminal_read(tty, 10);
    }
    for (size_t n = tty->n + 1; n != tty->n;) { /* what it left in the terminal */
        n = tty->n;
        terminal_read(tty, 0);
    }
    return status;
}

static inline void terminal_close(terminal *tty)
{
    (void)close(tty->master);
    (void)close(tty->slave);
}

#endif
