/* lathe logprobs: stores a teacher's most likely tokens at each target of a run's data. */
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/print.h"
#include "cmd/main/commands.h"
#include "data/rows/logprob_file.h"
#include "exec/program/exec.h"
#include "jobs/job.h"

static const lathe_option options[] = {
    {"-o, --output", "DIR", "folder for the log-probabilities: new, or begun by an earlier call"},
    {"--top-k", "N", "number of tokens to store per target (default 32)"},
    {"--temperature", "T", "divides the teacher's logits (default 1)"},
    {"--precision", "P", "fp32 or fp16: number format of stored log-probabilities (default fp32)"},
    {"--json", NULL, "print one JSON object"},
};

/* ---- progress ---- */

typedef struct shown {
    double begun, last; /* lathe_now() at the first record, and at the last line */
} shown;

/* lathe_job_progress_fn: logs a line every ten seconds at most. The estimate assumes that examples
 * take equal times. */
static int32_t show(void *arg, const lathe_job_progress *p)
{
    shown *s = arg;
    const double now = lathe_now();
    if (s->begun <= 0.0)
        s->begun = s->last = now;
    if (now - s->last < 10.0 || p->n_done == 0)
        return 0;
    s->last = now;
    lathe_log(LATHE_LOG_INFO, "%lld of %lld examples; %.0f seconds are left", (long long)p->n_done,
              (long long)p->n_all,
              (now - s->begun) * (double)(p->n_all - p->n_done) / (double)p->n_done);
    return 0;
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

static void print_result(const lathe_args *args, const lathe_job_logprobs_result *stored)
{
    const char *dir = lathe_args_value(args, "--output");
    lathe_buffer b = LATHE_BUFFER_INIT;
    if (lathe_args_value(args, "--json")) {
        lathe_buffer_puts(&b, "{\"folder\": ");
        lathe_buffer_json_string(&b, dir);
        lathe_buffer_printf(&b,
                            ", \"top_k\": %d, \"examples\": %lld, \"targets\": %lld, \"files\": "
                            "%lld, \"kept_files\": %lld, \"bytes\": %lld}",
                            stored->top_k, (long long)stored->n_records,
                            (long long)stored->n_targets, (long long)stored->n_files,
                            (long long)stored->n_kept, (long long)stored->bytes);
    } else {
        lathe_buffer_printf(&b,
                            "%s: the %d most likely tokens at %lld targets of %lld examples, "
                            "%.*f MB in %lld file%s",
                            dir, stored->top_k, (long long)stored->n_targets,
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
    shown progress = {0.0, 0.0};
    int64_t top_k = 0;
    const lathe_job_caller caller = {&args->edits, "--"};
    lathe_job_logprobs_result stored = {.size = (uint32_t)sizeof stored};
    lathe_job_logprobs_config config = {.size = (uint32_t)sizeof config,
                                        .run_file = args->words[0],
                                        .output = lathe_args_value(args, "--output"),
                                        .progress = show,
                                        .arg = &progress};
    lathe_status status = lathe_args_int(args, "--top-k", 1, LATHE_LOGPROB_MOST_K, 0, &top_k);
    if (status != LATHE_OK)
        goto out;
    config.top_k = (int32_t)top_k;
    status = lathe_args_float(args, "--temperature", 1e-3, 1e3, 1.0, &config.temperature);
    if (status != LATHE_OK)
        goto out;
    if ((status = check_precision(args, &config.is_f16)) != LATHE_OK)
        goto out;
    if ((status = lathe__job_logprobs(&config, &caller, &stored)) != LATHE_OK)
        goto out;
    print_result(args, &stored);
out:
    return status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
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
