/* Starts a command with a signal that is pending before its first instruction: what a user's Ctrl-C
 * in the middle does is then seen whatever the machine's speed. */
#ifndef LATHE_TEST_CLI_PENDING_SIGNAL_H
#define LATHE_TEST_CLI_PENDING_SIGNAL_H

#include <signal.h>

#include "cli/cli_case.h"

/* Runs `exec COMMAND` in a shell; its output is stored in `output`. Checks that the signal ends it.
 */
static void run_with_pending(int number, const char *command)
{
    char line[1024];
    sigset_t set;
    int ends[2], status = 0;
    size_t n = 0;
    (void)snprintf(line, sizeof line, "exec %s", command);
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        (void)signal(number, SIG_DFL);
        (void)sigemptyset(&set);
        (void)sigaddset(&set, number);
        (void)sigprocmask(SIG_BLOCK, &set, NULL);
        (void)dup2(ends[1], 1);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)kill(getpid(), number);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    for (ssize_t got; (got = read(ends[0], output + n, sizeof output - 1 - n)) > 0;)
        n += (size_t)got;
    output[n] = '\0';
    (void)close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == number, "%s: status %d: %s", command,
              status, output);
}

#endif
