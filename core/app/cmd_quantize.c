/* lathe quantize: writes a model with quantized weights. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "app/commands.h"
#include "app/eval_data.h"
#include "app/model_dir.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "base/new_folder.h"
#include "base/print.h"
#include "cli/held_signals.h"
#include "exec/precision.h"
#include "loop/train.h"
#include "opening/folder_settings.h"
#include "opening/opening.h"
#include "primitives/quantized_model.h"

enum { MAX_OVERRIDES = 64, LENGTH_BYTES = 16 };

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
    LATHE_WEIGHTS_OPTION,
};

/* ---- the command's overrides ---- */

static int is_of(const lathe_override *o, const char *section)
{
    const size_t n = strlen(section);
    return strncmp(o->key, section, n) == 0 && o->key[n] == '.';
}

/* Bits that say which part of the command reads a section of the overrides: the writing of the
 * folder, its evaluation, or both. */
enum { FOR_WRITING = 1, FOR_EVALUATION = 2 };

static int purpose_of(const lathe_override *o)
{
    if (is_of(o, "quant"))
        return FOR_WRITING;
    if (strcmp(o->key, "data.datasets") == 0 || strcmp(o->key, "data.validation") == 0)
        return 0; /* --text and --calibration name the data */
    if (is_of(o, "plugins") || strcmp(o->key, "model.name") == 0)
        return FOR_WRITING | FOR_EVALUATION;
    if (strcmp(o->key, "checkpoint.shard_size") == 0)
        return FOR_WRITING;
    return is_of(o, "data") || is_of(o, "train") || is_of(o, "device") || is_of(o, "attention") ||
                   is_of(o, "tokenizer")
               ? FOR_EVALUATION
               : 0;
}

/* Refuses overrides that would have no effect. */
static lathe_status check_overrides(const lathe_args *args)
{
    const int used =
        FOR_WRITING | (lathe_args_value(args, "--text") || lathe_args_value(args, "--calibration")
                           ? FOR_EVALUATION
                           : 0);
    if (args->n_overrides > MAX_OVERRIDES - 8)
        return lathe_error(LATHE_E_ARG, "%d settings; expected at most %d", args->n_overrides,
                           MAX_OVERRIDES - 8);
    if ((lathe_args_value(args, "--columns") || lathe_args_value(args, "--format")) &&
        !(used & FOR_EVALUATION))
        return lathe_error(LATHE_E_ARG, "--columns and --format have no effect without --text or "
                                        "--calibration: remove them");
    for (int32_t i = 0; i < args->n_overrides; i++) {
        const char *key = args->overrides[i].key;
        const int purpose = purpose_of(&args->overrides[i]);
        if (purpose == FOR_EVALUATION && !(used & FOR_EVALUATION))
            return lathe_error(
                LATHE_E_ARG, "--%s has no effect without --text or --calibration: remove it", key);
        if (purpose == 0)
            return lathe_error(
                LATHE_E_ARG,
                "--%s has no effect: lathe quantize reads [quant], plugins, "
                "model.name and checkpoint.shard_size, and with --text or --calibration [data], "
                "[train], [device], [attention] and [tokenizer]",
                key);
    }
    return LATHE_OK;
}

/* The overrides for a purpose. Returns their number. */
static int32_t pick(const lathe_args *args, int purpose, lathe_override *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < args->n_overrides; i++)
        if (purpose_of(&args->overrides[i]) & purpose)
            out[n++] = args->overrides[i];
    return n;
}

/* Finds the folder of the weights. */
static lathe_status find_model(const lathe_args *args, lathe_arena *arena, const char **out)
{
    lathe_model_folder folder;
    int32_t which;
    LATHE_TRY(lathe_cli_weights(args, &which));
    LATHE_TRY(lathe_cli_find_model(args->words[0], which, arena, &folder));
    LATHE_TRY(lathe_model_folder_refuse_adapter(&folder));
    if (!folder.has_model)
        return lathe_error(LATHE_E_CONFIG, "%s: has no config.json, so it is not a model folder",
                           folder.dir);
    lathe_cli_say_weights(&folder);
    *out = folder.weights;
    return lathe_model_folder_check(&folder);
}

static lathe_status check_arguments(const lathe_args *args, lathe_arena *arena, const char **out)
{
    const char *output = lathe_args_value(args, "--output");
    LATHE_TRY(check_overrides(args));
    if (!output)
        return lathe_error(LATHE_E_ARG,
                           "--output DIR is missing: the folder for the quantized model");
    LATHE_TRY(lathe_new_folder_check(output));
    const char *format = lathe_args_override(args, "quant.name");
    if (!format || strcmp(format, "none") == 0)
        return lathe_error(LATHE_E_ARG, "--quant.name NAME is missing: lathe ls quant lists the "
                                        "formats");
    return find_model(args, arena, out);
}

