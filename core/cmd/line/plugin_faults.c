/* Names the plugin whose code ends the process by a signal, or never returns. */
#include "cmd/line/plugin_faults.h"

#include <execinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/print.h"
#include "cmd/line/args.h"
#include "plug/call_watch.h"
#include "plug/code_range.h"
#include "plug/so.h"

enum { MAX_FRAMES = 64, STACK_BYTES = 1 << 16 };

static const int faults[] = {SIGSEGV, SIGILL, SIGFPE, SIGABRT};
enum { N_FAULTS = sizeof faults / sizeof *faults };

/* Appends to text[*n] as far as there is room. No stdio: the line is written in a handler. */
static void add(char *text, size_t bytes, size_t *n, const char *more)
{
    const size_t length = strlen(more), room = bytes - *n;
    memcpy(text + *n, more, length < room ? length : room);
    *n += length < room ? length : room;
}

static const char *name_of(int number)
{
    switch (number) {
    case SIGSEGV:
        return "SIGSEGV, an access to memory that is not there";
    case SIGBUS:
        return "SIGBUS, an access to memory that cannot be read";
    case SIGILL:
        return "SIGILL, an instruction that this processor does not have";
    case SIGFPE:
        return "SIGFPE, a division by zero";
    default:
        return "SIGABRT, abort()";
    }
}

/* backtrace() only reads once it has been called before (lathe_cli_name_faults). */
void lathe_cli_say_signal(int number)
{
    void *frames[MAX_FRAMES];
    char text[1024];
    size_t n = 0;
    const char *who = lathe_so_at_work();
    const int n_frames = who == NULL ? backtrace(frames, MAX_FRAMES) : 0;
    for (int i = 0; i < n_frames && who == NULL; i++)
        who = lathe_code_range_find(frames[i]);
    add(text, sizeof text, &n, "lathe: ");
    add(text, sizeof text, &n, who != NULL ? "the plugin " : "the process");
    add(text, sizeof text, &n, who != NULL ? who : "");
    add(text, sizeof text, &n, " ends by ");
    add(text, sizeof text, &n, name_of(number));
    add(text, sizeof text, &n,
        who != NULL ? "; `lathe plugin check` with this file looks for such faults\n"
                    : "; no plugin's code was running\n");
    if (write(STDERR_FILENO, text, n) < 0)
        return; /* nobody reads it */
}

/* The handler is gone while it runs (SA_RESETHAND): the instruction, or abort(), raises the signal
 * again, which then ends the process. */
static void on_fault(int number)
{
    lathe_cli_say_signal(number);
    (void)raise(number);
}

/* On the watch's thread. The thread that waits cannot be brought back. */
static void on_hang(const char *path, const char *function, double seconds)
{
    lathe_print_to(stderr,
                   "lathe: the plugin %s: %s has not returned for %.0f s; the command ends\n", path,
                   function, seconds);
    (void)fflush(stderr);
    _exit(LATHE_EXIT_FAILED);
}

void lathe_cli_name_faults(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they have their own report  \
                                                                     */
    static char stack[STACK_BYTES]; /* for a stack that has no room left */
    void *frame[1];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action;
    (void)backtrace(frame, 1); /* its first call loads a library */
    (void)sigaltstack(&other, NULL);
    memset(&action, 0, sizeof action);
    action.sa_handler = on_fault;
    action.sa_flags = (int)(SA_RESETHAND | SA_ONSTACK);
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_FAULTS; i++)
        (void)sigaction(faults[i], &action, NULL);
#endif
    /* A watched call takes milliseconds, on a slow disk or network seconds. */
    const char *given = getenv("LATHE_PLUGIN_SECONDS");
    const double seconds = given != NULL ? strtod(given, NULL) : 0.0;
    lathe_call_watch(on_hang, seconds >= 1.0 ? seconds : 120.0);
}

void lathe_cli_leave_faults(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    for (size_t i = 0; i < N_FAULTS; i++)
        (void)signal(faults[i], SIG_DFL);
#endif
}
