/* Runs work that may crash, hang or end the process in a child process. */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

/* The child's last byte. If it is missing, the process ended before its function returned. */
static const char done_mark = 0x06;

enum { POLL_MS = 20 };

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void lathe_child_write(int fd, const void *data, int64_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        const ssize_t n = write(fd, at, (size_t)bytes);
        if (n < 0 && errno != EINTR)
            return;
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? n : 0;
    }
}

__attribute__((noreturn)) static void run_child(lathe_child_fn work, void *arg, int fd,
                                                pid_t parent)
{
    static const int signals[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGTRAP, SIGABRT,
                                  SIGBUS,  SIGFPE,  SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE,
                                  SIGALRM, SIGTERM, SIGCHLD, SIGXCPU, SIGSYS};
    sigset_t none;
    const struct rlimit no_core = {0, 0};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        (void)signal(signals[i], SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* the parent ended before the line above */
    const int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3 && null >= 0; i++)
        if (i != fd)
            (void)dup2(null, i);
    work(arg, fd);
    lathe_child_write(fd, &done_mark, 1);
    _exit(0);
}

/* Reads all available bytes. 0: the other end is closed. */
static int drain(int fd, lathe_buffer *out)
{
    char chunk[4096];
    for (;;) {
        const ssize_t n = read(fd, chunk, sizeof chunk);
        if (n > 0)
            lathe_buffer_append(out, chunk, n);
        else if (n == 0)
            return 0;
        else if (errno != EINTR)
            return 1;
    }
}

/* Waits until the child has ended, or kills it if it has written nothing for too long.
 * *out_status: as from waitpid; -1: it was killed. */
static void watch(pid_t child, int fd, double seconds, lathe_buffer *out, int *out_status)
{
    double end = now() + seconds;
    int is_open = 1;
    for (;;) {
        const int64_t before = out->len;
        struct pollfd wait = {.fd = is_open ? fd : -1, .events = POLLIN};
        (void)poll(&wait, 1, is_open ? POLL_MS : 1);
        is_open = is_open && drain(fd, out);
        if (out->len > before)
            end = now() + seconds;
        const pid_t ended = waitpid(child, out_status, WNOHANG);
        if (ended == child || (ended < 0 && errno != EINTR))
            break;
        if (now() < end)
            continue;
        (void)kill(child, SIGKILL);
        while (waitpid(child, out_status, 0) < 0 && errno == EINTR)
            continue;
        *out_status = -1;
        break;
    }
    if (is_open)
        (void)drain(fd, out);
}

lathe_status lathe_child_run(lathe_child_fn work, void *arg, double seconds, lathe_buffer *out,
                             lathe_child_end *end)
{
    int ends[2];
    *end = (lathe_child_end){LATHE_CHILD_DONE, 0};
    (void)fflush(stdout); /* otherwise both processes would write the buffered text */
    (void)fflush(stderr);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return lathe_error(LATHE_E_IO, "cannot make a pipe: %s", strerror(errno));
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        run_child(work, arg, ends[1], parent);
    }
    const int cause = errno;
    (void)close(ends[1]);
    if (child < 0) {
        (void)close(ends[0]);
        return lathe_error(LATHE_E_IO, "cannot start a process: %s", strerror(cause));
    }
    int status = 0;
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    watch(child, ends[0], seconds, out, &status);
    (void)close(ends[0]);
    if (out->len > 0 && out->data[out->len - 1] == done_mark && status == 0)
        out->data[--out->len] = '\0';
    else if (status == -1)
        end->how = LATHE_CHILD_HUNG;
    else if (WIFSIGNALED(status))
        *end = (lathe_child_end){LATHE_CHILD_KILLED, WTERMSIG(status)};
    else
        *end = (lathe_child_end){LATHE_CHILD_EXITED, WEXITSTATUS(status)};
    return out->status;
}

void lathe_child_end_text(const lathe_child_end *end, double seconds, char *out, int64_t out_bytes)
{
    switch (end->how) {
    case LATHE_CHILD_EXITED:
        (void)snprintf(out, (size_t)out_bytes, "ends the process");
        break;
    case LATHE_CHILD_KILLED:
        (void)snprintf(out, (size_t)out_bytes, "crashes (%s)", strsignal(end->number));
        break;
    case LATHE_CHILD_HUNG:
        (void)snprintf(out, (size_t)out_bytes, "does not return within %g s", seconds);
        break;
    default:
        (void)snprintf(out, (size_t)out_bytes, "returns");
    }
}
