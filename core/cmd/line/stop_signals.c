/* Runs a thread that waits for Ctrl-C, SIGTERM and SIGHUP during training. */
#include "cmd/line/stop_signals.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "parallel/ranks/failure_report.h"
#include "parallel/ranks/first_rank.h"

/* SIGHUP was ignored when the command started, as by `nohup lathe train ...`: the run shall
 * continue after its terminal is closed. */
static int ignores_hangup;

static sigset_t stop_set(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    if (!ignores_hangup)
        (void)sigaddset(&set, SIGHUP);
    return set;
}

static void print_note(const char *note)
{
    if (write(STDERR_FILENO, note, strlen(note)) < 0)
        return; /* standard error is closed */
}

/* timeout(1) and batch systems send a signal to the process and then to its group; two signals
 * within this time count as one. */
#define ONE_SIGNAL_SECONDS 0.25

/* Time for a rank to notice in its computation that another one has ended. Meanwhile the launcher
 * is held: it waits with ending the other processes until the rank has written its checkpoint. */
#define MAX_HELD_SECONDS 60.0

/* Time for a rank that has nothing to save and only prints which steps are lost. */
#define MAX_REPORT_SECONDS 5.0

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Whether this rank still has to write a checkpoint, or to print that there is none. */
static int has_to_end(const lathe_cli_stop *stop)
{
    if (stop->hold == NULL || stop->saves == LATHE_SAVES_NEVER)
        return 0;
    if (stop->saves == LATHE_SAVES_AS_HEIR)
        return lathe_first_rank_is_lost();
    return stop->saves != LATHE_SAVES_NOTHING || !lathe_ranks_have_said_why();
}

/* Ends this rank if it has not noticed in time that another one ended. The launcher stays held if
 * another rank may be writing; it continues by itself when no rank is left. */
static void give_up(const lathe_cli_stop *stop, double held_since)
{
    const double limit = stop->saves == LATHE_SAVES_NOTHING ? MAX_REPORT_SECONDS : MAX_HELD_SECONDS;
    if (stop->saves == LATHE_SAVES_NOW || seconds_now() - held_since < limit)
        return;
    if (stop->saves == LATHE_SAVES_SOON)
        stop->hold(0);
    _exit(128 + SIGTERM);
}

static void *wait_for_signals(void *arg)
{
    double first = 0.0, held_since = 0.0; /* 0: the launcher is not held */
    const struct timespec moment = {1, 0};
    lathe_cli_stop *stop = arg;
    const sigset_t set = stop_set();
    for (;;) {
        siginfo_t info;
        const int number =
            held_since > 0.0 ? sigtimedwait(&set, &info, &moment) : sigwaitinfo(&set, &info);
        if (number < 0 && held_since > 0.0)
            give_up(stop, held_since);
        if (number < 0)
            continue;
        if (stop->is_told != NULL && stop->is_told((int32_t)info.si_pid)) {
            if (!has_to_end(stop))
                _exit(128 + number);
            stop->hold(1);
            held_since = seconds_now();
            continue;
        }
        if (stop->seen != 0 && number == SIGHUP)
            continue; /* a lost connection sends it twice, by the terminal and by the shell */
        if (stop->seen == number && seconds_now() - first < ONE_SIGNAL_SECONDS)
            continue;
        if (stop->seen != 0)
            _exit(128 + number);
        if (!stop->steps) { /* safe like a power cut: a file that is not complete is made again */
            print_note("\nlathe: stopped before the first step; nothing was trained; data that are "
                       "already prepared are kept\n");
            _exit(128 + number);
        }
        stop->seen = number;
        first = seconds_now();
        print_note(
            "\nlathe: finishing the micro-batch and writing a checkpoint; once more to stop at "
            "once\n");
    }
    return NULL;
}

lathe_status lathe_cli_take_stop_signals(lathe_cli_stop *stop)
{
    pthread_t thread;
    pthread_attr_t attr;
    struct sigaction ignore;
    memset(&ignore, 0, sizeof ignore);
    ignore.sa_handler =
        SIG_IGN; /* `lathe train ... | head`: the run continues after its reader has ended */
    (void)sigaction(SIGPIPE, &ignore, NULL);
    struct sigaction hangup;
    ignores_hangup = sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
    const sigset_t set = stop_set();
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    const int failed = pthread_create(&thread, &attr, wait_for_signals, stop);
    (void)pthread_attr_destroy(&attr);
    if (failed != 0)
        return lathe_error(LATHE_E_NOMEM, "no thread to wait for Ctrl-C: %s", strerror(failed));
    return LATHE_OK;
}
