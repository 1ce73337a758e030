/* lathe validate: reports all errors of a run file at once, before anything is started. */
#include <stdio.h>

#include "base/print.h"
#include "cmd/line/refusal.h"
#include "cmd/main/commands.h"
#include "run/open/opening.h"

static const lathe_option options[] = {
    {"--ranks", "N", "check it for N processes: what they would refuse when they have met"},
    {"--offline", NULL, "skip the checks that need this machine (device, memory) or the data"},
    {"--json", NULL, "print one JSON object: valid, errors, warnings, each with its position"},
};

enum { MAX_RANKS = 1 << 20 }; /* more than any cluster has */

static int run(const lathe_args *args)
{
    const char *path = args->words[0];
    lathe_diags diags = {0};
    int64_t n_ranks = 1;
    if (lathe_args_int(args, "--ranks", 1, MAX_RANKS, 1, &n_ranks) != LATHE_OK)
        return lathe_args_fail(args, LATHE_E_ARG);
    const lathe_status status = lathe_run_check(
        &(lathe_run_source){path, &args->edits, NULL},
        lathe_args_value(args, "--offline") ? LATHE_OPEN_CHECK_ELSEWHERE : LATHE_OPEN_CHECK,
        (int32_t)n_ranks, NULL, &diags, NULL);
    const int as_json = lathe_args_value(args, "--json") != NULL;
    const int code = as_json ? lathe_cli_tell_refusal_json(args, &diags, status)
                             : lathe_cli_tell_refusal(args, &diags, status);
    if (code == LATHE_EXIT_OK && !as_json)
        lathe_print("%s: valid\n", path);
    lathe_diags_fini(&diags);
    return code;
}

const lathe_command lathe_cmd_validate = {
    .name = "validate",
    .arguments = "RUN.toml",
    .summary = "check a run file: print all errors at once, each with its position",
    .details = "Exit 0: lathe train would start. Exit 2: it would not; stderr has one line per\n"
               "error: file:line:column, what was found, what was expected. Does everything\n"
               "that lathe train does before it allocates memory: it reads the headers of the\n"
               "model's files, opens the device, makes the plan, and tokenises the data into\n"
               "data.cache_dir, where training uses them. With --offline it reads neither data\n"
               "nor weights and opens no device; use this for a file that will run on another\n"
               "machine: files that are not here are warnings, and checked there.\n"
               "With --ranks N it checks the file for N ranks, not for one: it refuses a number "
               "that shard_ranks or\n"
               "diloco_islands do not divide, fewer rows than ranks, stages and settings that\n"
               "several ranks cannot do, and a plan of rank 0 that does not fit.",
    .min_words = 1,
    .max_words = 1,
    .computes = 1,
    .takes_overrides = 1,
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .run = run,
};
