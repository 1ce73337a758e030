/* Handles SIGBUS. */
#include "cmd/line/bus_error.h"

#include <signal.h>
#include <string.h>

#include "base/map.h"
#include "cmd/line/plugin_faults.h"

/* Runs on the thread that accessed the page; after it returns, the instruction runs again. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (lathe_map_fault(info->si_addr))
        return;
    lathe_cli_say_signal(number);
    struct sigaction none;
    memset(&none, 0, sizeof none);
    none.sa_handler = SIG_DFL;
    (void)sigaction(number, &none,
                    NULL); /* the instruction raises the signal again, which ends the process */
}

void lathe_cli_take_bus_errors(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, NULL);
}
