/* One start of a training on several processes: mpirun as a child, its output line by line, and
 * signals for its ranks. */
#include "cmd/main/launch_job.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/print.h"
#include "cmd/main/launch_output.h"
#include "parallel/ranks/failure_report.h"

enum {
    FIXED_ARGUMENTS = 16,
    LINE_BYTES = 1 << 16,
    KILL_SECONDS = 5,
    START_SECONDS = 5,
    END_SECONDS = 60
};

/* One of mpirun's outputs, cut into lines. */
typedef struct stream {
    int fd;
    FILE *to;
    char line[LINE_BYTES];
    size_t n;
    int is_closed;              /* 1: `to` cannot be written any more */
    int64_t n_of_ranks;         /* lines of ranks that were passed on */
    lathe_launch_output mpirun; /* its own messages */
} stream;

typedef struct job {
    pid_t mpirun;
    int32_t n_ranks;
    int32_t all_started; /* all ranks have been seen as children of mpirun */
    int pending;         /* a signal for the ranks until all have started; 0: none */
    double pending_since;
    char exe[PATH_MAX]; /* the program of the ranks */
    stream streams[2];  /* standard output and error */
    int signals;        /* signalfd */
    int n_signals;
    int is_killed;     /* 1: mpirun, here */
    double kill_at;    /* 0: not */
    double gone_since; /* all ranks have started, and none is left; 0: some are */
    double look_at;    /* when to see next whether some are */
    lathe_launch_end *end;
} job;

lathe_status lathe_launch_find(lathe_arena *arena, const char **out)
{
    const char *at = getenv("PATH");
    *out = NULL;
    while (at != NULL && *at != '\0') {
        const size_t n = strcspn(at, ":");
        const char *path = lathe_arena_printf(arena, "%.*s/mpirun", (int)n, at);
        if (path == NULL)
            return LATHE_E_NOMEM;
        if (n > 0 && at[0] == '/' && access(path, X_OK) == 0) {
            *out = path;
            return LATHE_OK;
        }
        at += n + (at[n] == ':');
    }
    return lathe_error(LATHE_E_NOT_FOUND,
                       "there is no mpirun in PATH: install Open MPI (Debian: apt install "
                       "libopenmpi-dev openmpi-bin), and build Lathe with it");
}

