/* lathe checkpoint verify: every byte of checkpoints against their manifests. */
#include <stdio.h>

#include "app/commands.h"
#include "base/error.h"
#include "io/manifest.h"
#include "run/checkpoint_info.h"

static void report(void *arg, const char *message)
{
    int64_t *n = arg;
    (*n)++;
    (void)printf("damaged  %s\n", message);
}

static int run(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0, n_damaged = 0;
    const lathe_status status = lathe_checkpoint_entries(args->words[0], &arena, &list, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        int64_t bytes = 0, n_files = 0;
        if (lathe_manifest_survey(list[i].path, 1, report, &n_files, &bytes) == LATHE_OK)
            (void)printf("whole    %s  %lld bytes\n", list[i].path, (long long)bytes);
        else
            n_damaged++;
        (void)fflush(stdout);
    }
    const int code = status != LATHE_OK ? lathe_args_fail(args, status)
                     : n_damaged > 0    ? LATHE_EXIT_FAILED
                                        : LATHE_EXIT_OK;
    lathe_arena_fini(&arena);
    return code;
}

const lathe_command lathe_cmd_checkpoint_verify = {
    .name = "checkpoint verify",
    .arguments = "DIR",
    .summary = "check every byte of checkpoints by their SHA-256",
    .details =
        "DIR is a checkpoint, or a run's folder for all of its own. One line for each whole\n"
        "checkpoint, one for each damaged file. Exit 0: all are whole. Exit 1: some are not.\n",
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
