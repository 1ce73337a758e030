/* Starts a child process, and talks with it through three pipes at the same time. */
#include "child.h"

#include <dirent.h>
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

extern char **environ;

/* Python writes to a pipe in blocks unless it is told otherwise; a line would never arrive. */
#define UNBUFFERED "PYTHONUNBUFFERED=1"

static void close_end(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* The environment and UNBUFFERED; NULL: no memory. The caller frees it. */
static char **make_environment(void)
{
    static char unbuffered[] = UNBUFFERED;
    size_t n = 0;
    while (environ != NULL && environ[n] != NULL)
        n++;
    char **all = calloc(n + 2, sizeof *all);
    if (all == NULL)
        return NULL;
    if (n > 0)
        memcpy(all, environ, n * sizeof *all);
    if (getenv("PYTHONUNBUFFERED") == NULL)
        all[n] = unbuffered;
    return all;
}

/* Starts words[0] with three standard files, and no other, in a process group of its own. Signals
 * have their default action in it, and none is blocked. */
static int start_program(pid_t *out, char *const *words, char *const *environment,
                         const int theirs[3])
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawnattr_init(&how);
    for (int i = 0; i < 3; i++)
        (void)posix_spawn_file_actions_adddup2(&files, theirs[i], i);
    (void)posix_spawn_file_actions_addclosefrom_np(&files, 3);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                             POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawnattr_setpgroup(&how, 0);
    (void)posix_spawnattr_setsigmask(&how, &none);
    (void)posix_spawnattr_setsigdefault(&how, &all);
    const int error = posix_spawnp(out, words[0], &files, &how, words, environment);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)posix_spawnattr_destroy(&how);
    if (error != 0)
        *out = 0;
    return error;
}

static int spawn(child *c, char *const *words, const int theirs[3])
{
    char **environment = make_environment();
    if (environment == NULL)
        return ENOMEM;
    const int error = start_program(&c->pid, words, environment, theirs);
    free(environment);
    return error;
}

/* Starts the guard of a child. Without it, which costs a process, the child would outlive a killed
 * Lathe if it does not read. PR_SET_PDEATHSIG would end the child with the thread that started it,
 * and not what the child has started. */
static void start_guard(child *c)
{
    char group[32], shell[] = "/bin/sh", option[] = "-c", text[] = "read x; kill -9 -- -$1";
    char *const words[] = {shell, option, text, shell, group, NULL};
    int ends[2];
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)snprintf(group, sizeof group, "%d", (int)c->pid);
    if (nothing >= 0 && pipe2(ends, O_CLOEXEC) == 0) {
        const int theirs[3] = {ends[0], nothing, nothing};
        c->leash = ends[1];
        if (start_program(&c->guard, words, environ, theirs) != 0)
            close_end(&c->leash);
        close_end(&ends[0]);
    }
    if (nothing >= 0)
        (void)close(nothing);
}

static void end_guard(child *c)
{
    if (c->guard != 0) {
        (void)kill(c->guard, SIGKILL);
        (void)waitpid(c->guard, NULL, 0);
    }
    c->guard = 0;
    close_end(&c->leash);
}

int child_start(child *c, char *const *words)
{
    int ends[6] = {-1, -1, -1, -1, -1, -1}, error = 0;
    *c = (child){.in = -1, .out = -1, .err = -1, .leash = -1};
    for (int i = 0; i < 6 && error == 0; i += 2)
        error = pipe2(&ends[i], O_CLOEXEC) != 0 ? errno : 0;
    if (error == 0) {
        const int theirs[3] = {ends[0], ends[3], ends[5]};
        error = spawn(c, words, theirs);
    }
    close_end(&ends[0]);
    close_end(&ends[3]);
    close_end(&ends[5]);
    c->in = ends[1];
    c->out = ends[2];
    c->err = ends[4];
    if (error != 0) {
        close_end(&c->in);
        close_end(&c->out);
        close_end(&c->err);
        return error;
    }
    for (int i = 1; i < 5; i++)
        if (i != 3)
            (void)fcntl(ends[i], F_SETFL, O_NONBLOCK);
    start_guard(c);
    return 0;
}

/* The parent of a process; 0: it is gone. */
static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    int parent = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *end = strrchr(text, ')'); /* after the name, which may have blanks */
    return end != NULL && sscanf(end, ") %*c %d", &parent) == 1 ? (pid_t)parent : 0;
}

/* Whether a process descends from another. */
static int descends(pid_t pid, pid_t from)
{
    for (int depth = 0; depth < 64 && pid > 1; depth++) {
        pid = parent_of(pid);
        if (pid == from)
            return 1;
    }
    return 0;
}

void child_kill(pid_t group)
{
    DIR *all = opendir("/proc");
    for (const struct dirent *one; all != NULL && (one = readdir(all)) != NULL;) {
        const pid_t pid = (pid_t)strtol(one->d_name, NULL, 10);
        if (pid > 1 && pid != getpid() && descends(pid, group))
            (void)kill(pid, SIGKILL);
    }
    if (all != NULL)
        (void)closedir(all);
    (void)kill(-group, SIGKILL); /* the leader last: what it has started would become orphans */
}