/* ---- texts ---- */

/* Writes the data that an option names as a list of datasets, with --columns and --format. */
static lathe_status put_texts(const lathe_args *args, const char *option, lathe_buffer *out)
{
    static const char *const tables[] = {"columns", "format"};
    const char *path = lathe_args_value(args, option);
    const char *const given[] = {lathe_args_value(args, "--columns"),
                                 lathe_args_value(args, "--format")};
    LATHE_TRY(lathe_eval_data(args, option, path, out));
    if (!given[0] && !given[1])
        return LATHE_OK;
    out->len = 0; /* they replace what the model's folder says of its data */
    lathe_buffer_puts(out, "[{path = ");
    lathe_buffer_json_string(out, path);
    for (int i = 0; i < 2; i++)
        if (given[i])
            lathe_buffer_printf(out, ", %s = %s", tables[i], given[i]);
    lathe_buffer_puts(out, "}]");
    return out->status;
}

/* Names the option where the message has the key that the option became. */
static void name_option(lathe_status status, const char *option)
{
    static const char *const keys[] = {"--data.validation", "--data.datasets"};
    char why[1500];
    (void)snprintf(why, sizeof why, "%s", lathe_error_message());
    const char *how =
        strstr(why, "in columns.") || strstr(why, "in format.")
            ? " (--columns '{text = \"NAME\"}', --format '{text = \"{NAME} {NAME}\"}')"
            : "";
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const size_t n = strlen(keys[i]);
        if (strncmp(why, keys[i], n) == 0)
            (void)lathe_error(status, "%s%s%s", option, why + n, how);
    }
}

/* ---- perplexity ---- */

/* Opens a folder to evaluate on the texts that an option names, in rows of `length` tokens and in a
 * precision; "" and NULL: as lathe eval does. */
static lathe_status open_texts(const lathe_args *args, const char *folder, const char *option,
                               const char *length, const char *precision, lathe_run **out)
{
    lathe_override rest[MAX_OVERRIDES];
    const char *values[sizeof options / sizeof options[0]];
    lathe_args of_eval = *args;
    lathe_buffer data = LATHE_BUFFER_INIT;
    of_eval.words = &folder;
    of_eval.n_words = 1;
    of_eval.values = values;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) /* the choice was made */
        values[i] = strcmp(options[i].name, "--weights") == 0 ? NULL : args->values[i];
    of_eval.overrides = rest;
    of_eval.n_overrides = pick(args, FOR_EVALUATION, rest);
    rest[of_eval.n_overrides++] = (lathe_override){"model.weights", "training"};
    if (length[0] && !lathe_args_override(args, "data.seq_len"))
        rest[of_eval.n_overrides++] = (lathe_override){"data.seq_len", length};
    if (precision && !lathe_args_override(args, "train.precision"))
        rest[of_eval.n_overrides++] = (lathe_override){"train.precision", precision};
    /* whole texts, whatever stage the folder was trained with */
    rest[of_eval.n_overrides++] = (lathe_override){"stage.name", "pretrain"};
    lathe_status status = put_texts(&of_eval, option, &data);
    if (status == LATHE_OK) {
        const char *const settings[] = {"data.datasets", data.data, "data.validation", data.data,
                                        NULL};
        status = lathe_app_open_model(&of_eval, LATHE_OPEN_EVALUATE, settings, out);
    }
    lathe_buffer_fini(&data);
    if (status != LATHE_OK)
        name_option(status, option);
    return status;
}

/* How a folder is evaluated: as the one before it. */
typedef struct eval_shape {
    char length[LENGTH_BYTES]; /* tokens of a row; "": as lathe eval takes them */
    const char *precision;     /* NULL: as lathe eval chooses it */
} eval_shape;

/* The perplexity of a folder on the texts. The first call sets the shape for the second one. */
static lathe_status perplexity(const lathe_args *args, const char *folder, eval_shape *io_shape,
                               double *out)
{
    lathe_run *run = NULL;
    lathe_evaluation e;
    if (!lathe_args_value(args, "--text"))
        return LATHE_OK;
    lathe_cli_release_signals();
    lathe_status status =
        open_texts(args, folder, "--text", io_shape->length, io_shape->precision, &run);
    if (status == LATHE_OK) {
        (void)snprintf(io_shape->length, LENGTH_BYTES, "%d", (int)run->set.seq_len);
        io_shape->precision = lathe_precision_name(run->set.compute_dtype);
        status = lathe_evaluate(run, 0, NULL, &e);
    }
    if (status == LATHE_OK)
        *out = e.perplexity;
    lathe_run_close(run);
    lathe_cli_hold_signals();
    return status;
}

/* ---- calibration ---- */

enum { ROW_TOKENS = 512, DEFAULT_ROWS = 128 };

