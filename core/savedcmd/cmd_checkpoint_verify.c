/* lathe checkpoint verify: compares every byte of checkpoints with their manifests. */
#include <jansson.h>
#include <stdio.h>

#include "base/error.h"
#include "checkpoint/checkpoint_info.h"
#include "io/folder_finite.h"
#include "io/manifest.h"
#include "savedcmd/saved_commands.h"

/* The findings about one checkpoint: printed at once, or kept for the JSON object. */
typedef struct findings {
    json_t *damaged, *not_finite; /* NULL: print */
} findings;

static void report(void *arg, const char *message)
{
    const findings *f = arg;
    if (f->damaged)
        (void)json_array_append_new(f->damaged, json_string(message));
    else
        (void)printf("damaged  %s\n", message);
}

static void report_not_finite(void *arg, const lathe_not_finite *x)
{
    const findings *f = arg;
    if (f->not_finite) {
        json_t *one =
            json_pack("{s:s, s:s, s:I, s:I, s:I}", "file", x->file, "tensor", x->tensor, "count",
                      (json_int_t)x->n_bad, "of", (json_int_t)x->n, "first", (json_int_t)x->first);
        (void)json_array_append_new(f->not_finite, one);
        return;
    }
    (void)printf("not finite  %s: '%s' holds %lld of %lld values that are not finite, the first %g "
                 "at %lld\n",
                 x->file, x->tensor, (long long)x->n_bad, (long long)x->n, x->value,
                 (long long)x->first);
}

/* Returns 1 if every byte agrees with the manifest and every number is finite. */
static int is_whole(const char *path, findings *f, int64_t *out_bytes)
{
    if (lathe_manifest_survey(path, 1, report, f, out_bytes) != LATHE_OK)
        return 0;
    const lathe_status status = lathe_folder_finite(path, report_not_finite, f);
    if (status != LATHE_OK && status != LATHE_E_NUMERIC)
        report(f, lathe_error_message());
    return status == LATHE_OK;
}

static void print_one(const lathe_checkpoint_entry *entry, int64_t *n_damaged)
{
    findings f = {NULL, NULL};
    int64_t bytes = 0;
    if (is_whole(entry->path, &f, &bytes))
        (void)printf("whole    %s  %lld bytes\n", entry->path, (long long)bytes);
    else
        ++*n_damaged;
    (void)fflush(stdout);
}

static void describe_one(const lathe_checkpoint_entry *entry, json_t *list, int64_t *n_damaged)
{
    findings f = {json_array(), json_array()};
    int64_t bytes = 0;
    const int whole = is_whole(entry->path, &f, &bytes);
    *n_damaged += !whole;
    (void)json_array_append_new(list, json_pack("{s:s, s:b, s:I, s:o, s:o}", "path", entry->path,
                                                "whole", whole, "bytes", (json_int_t)bytes,
                                                "damaged", f.damaged, "not_finite", f.not_finite));
}

static int run(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0, n_damaged = 0;
    json_t *all = lathe_args_value(args, "--json") ? json_array() : NULL;
    const lathe_status status = lathe_checkpoint_entries(args->words[0], &arena, &list, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++)
        (void)(all ? describe_one(&list[i], all, &n_damaged) : print_one(&list[i], &n_damaged));
    if (all && status == LATHE_OK) {
        (void)json_dumpf(all, stdout, JSON_INDENT(2));
        (void)putchar('\n');
    }
    json_decref(all);
    const int code = status != LATHE_OK ? lathe_args_fail(args, status)
                     : n_damaged > 0    ? LATHE_EXIT_FAILED
                                        : LATHE_EXIT_OK;
    lathe_arena_fini(&arena);
    return code;
}

static const lathe_option options[] = {
    {"--json", NULL, "print an array of objects: path, whole, bytes, damaged, not_finite"},
};

const lathe_command lathe_cmd_checkpoint_verify = {
    .name = "checkpoint verify",
    .arguments = "DIR",
    .summary = "check every byte of checkpoints by SHA-256, and every number for NaN",
    .details = "DIR is a checkpoint, or the folder of a run for all its checkpoints. Prints\n"
               "one line for each undamaged checkpoint, for each damaged file, and for each\n"
               "tensor of weights, averages or optimizer state that contains NaN or infinity.\n"
               "Exit 0: all checkpoints are undamaged and finite. Exit 1: some are not.\n",
    .options = options,
    .n_options = 1,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
