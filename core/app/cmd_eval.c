/* lathe eval: the loss of a model on texts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "app/commands.h"
#include "app/model_dir.h"
#include "app/trace_option.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "run/train.h"

static const lathe_option options[] = {
    {"--data", "PATH", "text file, JSONL file or folder to evaluate on"},
    {"--batches", "N", "at most so many micro-batches (default 0: all)"},
    {"--json", NULL, "one JSON object"},
    LATHE_WEIGHTS_OPTION,
    LATHE_TRACE_OPTIONS("operations and data", "batches"),
};

static void print(const lathe_evaluation *e, int json)
{
    const char *const keys[] = {"token_accuracy", "bits_per_byte", "ece"};
    const char *const names[] = {"token accuracy", "bits per byte", "calibration error"};
    const double values[] = {e->token_accuracy, e->bits_per_byte, e->ece};
    (void)printf(json ? "{\"loss\": %.9g, \"perplexity\": %.9g, \"count\": %.0f"
                      : "loss %.4f  perplexity %.3f  over %.0f targets",
                 e->loss, e->perplexity, e->count);
    for (int i = 0; i < 3; i++) {
        if (json && isnan(values[i]))
            (void)printf(", \"%s\": null", keys[i]);
        else if (json)
            (void)printf(", \"%s\": %.9g", keys[i], values[i]);
        else if (!isnan(values[i]))
            (void)printf("  %s %.4f", names[i], values[i]);
    }
    (void)printf(json ? "}\n" : "\n");
}

static int run_command(const lathe_args *args)
{
    lathe_run *run = NULL;
    lathe_evaluation e;
    lathe_buffer datasets = LATHE_BUFFER_INIT;
    int64_t batches = 0;
    const char *data = lathe_args_value(args, "--data");
    lathe_status status = lathe_args_int(args, "--batches", 0, INT64_MAX, 0, &batches);
    if (status == LATHE_OK && !data && lathe_path_is_dir(args->words[0]))
        status = lathe_error(LATHE_E_ARG, "--data PATH is missing: what to evaluate on");
    if (status == LATHE_OK) {
        if (data) {
            lathe_buffer_puts(&datasets, "[{path = ");
            lathe_buffer_json_string(&datasets, data);
            lathe_buffer_puts(&datasets, "}]");
        }
        const char *const settings[] = {data ? "data.datasets" : NULL, datasets.data,
                                        "data.validation", datasets.data, NULL};
        status = datasets.status == LATHE_OK
                     ? lathe_app_open_model(args, LATHE_OPEN_EVALUATE, settings, &run)
                     : datasets.status;
    }
    if (status == LATHE_OK)
        status = lathe_app_begin_trace(args, run);
    if (status == LATHE_OK)
        status = lathe_evaluate(run, batches, &e);
    if (status == LATHE_OK)
        print(&e, lathe_args_value(args, "--json") != NULL);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_run_close(run);
    lathe_trace_end();
    lathe_buffer_fini(&datasets);
    return code;
}

const lathe_command lathe_cmd_eval = {
    .name = "eval",
    .arguments = "DIR|RUN.toml [--data PATH]",
    .summary = "loss, accuracy and calibration of a model on data",
    .details = "DIR is a Hugging Face folder, a checkpoint, or the folder of a run, and --data "
               "says on what; a run\n"
               "file stands for its latest checkpoint, on its own validation data unless --data is "
               "given.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .computes = 1,
    .takes_overrides = 1,
    .run = run_command,
};
