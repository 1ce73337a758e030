/* lathe: finds the command, reads its arguments, runs it.
 *
 * Exit codes: 0 done, 1 failed at run time, 2 wrong usage or configuration; 129, 130 and 143: a
 * training was ended by SIGHUP, SIGINT or SIGTERM, and wrote a checkpoint if it had begun.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "base/print.h"
#include "cmd/line/bus_error.h"
#include "cmd/line/complete.h"
#include "cmd/line/exit_guard.h"
#include "cmd/line/patience.h"
#include "cmd/line/plugin_faults.h"
#include "cmd/line/rank_failure.h"
#include "cmd/main/commands.h"

extern const char *lathe_version(void);

/* Reports output that could not be written: the disk is full, for example. */
static int finish_output(int code)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    lathe_print_to(stderr, "lathe: cannot write to standard output%s%s\n", errno ? ": " : "",
                   errno ? strerror(errno) : "");
    return code == LATHE_EXIT_OK ? LATHE_EXIT_FAILED : code;
}

static int run(const lathe_command *command, int argc, char **argv)
{
    lathe_args args;
    int code;
    const lathe_status status = lathe_args_parse(&args, command, argc, argv);
    if (status != LATHE_OK && lathe_cli_is_rank()) {
        char text[1024];
        (void)snprintf(text, sizeof text, "lathe %s: %s", command->name, lathe_error_message());
        code = lathe_cli_fail_ranks(text, status, lathe_args_code);
    } else if (status != LATHE_OK) {
        code = lathe_args_fail(&args, status);
        lathe_print_to(stderr, "try `lathe help %s`\n", command->name);
    } else if (args.wants_help) {
        lathe_args_help(command);
        code = LATHE_EXIT_OK;
    } else {
        code = command->run(&args);
    }
    lathe_args_fini(&args);
    /* a mapped file that became shorter while it was read: the result is not to be trusted */
    if (code == LATHE_EXIT_OK && lathe_maps_check() != LATHE_OK) {
        lathe_print_to(stderr, "lathe %s: %s\n", command->name, lathe_error_message());
        code = LATHE_EXIT_FAILED;
    }
    return command->prints_progress ? code : finish_output(code);
}

static int dispatch(int argc, char **argv)
{
    int n_words = 0;
    lathe_cli_take_bus_errors();
    if (argc < 2) {
        lathe_commands_help(&lathe_app_commands, stderr);
        return LATHE_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        lathe_commands_help(&lathe_app_commands, stdout);
        return finish_output(LATHE_EXIT_OK);
    }
    if (strcmp(argv[1], "--version") == 0) {
        lathe_print("lathe %s\n", lathe_version());
        return finish_output(LATHE_EXIT_OK);
    }
    if (strcmp(argv[1], "--complete") ==
        0) /* called by the scripts for shells (cmd_completion.c) */
        return lathe_complete(&lathe_app_commands, argc - 2, argv + 2) == LATHE_OK
                   ? LATHE_EXIT_OK
                   : LATHE_EXIT_FAILED;
    const lathe_command *command =
        lathe_command_match(&lathe_app_commands, argc - 1, argv + 1, &n_words);
    if (command == NULL)
        return lathe_command_unknown(&lathe_app_commands, argc - 1, argv + 1);
    if (command->computes) /* threads that wait then leave the processor to others */
        lathe_cli_wait_patiently(argv);
    return run(command, argc - 1 - n_words, argv + 1 + n_words);
}

int main(int argc, char **argv)
{
    /* Beyond the file size of `ulimit -f`, a write then fails instead of ending the process. */
    (void)signal(SIGXFSZ, SIG_IGN);
    lathe_cli_guard_exit(); /* a plugin that calls exit() is reported */
    lathe_cli_name_faults();
    const int code = dispatch(argc, argv);
    lathe_cli_unguard_exit();
    return code;
}
