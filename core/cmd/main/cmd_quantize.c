/* lathe quantize: writes a model with quantized weights. */
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/print.h"
#include "cmd/line/held_signals.h"
#include "cmd/main/commands.h"
#include "cmd/main/model_args.h"
#include "cmd/main/quantize_table.h"
#include "jobs/job.h"

static const lathe_option options[] = {
    {"-o, --output", "DIR", "the new folder for the quantized model"},
    {"--calibration", "PATH", "texts that gptq and awq are calibrated on"},
    {"--rows", "N", "rows of data.seq_len tokens to calibrate on (default 128; 512 tokens each)"},
    {"--columns", "TABLE",
     "which column of records holds the text: '{text = \"body\"}'; of --calibration and --text"},
    {"--format", "TABLE",
     "how the text is made of columns: '{text = \"{question} {answer}\"}'; of both"},
    {"--text", "PATH", "file or folder of texts: prints the perplexity before and after"},
    {"--json", NULL, "print one JSON object"},
    {"-v, --verbose", NULL, "print a line for each weight when it is written"},
    LATHE_WEIGHTS_OPTION,
};

typedef struct reporter {
    const lathe_args *args;
    lathe_buffer json; /* the weights, if that was asked for */
    int is_json, is_verbose;
    int32_t n;
    lathe_quantize_table table;
} reporter;

/* lathe_job_progress_fn */
static int32_t heed(void *arg, const lathe_job_progress *progress)
{
    (void)arg, (void)progress;
    return lathe_cli_is_signalled();
}

/* lathe_job_quantize_config.weight */
static void report(void *arg, const lathe_job_weight *w)
{
    reporter *r = arg;
    const double bits = 8.0 * (double)w->bytes / ((double)w->rows * (double)w->cols);
    if (!r->is_json && !r->is_verbose) {
        lathe_quantize_table_add(&r->table, w);
        return;
    }
    if (!r->is_json) {
        if (r->n++ == 0)
            lathe_print("%-48s %13s %8s %6s  %s\n", "weight", "shape", "format", "bits",
                        "relative error");
        lathe_print("%-48s %6lld x %4lld %8s %6.2f  %.4f\n", w->name, (long long)w->rows,
                    (long long)w->cols, w->format, bits, w->relative_error);
        (void)fflush(stdout);
        return;
    }
    lathe_buffer_puts(&r->json, r->n++ ? ", {\"weight\": " : "{\"weight\": ");
    lathe_buffer_json_string(&r->json, w->name);
    lathe_buffer_printf(&r->json,
                        ", \"rows\": %lld, \"cols\": %lld, \"format\": \"%s\", \"bytes\": %lld, "
                        "\"relative_error\": %.9g}",
                        (long long)w->rows, (long long)w->cols, w->format, (long long)w->bytes,
                        w->relative_error);
}

/* lathe_job_quantize_config.written: says that the folder is complete, before it is evaluated. */
static void print_written(void *arg, const lathe_job_quantize_result *m)
{
    const reporter *r = arg;
    if (r->is_json)
        return;
    lathe_quantize_table_print(&r->table);
    lathe_print("%d weight%s quantized to %.2f bits, %d left as they are: %.1f MB instead of %.1f "
                "MB, relative error %.4f\n",
                m->n_quantized, m->n_quantized == 1 ? "" : "s", m->bits, m->n_plain,
                (double)m->bytes / 1e6, (double)m->bytes_before / 1e6, m->relative_error);
    if (m->n_scaled > 0)
        lathe_print(
            "the scales of %d input%s of layers are folded into the norms and layers before "
            "them\n",
            m->n_scaled, m->n_scaled == 1 ? "" : "s");
    lathe_print("wrote %s\n", lathe_args_value(r->args, "--output"));
    (void)fflush(stdout);
}

static lathe_status print_result(const reporter *r, const lathe_job_quantize_result *m)
{
    const int has_text = !isnan(m->perplexity);
    if (!r->is_json && has_text)
        lathe_print("perplexity %.3f, before %.3f\n", m->perplexity, m->perplexity_before);
    if (!r->is_json)
        return LATHE_OK;
    LATHE_TRY(r->json.status);
    lathe_print("{\"weights\": [%s], \"plain\": %d, \"bytes_before\": %lld, \"bytes\": %lld, "
                "\"bits\": %.6g, \"relative_error\": %.9g",
                r->json.data ? r->json.data : "", m->n_plain, (long long)m->bytes_before,
                (long long)m->bytes, m->bits, m->relative_error);
    if (m->n_scaled > 0)
        lathe_print(", \"scaled\": %d", m->n_scaled);
    if (has_text)
        lathe_print(", \"perplexity_before\": %.9g, \"perplexity\": %.9g", m->perplexity_before,
                    m->perplexity);
    lathe_print("}\n");
    return LATHE_OK;
}

static lathe_status read_args(const lathe_args *args, reporter *r, lathe_job_quantize_config *out)
{
    int64_t rows = 0;
    *out = (lathe_job_quantize_config){.size = (uint32_t)sizeof *out,
                                       .model = args->words[0],
                                       .output = lathe_args_value(args, "--output"),
                                       .calibration = lathe_args_value(args, "--calibration"),
                                       .text = lathe_args_value(args, "--text"),
                                       .columns = lathe_args_value(args, "--columns"),
                                       .format = lathe_args_value(args, "--format"),
                                       .weight = report,
                                       .written = print_written,
                                       .progress = heed,
                                       .arg = r};
    LATHE_TRY(lathe_args_int(args, "--rows", 1, 1 << 24, 0, &rows));
    out->n_rows = (int32_t)rows;
    return lathe_cli_weights(args, &out->weights);
}

static int run_command(const lathe_args *args)
{
    reporter r = {.args = args,
                  .json = LATHE_BUFFER_INIT,
                  .is_json = lathe_args_value(args, "--json") != NULL,
                  .is_verbose = lathe_args_value(args, "--verbose") != NULL};
    lathe_job_quantize_config config;
    lathe_job_quantize_result made = {.size = (uint32_t)sizeof made};
    const lathe_job_caller caller = {&args->edits, "--"};
    lathe_cli_hold_signals();
    (void)signal(SIGPIPE, SIG_IGN);
    lathe_status status = read_args(args, &r, &config);
    if (status == LATHE_OK)
        status = lathe__job_quantize(&config, &caller, &made);
    if (status == LATHE_OK)
        status = print_result(&r, &made);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_cli_end_signals(status == LATHE_OK);
    lathe_buffer_fini(&r.json);
    return code;
}

const lathe_command lathe_cmd_quantize = {
    .name = "quantize",
    .arguments = "DIR --quant.name NAME -o OUT",
    .summary = "write a model with quantized weights",
    .details =
        "DIR is a Hugging Face folder, a checkpoint with a whole model (averaged weights, if\n"
        "it has them), or the folder of a run. Its linear layers, except the head, are encoded in "
        "the format that\n"
        "--quant.name names (lathe ls quant), with its settings (--quant.bits 3);\n"
        "--quant.include_modules and --quant.exclude_modules choose among the layers. OUT is\n"
        "a new Hugging Face folder in the layout of the library that the format comes from:\n"
        "it loads there, and is a model.path here. Every other tensor keeps its bytes.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .names_models = 1,
    .computes = 1,
    .prints_progress = 1,
    .takes_overrides = 1,
    .run = run_command,
};