static int is_calibrated(const lathe_run *run)
{
    return LATHE_HAS((const lathe_quant_v1 *)run->parts.quant.table, encode_calibrated);
}

/* The largest number of inputs of a linear layer. */
static int64_t most_inputs(const lathe_run *run)
{
    int64_t most = 0;
    for (int32_t i = 0; i < run->params.n_model; i++) {
        const lathe_param *p = run->params.rows[i];
        if (p->format && p->desc.dims[1] > most)
            most = p->desc.dims[1];
    }
    return most;
}

/* Uses as many rows as were asked for, or 128, or all; refuses too few of them. */
static lathe_status count_batches(const lathe_args *args, const lathe_run *plan,
                                  lathe_calibration_data *data)
{
    int64_t asked = 0;
    LATHE_TRY(lathe_args_int(args, "--rows", 1, 1 << 24, 0, &asked));
    const int64_t per_batch = data->run->set.micro_batch_size;
    const int64_t length = data->run->set.seq_len;
    const int64_t there = per_batch * lathe_loader_batches(data->run->data.validation, 1);
    const int64_t rows = asked > 0 ? asked : there < DEFAULT_ROWS ? there : DEFAULT_ROWS;
    data->n_batches = (rows + per_batch - 1) / per_batch;
    if (rows > there)
        return lathe_error(LATHE_E_CONFIG,
                           "--rows %lld: the calibration data have %lld row%s of %lld tokens: give "
                           "more text, or fewer rows",
                           (long long)rows, (long long)there, there == 1 ? "" : "s",
                           (long long)length);
    if (rows * length < most_inputs(plan))
        return lathe_error(
            LATHE_E_CONFIG,
            "the calibration data are too small: %lld row%s of %lld tokens for layers "
            "of %lld inputs; expected at least as many tokens as inputs",
            (long long)rows, rows == 1 ? "" : "s", (long long)length, (long long)most_inputs(plan));
    return LATHE_OK;
}

/* Opens the calibration data for a format that needs them. */
static lathe_status open_calibration(const lathe_args *args, const char *model,
                                     const lathe_run *plan, lathe_calibration_data *out)
{
    const char *text = lathe_args_value(args, "--calibration");
    const char *name = plan->parts.quant.component->plugin->name;
    char length[LENGTH_BYTES];
    if (!is_calibrated(plan) && (text || lathe_args_value(args, "--rows")))
        return lathe_error(LATHE_E_ARG,
                           "--calibration and --rows have no effect: format \"%s\" needs no data",
                           name);
    if (!is_calibrated(plan))
        return LATHE_OK;
    if (!text)
        return lathe_error(LATHE_E_ARG,
                           "--calibration PATH is missing: format \"%s\" is calibrated on texts",
                           name);
    (void)snprintf(length, sizeof length, "%d",
                   plan->model.max_positions < ROW_TOKENS ? (int)plan->model.max_positions
                                                          : ROW_TOKENS);
    LATHE_TRY(open_texts(args, model, "--calibration", length, NULL, &out->run));
    return count_batches(args, plan, out);
}

/* ---- the report ---- */

typedef struct reporter {
    lathe_buffer json; /* the weights, if that was asked for */
    int is_json;
    int32_t n;
} reporter;

/* lathe_quantized_report_fn */
static lathe_status report(void *arg, const lathe_quantized_weight *w)
{
    reporter *r = arg;
    const double bits = 8.0 * (double)w->bytes / ((double)w->rows * (double)w->cols);
    if (!r->is_json) {
        if (r->n++ == 0)
            lathe_print("%-48s %13s %8s %6s  %s\n", "weight", "shape", "format", "bits",
                        "relative error");
        lathe_print("%-48s %6lld x %4lld %8s %6.2f  %.4f\n", w->name, (long long)w->rows,
                    (long long)w->cols, w->format, bits, w->relative_error);
        (void)fflush(stdout);
        return lathe_cli_check_signals();
    }
    lathe_buffer_puts(&r->json, r->n++ ? ", {\"weight\": " : "{\"weight\": ");
    lathe_buffer_json_string(&r->json, w->name);
    lathe_buffer_printf(&r->json,
                        ", \"rows\": %lld, \"cols\": %lld, \"format\": \"%s\", \"bytes\": %lld, "
                        "\"relative_error\": %.9g}",
                        (long long)w->rows, (long long)w->cols, w->format, (long long)w->bytes,
                        w->relative_error);
    return lathe_cli_check_signals();
}

static double bits_of(const lathe_quantized_model *m)
{
    return m->n_numbers > 0 ? 8.0 * (double)m->bytes / (double)m->n_numbers : 0.0;
}

