/* lathe checkpoint verify: every byte of checkpoints against their manifests. */
#include <stdio.h>

#include "app/commands.h"
#include "base/error.h"
#include "io/manifest.h"
#include "run/checkpoint_finite.h"
#include "run/checkpoint_info.h"

static void report(void *arg, const char *message)
{
    int64_t *n = arg;
    (*n)++;
    (void)printf("damaged  %s\n", message);
}

static void report_not_finite(void *arg, const lathe_not_finite *f)
{
    (void)arg;
    (void)printf("not finite  %s: '%s' holds %lld of %lld values that are not finite, the first %g "
                 "at %lld\n",
                 f->file, f->tensor, (long long)f->n_bad, (long long)f->n, f->value,
                 (long long)f->first);
}

/* 1: every byte is as the manifest says, and every number is finite. */
static int is_whole(const char *path, int64_t *out_bytes)
{
    int64_t n_files = 0;
    if (lathe_manifest_survey(path, 1, report, &n_files, out_bytes) != LATHE_OK)
        return 0;
    const lathe_status status = lathe_checkpoint_finite(path, report_not_finite, NULL);
    if (status != LATHE_OK && status != LATHE_E_NUMERIC)
        (void)printf("damaged  %s\n", lathe_error_message());
    return status == LATHE_OK;
}

static int run(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0, n_damaged = 0;
    const lathe_status status = lathe_checkpoint_entries(args->words[0], &arena, &list, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        int64_t bytes = 0;
        if (is_whole(list[i].path, &bytes))
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
    .summary = "check every byte of checkpoints by their SHA-256, and every number for NaN",
    .details =
        "DIR is a checkpoint, or a run's folder for all of its own. One line for each whole\n"
        "checkpoint, one for each damaged file, and one for each tensor of weights, averages or\n"
        "optimizer state that holds NaN or infinity. Exit 0: all are whole and finite. Exit 1:\n"
        "some are not.\n",
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
