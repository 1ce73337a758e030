/* Uses the terminal as a full screen. */
#include "view/terminal.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

static struct {
    int taken;
    int has_keys; /* stdin is a terminal too */
    struct termios before;
    sigset_t before_mask;
    sigset_t mask; /* while waiting */
    struct sigaction old[6];
} screen;

static const int caught[6] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
static volatile sig_atomic_t quit_seen, stop_seen, resize_seen;

static void on_signal(int number)
{
    if (number == SIGWINCH)
        resize_seen = 1;
    else if (number == SIGTSTP)
        stop_seen = 1;
    else
        quit_seen = number;
}

int lathe_terminal_is_screen(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term && term[0] && strcmp(term, "dumb") != 0;
}

int lathe_terminal_is_utf8(void)
{
    return setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

int lathe_terminal_has_colors(void)
{
    const char *no = getenv("NO_COLOR");
    return no == NULL || !no[0];
}

static int32_t size_of_env(const char *name, int32_t missing)
{
    const char *text = getenv(name);
    const long n = text ? strtol(text, NULL, 10) : 0;
    return n > 0 && n <= 1000 ? (int32_t)n : missing;
}

void lathe_terminal_size(int32_t *out_width, int32_t *out_height)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        *out_width = size.ws_col;
        *out_height = size.ws_row;
    } else {
        *out_width = size_of_env("COLUMNS", 100);
        *out_height = size_of_env("LINES", 30);
    }
}

lathe_status lathe_terminal_write(const char *text, int64_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = write(STDOUT_FILENO, text, (size_t)bytes);
        if (n < 0 && errno != EINTR)
            return lathe_error(LATHE_E_IO, "the terminal: cannot write: %s", strerror(errno));
        if (n > 0) {
            text += n;
            bytes -= n;
        }
    }
    return LATHE_OK;
}

/* Switches to the alternate screen without a cursor, or back. */
static void switch_screen(int to_ours)
{
    const char *codes = to_ours ? "\x1b[?1049h\x1b[?25l\x1b[2J" : "\x1b[0m\x1b[?25h\x1b[?1049l";
    struct termios raw = screen.before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (screen.has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, to_ours ? &raw : &screen.before);
    (void)lathe_terminal_write(codes, (int64_t)strlen(codes));
}

lathe_status lathe_terminal_take(void)
{
    static int at_exit_set;
    struct sigaction action;
    sigset_t blocked;
    if (screen.taken)
        return LATHE_OK;
    screen.has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen.before) == 0;
    if (!at_exit_set && atexit(lathe_terminal_give_back) != 0)
        return lathe_error(LATHE_E_NOMEM, "no memory for restoring the terminal");
    at_exit_set = 1;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    (void)sigemptyset(&blocked);
    for (int i = 0; i < 6; i++)
        (void)sigaddset(&blocked, caught[i]);
    /* Signals are blocked except while waiting, so none is lost between a check of the flags and
     * the wait. */
    (void)sigprocmask(SIG_BLOCK, &blocked, &screen.before_mask);
    screen.mask = screen.before_mask;
    for (int i = 0; i < 6; i++) {
        (void)sigdelset(&screen.mask, caught[i]);
        (void)sigaction(caught[i], &action, &screen.old[i]);
    }
    screen.taken = 1;
    switch_screen(1);
    return LATHE_OK;
}

void lathe_terminal_give_back(void)
{
    if (!screen.taken)
        return;
    screen.taken = 0;
    switch_screen(0);
    for (int i = 0; i < 6; i++)
        (void)sigaction(caught[i], &screen.old[i], NULL);
    (void)sigprocmask(SIG_SETMASK, &screen.before_mask, NULL);
}

/* On Ctrl-Z, stops like any other program, and restores the terminal meanwhile. */
static void stop_here(void)
{
    stop_seen = 0;
    switch_screen(0);
    (void)raise(SIGSTOP);
    switch_screen(1);
}

static int32_t read_keys(void)
{
    char keys[64];
    const ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
        return LATHE_EVENT_QUIT; /* the terminal hung up */
    if (n == 1 && (keys[0] == 'q' || keys[0] == 'Q' || keys[0] == 27 || keys[0] == 4))
        return LATHE_EVENT_QUIT;
    /* keys typed in advance; an arrow's escape sequence contains no q */
    for (ssize_t i = 0; i < n; i++)
        if (keys[i] == 'q' || keys[i] == 3)
            return LATHE_EVENT_QUIT;
    return LATHE_EVENT_REDRAW;
}

int32_t lathe_terminal_wait(double seconds)
{
    struct pollfd keys = {STDIN_FILENO, POLLIN, 0};
    const struct timespec limit = {(time_t)seconds,
                                   (long)((seconds - (double)(time_t)seconds) * 1e9)};
    const int n = ppoll(&keys, screen.has_keys ? 1 : 0, &limit, &screen.mask);
    if (quit_seen)
        return LATHE_EVENT_QUIT;
    if (stop_seen) {
        stop_here();
        return LATHE_EVENT_REDRAW;
    }
    if (resize_seen) {
        resize_seen = 0;
        return LATHE_EVENT_REDRAW;
    }
    return n > 0 ? read_keys() : LATHE_EVENT_NONE;
}
