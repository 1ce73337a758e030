/* lathe checkpoint verify: compares every byte of checkpoints with their manifests. */
#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/print.h"
#include "checkpoint/state/checkpoint_info.h"
#include "cmd/saved/saved_commands.h"
#include "files/safetensors/folder_finite.h"
#include "files/safetensors/manifest.h"

/* Findings about one checkpoint. */
typedef struct findings {
    json_t *damaged, *not_finite; /* texts; objects */
    int64_t bytes;
    int whole;   /* 1: every byte and every number is as it should be */
    int is_gone; /* 1: it was removed while it was read */
} findings;

static void report(void *arg, const char *message)
{
    const findings *f = arg;
    (void)json_array_append_new(f->damaged, json_string(message));
}

static void report_not_finite(void *arg, const lathe_not_finite *x)
{
    const findings *f = arg;
    char value[32];
    (void)snprintf(value, sizeof value, "%g", x->value);
    (void)json_array_append_new(
        f->not_finite, json_pack("{s:s, s:s, s:I, s:I, s:I, s:s}", "file", x->file, "tensor",
                                 x->tensor, "count", (json_int_t)x->n_bad, "of", (json_int_t)x->n,
                                 "first", (json_int_t)x->first, "value", value));
}

/* Whether every byte agrees with the manifest and every number is finite. A checkpoint of a run
 * that diverged has the right bytes and is useless all the same. */
static int is_whole(const char *path, findings *f)
{
    if (lathe_manifest_survey(path, 1, report, f, &f->bytes) != LATHE_OK)
        return 0;
    const lathe_status status = lathe_folder_finite(path, report_not_finite, f);
    if (status != LATHE_OK && status != LATHE_E_NUMERIC)
        report(f, lathe_error_message());
    return status == LATHE_OK;
}

/* Whether `path` is another folder than `before`, or none: a run that trains removes old
 * checkpoints (checkpoint.keep_last), and writes one again after it went back. */
static int is_other(const char *path, const struct stat *before)
{
    struct stat now;
    return stat(path, &now) != 0 || now.st_ino != before->st_ino || now.st_dev != before->st_dev;
}

enum { MAX_TRIES = 3 }; /* of a checkpoint that is replaced while it is read */

/* Reads a checkpoint. A training run may remove or replace it meanwhile: its files are then missing
 * or mixed, which is no damage. So a failure counts only if the folder is still the same one. */
static void examine(const char *path, findings *f)
{
    for (int i = 0; i < MAX_TRIES; i++) {
        struct stat before;
        json_decref(f->damaged);
        json_decref(f->not_finite);
        *f = (findings){.damaged = json_array(), .not_finite = json_array()};
        f->is_gone = stat(path, &before) != 0;
        f->whole = !f->is_gone && is_whole(path, f);
        if (f->is_gone || f->whole || !is_other(path, &before))
            return;
        f->is_gone = stat(path, &before) != 0;
        if (f->is_gone)
            return;
    }
}

static void print_not_finite(const json_t *one)
{
    lathe_print("not finite  %s: '%s' holds %lld of %lld values that are not finite, the first %s "
                "at %lld\n",
                json_string_value(json_object_get(one, "file")),
                json_string_value(json_object_get(one, "tensor")),
                (long long)json_integer_value(json_object_get(one, "count")),
                (long long)json_integer_value(json_object_get(one, "of")),
                json_string_value(json_object_get(one, "value")),
                (long long)json_integer_value(json_object_get(one, "first")));
}

static void print_one(const char *path, const findings *f)
{
    size_t i;
    json_t *one;
    if (f->is_gone)
        lathe_print("removed  %s  while it was read\n", path);
    else if (f->whole)
        lathe_print("whole    %s  %lld bytes\n", path, (long long)f->bytes);
    else {
        json_array_foreach(f->damaged, i, one)(void)
            lathe_print("damaged  %s\n", json_string_value(one));
        json_array_foreach(f->not_finite, i, one) print_not_finite(one);
    }
    (void)fflush(stdout); /* reading the next one may take minutes */
}

static void describe_one(const char *path, const findings *f, json_t *list)
{
    (void)json_array_append_new(list, json_pack("{s:s, s:b, s:b, s:I, s:O, s:O}", "path", path,
                                                "whole", f->whole, "removed", f->is_gone, "bytes",
                                                (json_int_t)f->bytes, "damaged", f->damaged,
                                                "not_finite", f->not_finite));
}

static int run(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0, n_damaged = 0;
    json_t *all = lathe_args_value(args, "--json") ? json_array() : NULL;
    const lathe_status status = lathe_checkpoint_entries(args->words[0], &arena, &list, &n);
    findings f = {.damaged = NULL};
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        examine(list[i].path, &f);
        n_damaged += !f.whole && !f.is_gone;
        if (all)
            describe_one(list[i].path, &f, all);
        else
            print_one(list[i].path, &f);
    }
    json_decref(f.damaged);
    json_decref(f.not_finite);
    if (all && status == LATHE_OK) {
        lathe_print_json(stdout, all, JSON_INDENT(2));
    }
    json_decref(all);
    const int code = status != LATHE_OK ? lathe_args_fail(args, status)
                     : n_damaged > 0    ? LATHE_EXIT_FAILED
                                        : LATHE_EXIT_OK;
    lathe_arena_fini(&arena);
    return code;
}

static const lathe_option options[] = {
    {"--json", NULL, "print an array of objects: path, whole, removed, bytes, damaged, not_finite"},
};

const lathe_command lathe_cmd_checkpoint_verify = {
    .name = "checkpoint verify",
    .arguments = "DIR|RUN.toml",
    .summary = "check every byte of checkpoints by SHA-256, and every number for NaN",
    .details = "DIR is a checkpoint, or the folder of a run (or its run file) for all its\n"
               "checkpoints. Prints one line for each undamaged checkpoint, for each damaged file, "
               "and for each\n"
               "tensor of weights, averages or optimizer state that contains NaN or infinity.\n"
               "A checkpoint that a run removes meanwhile is no damage.\n"
               "Exit 0: all checkpoints are undamaged and finite. Exit 1: some are not.\n",
    .options = options,
    .n_options = 1,
    .min_words = 1,
    .max_words = 1,
    .names_runs = 1,
    .names_models = 1,
    .run = run,
};