void lathe_launch_take_signals(sigset_t *out)
{
    (void)sigemptyset(out);
    (void)sigaddset(out, SIGINT);
    (void)sigaddset(out, SIGTERM);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* nohup */
        (void)sigaddset(out, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, out, NULL);
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that ends does not end the training */
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the child ---- */

/* In the child: becomes mpirun. */
static void become(char *const *argv, const int *outputs, pid_t parent)
{
    sigset_t none;
    const int nothing = open("/dev/null", O_RDONLY);
    (void)setpgid(0, 0); /* Ctrl-C reaches the parent alone, which forwards it */
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    if (nothing >= 0)
        (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(outputs[0], STDOUT_FILENO);
    (void)dup2(outputs[1], STDERR_FILENO);
    (void)setenv(LATHE_LAUNCH_VARIABLE, "1", 1);
    if (geteuid() == 0) { /* mpirun refuses root without them */
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    (void)execv(argv[0], argv);
    (void)dprintf(STDERR_FILENO, "lathe launch: %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* mpirun -n N ... lathe train ... */
static lathe_status arguments(job *j, const char *mpirun, char *const *train, lathe_arena *arena,
                              char ***out)
{
    static const char *const fixed[] = {"-n",        NULL,   "--oversubscribe",
                                        "--bind-to", "none", "--tag-output"};
    const ssize_t bytes = readlink("/proc/self/exe", j->exe, sizeof j->exe - 1);
    int64_t n = 0, at = 0;
    if (bytes <= 0)
        return lathe_error(LATHE_E_IO, "cannot tell where this program is: /proc/self/exe");
    j->exe[bytes] = '\0';
    while (train[n] != NULL)
        n++;
    char **argv = lathe_arena_alloc(arena, (n + FIXED_ARGUMENTS) * (int64_t)sizeof *argv);
    char *const count = lathe_arena_printf(arena, "%d", j->n_ranks);
    char *const self = lathe_arena_strdup(arena, j->exe), *const first =
                                                              lathe_arena_strdup(arena, mpirun);
    if (argv == NULL || count == NULL || self == NULL || first == NULL)
        return LATHE_E_NOMEM;
    argv[at++] = first;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        argv[at++] = fixed[i] != NULL ? lathe_arena_strdup(arena, fixed[i]) : count;
    argv[at++] = self;
    for (int64_t i = 0; i < n; i++)
        argv[at++] = train[i];
    for (int64_t i = 0; i < at; i++)
        if (argv[i] == NULL)
            return LATHE_E_NOMEM;
    argv[at] = NULL;
    *out = argv;
    return LATHE_OK;
}

static lathe_status begin(job *j, char *const *argv, const sigset_t *taken)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    const pid_t self = getpid();
    (void)fflush(NULL);
    j->signals = signalfd(-1, taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (j->signals < 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ||
        (j->mpirun = fork()) < 0)
        return lathe_error(LATHE_E_IO, "cannot start %s: %s", argv[0], strerror(errno));
    if (j->mpirun == 0)
        become(argv, (const int[2]){out[1], err[1]}, self);
    (void)setpgid(j->mpirun, j->mpirun);
    (void)close(out[1]);
    (void)close(err[1]);
    j->streams[0].fd = out[0];
    j->streams[0].to = stdout;
    j->streams[1].fd = err[0];
    j->streams[1].to = stderr;
    return LATHE_OK;
}

/* ---- output ---- */

/* Whether a line already names its rank: "2026-11-23 12:00:00 rank 3: ...". */
static int names_rank(const char *line, int rank)
{
    char name[32];
    const int n = snprintf(name, sizeof name, "rank %d", rank);
    const char *const found = strstr(line, name);
    return found != NULL && found - line < 48 && !isdigit((unsigned char)found[n]);
}

/* Tells once that an output is closed or its disk full. */
static void look_at_output(stream *s)
{
    if (s->is_closed || (fflush(s->to) == 0 && !ferror(s->to)))
        return;
    s->is_closed = 1;
    lathe_print_to(
        stderr, "lathe launch: %s cannot be written any more (%s): the run continues without it\n",
        s->to == stdout ? "the output" : "standard error", strerror(errno));
}

/* "[1,3]<stdout>:text" -> "rank 3: text". Lines of mpirun itself have no tag (launch_output.h). */
static void put_line(stream *s)
{
    int rank = 0, end = 0;
    const char *text = s->line;
    if (s->n > 0 && s->line[s->n - 1] == '\r') /* the ranks write to terminals */
        s->n--;
    s->line[s->n] = '\0';
    if (sscanf(s->line, "[%*d,%d]<std%*3[a-z]>:%n", &rank, &end) != 1 || end == 0) {
        lathe_launch_output_line(&s->mpirun, s->line, s->to);
        s->n = 0;
        return;
    }
    text += end;
    s->n_of_ranks += text[0] != '\0';
    if (rank > 0 && text[0] != '\0' && !names_rank(text, rank))
        lathe_print_to(s->to, "rank %d: ", rank);
    lathe_print_to(s->to, "%s\n", text);
    look_at_output(s);
    s->n = 0;
}

static void read_stream(stream *s)
{
    char bytes[4096];
    const ssize_t got = read(s->fd, bytes, sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    for (ssize_t i = 0; i < got; i++) {
        if (bytes[i] == '\n' || s->n == LINE_BYTES - 1)
            put_line(s);
        if (bytes[i] != '\n')
            s->line[s->n++] = bytes[i];
    }
    if (got <= 0) {
        if (s->n > 0)
            put_line(s);
        lathe_launch_output_end(&s->mpirun, s->to);
        (void)close(s->fd);
        s->fd = -1;
    }
    (void)fflush(s->to);
}

/* ---- signals ---- */

/* Whether the process is a child of mpirun that has become our program: before, it has mpirun's
 * handlers. */
static int is_rank(const job *j, long pid)
{
    char path[64], text[512], exe[PATH_MAX];
    int parent = 0;
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *const file = fopen(path, "re");
    if (file == NULL)
        return 0;
    const char *const got = fgets(text, sizeof text, file), *const end = strrchr(text, ')');
    const int is_child = got != NULL && end != NULL && sscanf(end + 1, " %*c %d", &parent) == 1 &&
                         parent == j->mpirun;
    (void)fclose(file);
    if (!is_child)
        return 0;
    (void)snprintf(path, sizeof path, "/proc/%ld/exe", pid);
    const ssize_t n = readlink(path, exe, sizeof exe - 1);
    return n > 0 && strncmp(exe, j->exe, (size_t)n) == 0 && j->exe[n] == '\0';
}

/* Sends a signal to every rank of this machine (0: none) and returns their number. */
static int32_t signal_ranks(const job *j, int number)
{
    DIR *const dir = opendir("/proc");
    const struct dirent *e;
    int32_t n = 0;
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        const long pid = strtol(e->d_name, NULL, 10);
        if (pid <= 0 || !is_rank(j, pid))
            continue;
        n++;
        if (number != 0)
            (void)kill((pid_t)pid, number);
    }
    if (dir != NULL)
        (void)closedir(dir);
    return n;
}

/* A signal waits until all ranks have started: those that start later would not get it. */
static void forward(job *j)
{
    struct signalfd_siginfo info;
    if (!j->all_started)
        j->all_started = signal_ranks(j, 0) >= j->n_ranks;
    while (read(j->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (j->end->stopped == 0)
            j->end->stopped = (int)info.ssi_signo;
        if (++j->n_signals > 1 && j->kill_at <= 0.0)
            j->kill_at = now() + KILL_SECONDS;
        if (j->all_started)
            (void)signal_ranks(j, (int)info.ssi_signo);
        else {
            j->pending = (int)info.ssi_signo;
            j->pending_since = now();
        }
    }
    if (j->pending != 0 && (j->all_started || now() - j->pending_since > START_SECONDS)) {
        (void)signal_ranks(j, j->pending);
        j->pending = 0;
    }
}

/* ---- the job ---- */

/* mpirun (4.1) sometimes does not end after ranks that ended while they met. */
static void end_after_ranks(job *j)
{
    const double t = now();
    if (t < j->look_at)
        return;
    j->look_at = t + 0.5;
    /* after a signal they need not have been there all at once: many ranks start one after another
     */
    const int may_be_gone = j->all_started || (j->end->stopped != 0 && j->pending == 0);
    if (!may_be_gone || signal_ranks(j, 0) > 0)
        j->gone_since = 0.0;
    else if (j->gone_since <= 0.0) {
        (void)kill(j->mpirun, SIGCONT); /* a rank may have held it, to write a checkpoint */
        j->gone_since = t;
    } else if (t - j->gone_since > (j->end->stopped != 0 ? KILL_SECONDS : END_SECONDS)) {
        j->is_killed = 1;
        (void)kill(-j->mpirun, SIGKILL);
    }
}

/* Says how the job ended, if that is known here alone. mpirun (4.1) sometimes ends without the box
 * that names the rank; its exit code is that of the rank all the same. */
static void explain(job *j, int status)
{
    static const char hint[] = "; the kernel does that when memory runs out";
    const stream *const errors = &j->streams[1];
    const lathe_launch_output *const w = &errors->mpirun;
    char *const why = j->end->why, who[32] = "a rank";
    const size_t bytes = sizeof j->end->why;
    const int is_silent = errors->n_of_ranks == 0 && w->n_told == 0;
    const int known = w->killed_rank >= 0 ? w->killed_rank : w->exited_rank;
    /* the number of a signal, if mpirun has said nothing: its own failures have such codes, too */
    const int past = w->n_told == 0 ? j->end->code - 128 : 0;
    const int by_signal = w->killed_rank >= 0       ? w->signal
                          : w->exited_rank >= 0     ? 0
                          : past > 0 && past < NSIG ? past
                                                    : 0;
    if (j->end->code == 0 || j->end->stopped != 0)
        return;
    if (known >= 0)
        (void)snprintf(who, sizeof who, "rank %d", known);
    if (WIFSIGNALED(status))
        (void)snprintf(why, bytes, "mpirun was ended by signal %d (%s)%s", WTERMSIG(status),
                       strsignal(WTERMSIG(status)),
                       j->is_killed ? ", because it did not end after its ranks had" : "");
    else if (by_signal > 0)
        (void)snprintf(why, bytes, "%s was ended by signal %d (%s)%s", who, by_signal,
                       strsignal(by_signal), by_signal == SIGKILL ? hint : "");
    else if (is_silent)
        (void)snprintf(why, bytes, "%s exited with %d, and said nothing", who, j->end->code);
}

static void wait_for(job *j)
{
    int status = 0;
    while (j->streams[0].fd >= 0 || j->streams[1].fd >= 0) {
        struct pollfd fds[3] = {
            {j->streams[0].fd, POLLIN, 0}, {j->streams[1].fd, POLLIN, 0}, {j->signals, POLLIN, 0}};
        (void)poll(fds, 3, j->pending != 0 ? 20 : 500);
        for (int i = 0; i < 2; i++)
            if (fds[i].revents != 0 && j->streams[i].fd >= 0)
                read_stream(&j->streams[i]);
        forward(j);
        if (j->kill_at > 0.0 && now() > j->kill_at) {
            (void)kill(-j->mpirun, SIGTERM);
            (void)kill(-j->mpirun, SIGCONT);
            j->kill_at = now() + KILL_SECONDS;
        }
        end_after_ranks(j);
    }
    while (waitpid(j->mpirun, &status, 0) < 0 && errno == EINTR)
        ;
    j->end->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (j->is_killed && j->end->stopped != 0) /* the ranks had ended as the user asked */
        j->end->code = 128 + j->end->stopped;
    explain(j, status);
}

lathe_status lathe_launch_run(const char *mpirun, int32_t n_ranks, char *const *train,
                              const sigset_t *taken, lathe_launch_end *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **argv = NULL;
    job *const j = calloc(1, sizeof *j);
    *out = (lathe_launch_end){0};
    if (j == NULL)
        return LATHE_E_NOMEM;
    j->end = out;
    j->n_ranks = n_ranks;
    for (int i = 0; i < 2; i++)
        lathe_launch_output_init(&j->streams[i].mpirun);
    lathe_status status = arguments(j, mpirun, train, &arena, &argv);
    if (status == LATHE_OK)
        status = begin(j, argv, taken);
    if (status == LATHE_OK) {
        wait_for(j);
        (void)close(j->signals);
    }
    free(j);
    lathe_arena_fini(&arena);
    return status;
}
