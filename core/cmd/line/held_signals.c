/* Holds signals back while a command writes a model. */
#include "cmd/line/held_signals.h"

#include <signal.h>
#include <stdio.h>

static const int held[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_HELD = sizeof held / sizeof held[0] };

static void set_mask(int how)
{
    sigset_t set;
    (void)sigemptyset(&set);
    for (int i = 0; i < N_HELD; i++)
        (void)sigaddset(&set, held[i]);
    (void)pthread_sigmask(how, &set, NULL);
}

void lathe_cli_hold_signals(void)
{
    set_mask(SIG_BLOCK);
}

void lathe_cli_release_signals(void)
{
    (void)fflush(stdout); /* a pending signal ends the process here */
    set_mask(SIG_UNBLOCK);
}

void lathe_cli_end_signals(int32_t is_complete)
{
    for (int i = 0; is_complete && i < N_HELD; i++) {
        struct sigaction before;
        const struct sigaction ignore = {.sa_handler = SIG_IGN}; /* discards a pending one */
        if (sigaction(held[i], &ignore, &before) == 0)
            (void)sigaction(held[i], &before, NULL);
    }
    lathe_cli_release_signals();
}

int32_t lathe_cli_is_signalled(void)
{
    sigset_t pending;
    (void)sigemptyset(&pending);
    if (sigpending(&pending) != 0)
        return 0;
    for (int i = 0; i < N_HELD; i++)
        if (sigismember(&pending, held[i]) == 1)
            return 1;
    return 0;
}
