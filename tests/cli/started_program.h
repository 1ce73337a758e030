/* A program that runs beside the test: starts it, waits for what it does, takes its exit code. On a
 * busy machine a step of a tiny model can take seconds: a wait ends early only with the program. */
#ifndef LATHE_TEST_CLI_STARTED_PROGRAM_H
#define LATHE_TEST_CLI_STARTED_PROGRAM_H

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <time.h>

#include "cli/cli_case.h"

/* The longest wait, in seconds. Tests that wait have a .timeout above it. */
enum { LONGEST_WAIT = 100 };

__attribute__((unused)) static void rest_ms(int ms)
{
    const struct timespec some = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)nanosleep(&some, NULL);
}

/* Starts argv[0] with its output in the file `log`. It is killed when the test ends. */
static pid_t start_program(const char *log, const char *const *argv)
{
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
            _exit(126);
        (void)execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return child;
}

/* Runs the shell command until it succeeds. Fails when the program ends first. */
__attribute__((unused)) static void wait_until(pid_t child, const char *command)
{
    struct timespec now, start;
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    while (run(command) != 0) {
        siginfo_t info = {0};
        const int ended =
            waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
        if (ended && run(command) == 0)
            return;
        cr_assert_not(ended, "%s: not before the program ended (status %d)", command,
                      info.si_status);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        cr_assert_lt(now.tv_sec - start.tv_sec, LONGEST_WAIT, "%s: not within %d s", command,
                     LONGEST_WAIT);
        rest_ms(10);
    }
}

static int exit_code(pid_t child)
{
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

#endif