/* Says that the folder is complete, before it is evaluated. */
static void print_written(const lathe_args *args, const lathe_quantized_model *m)
{
    lathe_print("%d weight%s quantized to %.2f bits, %d left as they are: %.1f MB instead of %.1f "
                "MB, relative error %.4f\n",
                m->n, m->n == 1 ? "" : "s", bits_of(m), m->n_plain, (double)m->bytes / 1e6,
                (double)m->bytes_before / 1e6, m->relative_error);
    if (m->n_scaled > 0)
        lathe_print(
            "the scales of %d input%s of layers are folded into the norms and layers before "
            "them\n",
            m->n_scaled, m->n_scaled == 1 ? "" : "s");
    lathe_print("wrote %s\n", lathe_args_value(args, "--output"));
}

/* Growth of the perplexity that makes a model useless for most purposes: formats of four bits and
 * more are below 1.5 (docs/quantization.md). */
#define MUCH_WORSE 10.0

/* Warns if the quantization damaged the model. */
static void warn_of_damage(const lathe_run *run, double before, double after)
{
    const lathe_plugin *format = run->parts.quant.component->plugin;
    int has_bits = 0, has_group = 0;
    if (after <= MUCH_WORSE * before)
        return;
    for (int32_t i = 0; i < format->n_fields; i++) {
        has_bits |= strcmp(format->fields[i].key, "bits") == 0;
        has_group |= strcmp(format->fields[i].key, "group_size") == 0;
    }
    lathe_log(LATHE_LOG_WARN,
              "the perplexity is %.0f times that before: the quantized model has lost most of what "
              "it knew; use %s%sor a format with more bits (lathe ls quant)",
              after / before, has_bits ? "more bits (--quant.bits), " : "",
              has_group ? "smaller groups (--quant.group_size), " : "");
}

static lathe_status print_result(const lathe_args *args, const reporter *r,
                                 const lathe_quantized_model *m, const double *before_and_after)
{
    const int has_text = lathe_args_value(args, "--text") != NULL;
    if (!r->is_json && has_text)
        lathe_print("perplexity %.3f, before %.3f\n", before_and_after[1], before_and_after[0]);
    if (!r->is_json)
        return LATHE_OK;
    LATHE_TRY(r->json.status);
    lathe_print("{\"weights\": [%s], \"plain\": %d, \"bytes_before\": %lld, \"bytes\": %lld, "
                "\"bits\": %.6g, \"relative_error\": %.9g",
                r->json.data ? r->json.data : "", m->n_plain, (long long)m->bytes_before,
                (long long)m->bytes, bits_of(m), m->relative_error);
    if (m->n_scaled > 0)
        lathe_print(", \"scaled\": %d", m->n_scaled);
    if (has_text)
        lathe_print(", \"perplexity_before\": %.9g, \"perplexity\": %.9g", before_and_after[0],
                    before_and_after[1]);
    lathe_print("}\n");
    return LATHE_OK;
}

static lathe_status open_plan(const lathe_args *args, const char *model, lathe_run **out)
{
    /* an adapter of its own, because weights that train are not quantized */
    lathe_override list[MAX_OVERRIDES] = {
        {"model.path", model}, {"model.weights", "training"}, {"adapter.name", "lora"}};
    const int32_t n = 3 + pick(args, FOR_WRITING, list + 3);
    list[n] = (lathe_override){"data.seq_len", "2"};
    return lathe_run_open_to_quantize(list, n + 1, out);
}

static int run_command(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_run *run = NULL;
    const char *model = NULL, *output = lathe_args_value(args, "--output");
    reporter r = {.json = LATHE_BUFFER_INIT, .is_json = lathe_args_value(args, "--json") != NULL};
    lathe_quantized_model made = {0};
    lathe_calibration_data data = {0};
    double perplexities[2] = {0.0, 0.0};
    eval_shape shape = {.length = ""};
    lathe_cli_hold_signals();
    (void)signal(SIGPIPE, SIG_IGN);
    lathe_status status = check_arguments(args, &arena, &model);
    if (status == LATHE_OK)
        status = open_plan(args, model, &run);
    if (status == LATHE_OK)
        status = perplexity(args, model, &shape, &perplexities[0]);
    if (status == LATHE_OK)
        status = open_calibration(args, model, run, &data);
    if (status == LATHE_OK)
        status = lathe__quantized_model_write(run, data.run ? &data : NULL, NULL, 0, output, report,
                                              &r, &made);
    if (status == LATHE_OK && !r.is_json)
        print_written(args, &made);
    if (status == LATHE_OK)
        status = perplexity(args, output, &shape, &perplexities[1]);
    if (status == LATHE_OK)
        status = print_result(args, &r, &made, perplexities);
    if (status == LATHE_OK && lathe_args_value(args, "--text"))
        warn_of_damage(run, perplexities[0], perplexities[1]);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_cli_end_signals(status == LATHE_OK);
    lathe_run_close(data.run);
    lathe_run_close(run);
    lathe_buffer_fini(&r.json);
    lathe_arena_fini(&arena);
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
