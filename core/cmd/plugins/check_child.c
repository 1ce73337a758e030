/* Starts, watches and ends the process that checks a plugin. */
#include "cmd/plugins/check_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

extern char **environ;

enum { MAX_WORDS = 64, LINE = 2048 };

/* ---- the child ---- */

static int events = -1;

/* Writes a whole line; ignores errors, because the parent may have ended. */
static void tell(const char *line)
{
    size_t n = strlen(line);
    while (n > 0) {
        const ssize_t written = write(events, line, n);
        if (written <= 0)
            return;
        line += written;
        n -= (size_t)written;
    }
}

static void tell_begin(void *arg, const char *check)
{
    char line[LINE];
    (void)arg;
    (void)snprintf(line, sizeof line, "begin %s\n", check);
    tell(line);
}

static void tell_end(void *arg, int32_t result, const char *text)
{
    char line[LINE];
    (void)arg;
    const int n = snprintf(line, sizeof line - 1, "end %d %s", result, text);
    for (char *c = line; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
    const size_t end = n < (int)sizeof line - 2 ? (size_t)n : sizeof line - 2;
    line[end] = '\n';
    line[end + 1] = '\0';
    tell(line);
}

lathe_report lathe_check_child_report(int fd)
{
    events = fd;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return (lathe_report){tell_begin, tell_end, NULL};
}

void lathe_check_child_done(const lathe_conformance_totals *totals, const char *title)
{
    char line[LINE];
    (void)snprintf(line, sizeof line, "done %d %d %d %.200s\n", totals->ok, totals->failed,
                   totals->skipped, title);
    tell(line);
}

void lathe_check_child_refused(int exit_code)
{
    char line[LINE];
    (void)snprintf(line, sizeof line, "refused %d\n", exit_code);
    tell(line);
}

/* ---- the parent ---- */

typedef struct watch {
    pid_t child;
    int fd;
    double seconds, deadline;
    const lathe_report *report;
    lathe_check_outcome *out;
    int in_check, hung;
    char text[2 * LINE];
    size_t n_text;
} watch;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void take_line(watch *w, char *line)
{
    int result = 0, n = 0;
    lathe_conformance_totals *totals = &w->out->totals;
    if (strncmp(line, "begin ", 6) == 0) {
        w->report->begin(w->report->arg, line + 6);
        w->in_check = 1;
        w->deadline = now() + w->seconds;
    } else if (w->in_check && sscanf(line, "end %d %n", &result, &n) == 1 && n > 0 && result >= 0 &&
               result <= LATHE_CHECK_SKIPPED) {
        w->report->end(w->report->arg, result, line + n);
        w->in_check = 0;
    } else if (sscanf(line, "done %d %d %d %n", &totals->ok, &totals->failed, &totals->skipped,
                      &n) == 3 &&
               n > 0) {
        w->out->done = 1;
        (void)snprintf(w->out->title, sizeof w->out->title, "%s", line + n);
    } else if (sscanf(line, "refused %d", &result) == 1) {
        w->out->refused = result;
    }
}

static void take_text(watch *w)
{
    char *line = w->text, *end;
    w->text[w->n_text] = '\0';
    while ((end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        take_line(w, line);
        line = end + 1;
    }
    w->n_text = strlen(line);
    if (w->n_text > LINE) /* no event is as long as this */
        w->n_text = 0;
    memmove(w->text, line, w->n_text);
}

/* Reads events until the child closes the pipe or takes too long. */
static void listen_to(watch *w)
{
    w->deadline = now() + w->seconds;
    for (;;) {
        const double left = w->deadline - now();
        struct pollfd p = {.fd = w->fd, .events = POLLIN};
        if (left <= 0) {
            w->hung = 1;
            return;
        }
        const int ready = poll(&p, 1, left > 1.0 ? 1000 : (int)(1000 * left) + 1);
        if (ready < 0 && errno != EINTR)
            return;
        if (ready <= 0)
            continue;
        const ssize_t n = read(w->fd, w->text + w->n_text, sizeof w->text - 1 - w->n_text);
        if (n <= 0)
            return;
        w->n_text += (size_t)n;
        take_text(w);
    }
}

/* Waits for the child to end, for as long as one check may take, then kills it. */
static int await(watch *w)
{
    int status = 0;
    const double deadline = now() + w->seconds;
    while (!w->hung && waitpid(w->child, &status, WNOHANG) == 0) {
        const struct timespec pause = {0, 2000000};
        w->hung = now() > deadline;
        (void)nanosleep(&pause, NULL);
    }
    if (w->hung) {
        (void)kill(w->child, SIGKILL);
        (void)waitpid(w->child, &status, 0);
    }
    return status;
}

/* Describes how a child failed that did not end as it should; returns 0 if it did. */
static int describe_end(const watch *w, int status, char *text, size_t bytes)
{
    if (w->hung)
        return snprintf(text, bytes, "still running after %g s", w->seconds);
    if (WIFSIGNALED(status))
        return snprintf(text, bytes, "crashed: %s", strsignal(WTERMSIG(status)));
    if (!w->out->done)
        return snprintf(text, bytes, "ended the process with exit code %d", WEXITSTATUS(status));
    const int expected = w->out->totals.failed > 0;
    if (WEXITSTATUS(status) != expected)
        return snprintf(text, bytes, "ended the process with exit code %d, expected %d",
                        WEXITSTATUS(status), expected);
    return 0;
}

static lathe_status spawn(char *const *argv, int fd, pid_t *out)
{
    char *words[MAX_WORDS], option[] = "--report-to", number[16];
    int n = 0;
    for (; argv[n] != NULL && n < MAX_WORDS - 3; n++)
        words[n] = argv[n];
    if (argv[0] == NULL || argv[n] != NULL)
        return lathe_error(LATHE_E_ARG, "%d words for the process of the check; expected 1 to %d",
                           n, MAX_WORDS - 3);
    (void)snprintf(number, sizeof number, "%d", fd);
    words[n] = option;
    words[n + 1] = number;
    words[n + 2] = NULL;
    const int code = posix_spawn(out, argv[0], NULL, NULL, words, environ);
    return code == 0 ? LATHE_OK
                     : lathe_error(LATHE_E_IO, "cannot start a process: %s", strerror(code));
}

lathe_status lathe_check_child_run(char *const *argv, double seconds, const lathe_report *report,
                                   lathe_check_outcome *out)
{
    int ends[2];
    char text[128];
    watch w = {.seconds = seconds, .report = report, .out = out};
    *out = (lathe_check_outcome){0};
    if (pipe(ends) != 0)
        return lathe_error(LATHE_E_IO, "cannot make a pipe: %s", strerror(errno));
    (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    const lathe_status started = spawn(argv, ends[1], &w.child);
    (void)close(ends[1]);
    w.fd = ends[0];
    if (started == LATHE_OK) {
        listen_to(&w);
        const int status = await(&w);
        const int refused = out->refused != 0 && !w.hung && WIFEXITED(status);
        if (!refused && describe_end(&w, status, text, sizeof text) > 0) {
            if (!w.in_check)
                report->begin(report->arg, out->done ? "leaves" : "goes_on");
            report->end(report->arg, LATHE_CHECK_FAILED, text);
            out->totals.failed++;
            out->refused = 0;
        }
    }
    (void)close(ends[0]);
    return started;
}
