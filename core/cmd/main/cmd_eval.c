/* lathe eval: computes the loss of a model on texts. */
#include <math.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/print.h"
#include "cmd/main/commands.h"
#include "cmd/main/model_args.h"
#include "cmd/main/trace_option.h"
#include "jobs/job.h"

static const lathe_option options[] = {
    {"--data", "PATH",
     "file or folder to evaluate on: texts, examples for sft, or preference pairs for dpo"},
    {"--batches", "N", "evaluate at most N micro-batches (default 0: all)"},
    {"--json", NULL, "print one JSON object"},
    LATHE_WEIGHTS_OPTION,
    LATHE_TRACE_OPTIONS("operations and data", "micro-batches"),
};

/* Leaves out figures that are undefined for the stage (NAN). */
static void print_text(const lathe_job_evaluation *e)
{
    const char *const names[] = {"token accuracy", "bits per byte", "calibration error"};
    const double values[] = {e->token_accuracy, e->bits_per_byte, e->ece};
    lathe_print("loss %.4f", e->loss);
    if (!isnan(e->perplexity))
        lathe_print("  perplexity %.3f", e->perplexity);
    lathe_print("  over %.0f %s", e->count, e->unit);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (!isnan(values[i]))
            lathe_print("  %s %.4f", names[i], values[i]);
    for (int32_t k = 0; k < e->n_metrics; k++)
        if (!isnan(e->metrics[k])) /* NAN: no example has it */
            lathe_print("  %s %.4f", e->metric_names[k], e->metrics[k]);
    lathe_print("\n");
}

/* JSON has no NaN and no infinity. */
static void put_number(lathe_buffer *b, double value)
{
    if (isfinite(value))
        lathe_buffer_printf(b, "%.9g", value);
    else
        lathe_buffer_puts(b, "null");
}

/* Prints one object with the same keys for every stage; figures that have no meaning are null. */
static lathe_status print_json(const lathe_job_evaluation *e)
{
    const char *const keys[] = {"loss", "perplexity", "token_accuracy", "bits_per_byte", "ece"};
    const double values[] = {e->loss, e->perplexity, e->token_accuracy, e->bits_per_byte, e->ece};
    lathe_buffer b = LATHE_BUFFER_INIT;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        lathe_buffer_printf(&b, "%s\"%s\": ", i ? ", " : "{", keys[i]);
        put_number(&b, values[i]);
    }
    lathe_buffer_printf(&b, ", \"count\": %.0f, \"unit\": \"%s\", \"metrics\": {", e->count,
                        e->unit);
    for (int32_t k = 0; k < e->n_metrics; k++) {
        lathe_buffer_puts(&b, k ? ", " : "");
        lathe_buffer_json_string(&b, e->metric_names[k]);
        lathe_buffer_puts(&b, ": ");
        put_number(&b, e->metrics[k]);
    }
    lathe_buffer_puts(&b, "}}");
    const lathe_status status = b.status;
    if (status == LATHE_OK)
        lathe_print("%s\n", b.data);
    lathe_buffer_fini(&b);
    return status;
}

static int run_command(const lathe_args *args)
{
    lathe_session *session = NULL;
    lathe_job_evaluation e = {.size = (uint32_t)sizeof e};
    lathe_job_evaluate_config config = {.size = (uint32_t)sizeof config};
    lathe_status status = lathe_args_int(args, "--batches", 0, INT64_MAX, 0, &config.n_batches);
    if (status != LATHE_OK)
        goto out;
    /* a key that would have no effect here is refused, though the run file may have it */
    if (lathe_args_override(args, "train.eval_batches")) {
        status =
            lathe_error(LATHE_E_ARG, "train.eval_batches applies to evaluations during a training; "
                                     "use --batches N");
        goto out;
    }
    status = lathe_app_open_session(args, LATHE_SESSION_EVALUATE, NULL,
                                    lathe_args_value(args, "--data"), &session);
    if (status != LATHE_OK)
        goto out;
    status = lathe_app_begin_trace(args, lathe_session_run(session));
out:
    config.session = session;
    if (status == LATHE_OK)
        status = lathe_job_evaluate(&config, &e);
    if (status == LATHE_OK)
        status = lathe_args_value(args, "--json") ? print_json(&e) : (print_text(&e), LATHE_OK);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_session_close(session);
    lathe_trace_end();
    return code;
}

const lathe_command lathe_cmd_eval = {
    .name = "eval",
    .arguments = "DIR|FILE.gguf|RUN.toml [--data PATH]",
    .summary = "compute loss, accuracy and calibration of a model on data",
    .details =
        "DIR is a Hugging Face folder, a GGUF file, a checkpoint, or the folder of a run. For a\n"
        "checkpoint, the stage, its settings, the columns, the sequence length and the\n"
        "micro-batch come from its manifest.json, and without --data PATH the run's\n"
        "validation data; options on the command line replace them. Of other folders every\n"
        "token of PATH counts, unless --stage.name says otherwise (sft, dpo, ...).\n"
        "For RUN.toml, the latest checkpoint of the run is evaluated on the run's\n"
        "validation data, or on PATH. Records of PATH are read with the columns and the\n"
        "format of the run's data.datasets; for other columns write, for example,\n"
        "--data.validation '[{path = \"v.jsonl\", columns = {completion = \"answer\"}}]'.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .evaluates = 1,
    .names_models = 1,
    .computes = 1,
    .takes_overrides = 1,
    .run = run_command,
};