/* Waits up to a second for the end, then kills the group; returns the status of waitpid. */
static int reap(child *c)
{
    const struct timespec moment = {0, 10000000};
    int status = 0;
    if (c->pid == 0)
        return 0;
    pid_t got = waitpid(c->pid, &status, WNOHANG);
    for (int i = 0; i < 100 && got == 0; i++) {
        (void)nanosleep(&moment, NULL);
        got = waitpid(c->pid, &status, WNOHANG);
    }
    if (got == 0)
        child_kill(c->pid);
    else
        (void)kill(-c->pid, SIGKILL); /* what it has started, too */
    if (got == 0)
        (void)waitpid(c->pid, &status, 0);
    c->pid = 0;
    end_guard(c);
    return status;
}

void child_stop(child *c)
{
    close_end(&c->in);
    (void)reap(c);
    close_end(&c->out);
    close_end(&c->err);
}

/* ---- lines ---- */

static int keep_error(void *arg, const char *text)
{
    child *c = arg;
    if (text[0] != '\0')
        (void)snprintf(c->last_error, sizeof c->last_error, "%s", text);
    return 0;
}

/* Adds bytes to a line and hands over each line that ends; a longer line is cut. Returns 1 once
 * line() has; the bytes after that are given up, except that *more is set. */
static int put_bytes(char *line, int *n, const char *bytes, int64_t n_bytes,
                     int (*take)(void *arg, const char *text), void *arg)
{
    int done = 0;
    for (int64_t i = 0; i < n_bytes; i++) {
        if (bytes[i] == '\n') {
            *n -= *n > 0 && line[*n - 1] == '\r';
            line[*n] = '\0';
            *n = 0;
            done |= take(arg, line);
        } else if (*n < CHILD_LINE - 1 && bytes[i] != '\0') {
            line[(*n)++] = bytes[i];
        }
    }
    return done;
}

/* Reads what is there. Returns 1 once take() has; -1: the end; else 0. */
static int read_lines(int *fd, char *line, int *n, int (*take)(void *arg, const char *text),
                      void *arg)
{
    char bytes[4096];
    const ssize_t got = read(*fd, bytes, sizeof bytes);
    if (got > 0)
        return put_bytes(line, n, bytes, got, take, arg);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    close_end(fd);
    if (*n > 0 && put_bytes(line, n, "\n", 1, take, arg) == 1)
        return 1; /* the last line has no end */
    return -1;
}

/* SIGPIPE would end this process: it is blocked while the child is written to, and one that is
 * pending because of that is taken away. */
static int64_t write_quietly(int fd, const char *text, int64_t n)
{
    sigset_t pipe_signal, before, pending;
    const struct timespec at_once = {0, 0};
    (void)sigemptyset(&pipe_signal);
    (void)sigaddset(&pipe_signal, SIGPIPE);
    (void)sigpending(&pending);
    (void)pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    const ssize_t got = write(fd, text, (size_t)n);
    const int error = errno;
    if (got < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
        (void)sigtimedwait(&pipe_signal, NULL, &at_once);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return got >= 0 ? got : error == EAGAIN || error == EINTR ? 0 : -1;
}

int child_has_output(const child *c)
{
    struct pollfd end = {c->out, POLLIN, 0};
    return c->n_line > 0 || (poll(&end, 1, 0) > 0 && (end.revents & POLLIN) != 0);
}

int child_exchange(child *c, const char *text, int64_t n, int wait,
                   int (*line)(void *arg, const char *text), void *arg)
{
    int64_t at = 0;
    int done = 0;
    while (c->out >= 0 && !done && (at < n || wait)) {
        struct pollfd ends[3] = {
            {c->out, POLLIN, 0}, {c->err, POLLIN, 0}, {at < n ? c->in : -1, POLLOUT, 0}};
        if (poll(ends, 3, -1) < 0 && errno != EINTR)
            return -1;
        if (ends[1].revents != 0)
            (void)read_lines(&c->err, c->error_line, &c->n_error_line, keep_error, c);
        if (ends[2].revents != 0) {
            const int64_t got = write_quietly(c->in, text + at, n - at);
            if (got < 0)
                at = n; /* it reads no more, but may still answer */
            else
                at += got;
        }
        if (ends[0].revents != 0)
            done = read_lines(&c->out, c->line, &c->n_line, line, arg);
        done = done < 0 ? 0 : done;
    }
    return done ? 1 : c->out < 0 ? -1 : 0;
}

void child_end_text(child *c, char *out, int64_t bytes)
{
    const struct timespec moment = {0, 10000000};
    close_end(&c->in);
    const int status = reap(c);
    for (int i = 0; i < 20 && c->err >= 0; i++) {
        if (read_lines(&c->err, c->error_line, &c->n_error_line, keep_error, c) == 0)
            (void)nanosleep(&moment, NULL);
    }
    if (WIFSIGNALED(status))
        (void)snprintf(out, (size_t)bytes, "was killed by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    else
        (void)snprintf(out, (size_t)bytes, "ended with exit status %d", WEXITSTATUS(status));
    const size_t length = strlen(out);
    if (c->last_error[0] != '\0')
        (void)snprintf(out + length, (size_t)bytes - length, ": %s", c->last_error);
}
