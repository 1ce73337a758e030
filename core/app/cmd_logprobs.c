/* lathe logprobs: stores a teacher's most likely tokens at each target of a run's data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/commands.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/print.h"
#include "data/logprob_file.h"
#include "opening/opening.h"
#include "primitives/stored_logprobs.h"

static const lathe_option options[] = {
    {"-o, --output", "DIR", "folder for the log-probabilities: new, or begun by an earlier call"},
    {"--top-k", "N", "number of tokens to store per target (default 32)"},
    {"--temperature", "T", "divides the teacher's logits (default 1)"},
    {"--precision", "P", "fp32 or fp16: number format of stored log-probabilities (default fp32)"},
    {"--json", NULL, "print one JSON object"},
};

/* ---- progress ---- */

typedef struct shown {
    double begun, last; /* lathe_now() at the start, and at the last line */
} shown;

/* Logs a line every ten seconds at most. The estimate assumes that examples take equal times. */
static void show(void *arg, int64_t n_done, int64_t n_all)
{
    shown *s = arg;
    const double now = lathe_now();
    if (now - s->last < 10.0 || n_done == 0)
        return;
    s->last = now;
    lathe_log(LATHE_LOG_INFO, "%lld of %lld examples; %.0f seconds are left", (long long)n_done,
              (long long)n_all, (now - s->begun) * (double)(n_all - n_done) / (double)n_done);
}

/* ---- the command ---- */

static lathe_status check_precision(const lathe_args *args, int32_t *out_is_f16)
{
    const char *name = lathe_args_value(args, "--precision");
    *out_is_f16 = name && strcmp(name, "fp16") == 0;
    if (name && !*out_is_f16 && strcmp(name, "fp32") != 0)
        return lathe_error(LATHE_E_ARG, "--precision is %s; expected fp32 or fp16", name);
    return LATHE_OK;
}

/* The commonest confusions: a teacher's folder in place of the learner's run file, and the key that
 * reads what this command writes. */
static lathe_status check_words(const lathe_args *args)
{
    if (!lathe_args_value(args, "--output"))
        return lathe_error(LATHE_E_ARG, "--output DIR is missing: the folder for the "
                                        "log-probabilities");
    if (lathe_path_is_dir(args->words[0]))
        return lathe_error(LATHE_E_ARG,
                           "%s is a folder; expected the run file of the model that will learn; "
                           "--teacher.path DIR names the teacher",
                           args->words[0]);
    if (lathe_args_override(args, "teacher.stored"))
        return lathe_error(LATHE_E_ARG, "--teacher.stored has no effect here: --output names the "
                                        "folder to write");
    return LATHE_OK;
}

/* Opens the run with teacher.stored = "": the folder that the run file names may be the one that
 * this command is about to write, so it must not be read. */
static lathe_status open_run(const lathe_args *args, int32_t top_k, double temperature,
                             lathe_run **out)
{
    lathe_override *list = calloc((size_t)args->n_overrides + 1, sizeof *list);
    if (!list)
        return lathe_error(LATHE_E_NOMEM, "no memory for the settings");
    for (int32_t i = 0; i < args->n_overrides; i++)
        list[i] = args->overrides[i];
    list[args->n_overrides] = (lathe_override){"teacher.stored", ""};
    const lathe_status status = lathe_run_open_logprobs(args->words[0], list, args->n_overrides + 1,
                                                        top_k, temperature, out);
    free(list);
    return status;
}

static void print_result(const lathe_args *args, const lathe_run *run, const lathe_stored *stored)
{
    const char *dir = lathe_args_value(args, "--output");
    lathe_buffer b = LATHE_BUFFER_INIT;
    if (lathe_args_value(args, "--json")) {
        lathe_buffer_puts(&b, "{\"folder\": ");
        lathe_buffer_json_string(&b, dir);
        lathe_buffer_printf(&b,
                            ", \"top_k\": %d, \"examples\": %lld, \"targets\": %lld, \"files\": "
                            "%lld, \"kept_files\": %lld, \"bytes\": %lld}",
                            run->open.top_k, (long long)stored->n_records,
                            (long long)stored->n_targets, (long long)stored->n_files,
                            (long long)stored->n_kept, (long long)stored->bytes);
    } else {
        lathe_buffer_printf(&b,
                            "%s: the %d most likely tokens at %lld targets of %lld examples, "
                            "%.*f MB in %lld file%s",
                            dir, run->open.top_k, (long long)stored->n_targets,
                            (long long)stored->n_records, stored->bytes < 10000000 ? 3 : 0,
                            (double)stored->bytes / 1e6, (long long)stored->n_files,
                            stored->n_files == 1 ? "" : "s");
        if (stored->n_kept > 0)
            lathe_buffer_printf(&b, ", of which %lld were finished before",
                                (long long)stored->n_kept);
        lathe_buffer_printf(&b, "\nset teacher.stored = \"%s\" to learn from it", dir);
    }
    if (b.status == LATHE_OK)
        lathe_print("%s\n", b.data);
    lathe_buffer_fini(&b);
}

static int run_command(const lathe_args *args)
{
    lathe_run *run = NULL;
    lathe_stored stored;
    shown progress = {0.0, 0.0};
    lathe_storing how = {
        .dir = lathe_args_value(args, "--output"), .progress = show, .arg = &progress};
    int64_t top_k = 0;
    double temperature = 1.0;
    lathe_status status = check_words(args);
    if (status == LATHE_OK)
        status = lathe_args_int(args, "--top-k", 1, LATHE_LOGPROB_MOST_K, 32, &top_k);
    if (status == LATHE_OK)
        status = lathe_args_float(args, "--temperature", 1e-3, 1e3, 1.0, &temperature);
    if (status == LATHE_OK)
        status = check_precision(args, &how.is_f16);
    if (status == LATHE_OK)
        status = open_run(args, (int32_t)top_k, temperature, &run);
    progress.begun = progress.last = lathe_now(); /* opening the run may have prepared the data */
    if (status == LATHE_OK)
        status = lathe__logprobs_store(run, &how, &stored);
    if (status == LATHE_OK)
        print_result(args, run, &stored);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_run_close(run);
    return code;
}

const lathe_command lathe_cmd_logprobs = {
    .name = "logprobs",
    .arguments = "RUN.toml -o DIR [--teacher.path DIR]",
    .summary = "store a teacher's most likely tokens, to distill from them without it",
    .details =
        "RUN.toml is the run file of the model that will learn, with a stage that learns from a\n"
        "teacher (distill). Its data are prepared as in training; teacher.path names the teacher,\n"
        "which runs once over all examples of data.datasets and data.validation. At each target\n"
        "its most likely tokens are stored with their log-probabilities, and that of all other\n"
        "tokens together. Training then takes teacher.stored = \"DIR\" instead of teacher.path; "
        "the\n"
        "batch size, the packing and the seed may change, the data and the tokenizer may not.\n"
        "A call that was interrupted goes on when it is repeated.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .computes = 1,
    .takes_overrides = 1,
    .run = run_command,
};
