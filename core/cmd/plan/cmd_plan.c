/* lathe plan: prints memory, work and schedule of a run before it runs. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/print.h"
#include "cmd/plan/plan_commands.h"
#include "cmd/plan/plan_ranks.h"
#include "exec/program/precision.h"
#include "graph/ir/dump.h"
#include "run/open/opening.h"
#include "run/open/step_count.h"
#include "run/parts/run_parts.h"
#include "run/plan/fit_search.h"
#include "run/plan/methods.h"
#include "run/plan/plan_figures.h"
#include "run/state/run_saved.h"

static const lathe_option options[] = {
    {"--json", NULL, "print one JSON object"},
    {"--all-methods", NULL, "also show what each fine-tuning method needs, and which ones fit"},
    {"--graph", "FILE", "also write the training graph to FILE: .dot for Graphviz, otherwise text"},
    LATHE_PLAN_RANKS_OPTIONS,
};

/* Prints whether the run fits this machine, and if not, settings that would. */
static void put_json_fit(const lathe_fit *fit, lathe_buffer *b)
{
    lathe_buffer_printf(
        b, "  \"fits\": %s,\n  \"available\": ", fit->need <= fit->have ? "true" : "false");
    if (fit->have < INT64_MAX)
        lathe_buffer_printf(b, "%lld", (long long)fit->have);
    else
        lathe_buffer_puts(b, "null");
    lathe_buffer_puts(b, ",\n  \"available_from\": ");
    lathe_buffer_json_string(b, fit->source);
    lathe_buffer_puts(b, ",\n  \"would_fit\": ");
    lathe_fit_json(fit, b);
    lathe_buffer_puts(b, ",\n");
}

static void put_savings(const lathe_plan_figures *p, lathe_buffer *b)
{
    const struct {
        const char *key;
        int64_t bytes;
    } all[] = {{"offload_optimizer", p->saved_state},
               {"offload_activations", p->saved_activations}};
    for (int i = 0; i < 2; i++)
        if (all[i].bytes != 0)
            lathe_buffer_printf(b, "  train.%s: %.1f MiB less on the device\n", all[i].key,
                                (double)all[i].bytes / (1024.0 * 1024.0));
}

/* Prints the number of checkpoints, and whether the disk has room for them. */
static void put_disk(lathe_run *run, const lathe_plan_figures *p, int is_json, lathe_buffer *b)
{
    const lathe_disk_fit fit = p->disk;
    if (!p->disk_is_known)
        return;
    if (!is_json) {
        lathe_buffer_puts(b, "\n  ");
        lathe_disk_fit_text(lathe__run_saved(run), &fit, b);
        return;
    }
    lathe_buffer_printf(
        b, "  \"checkpoints\": {\"bytes_each\": %lld, \"at_a_time\": ", (long long)fit.each);
    if (fit.max > 0)
        lathe_buffer_printf(b, "%lld", (long long)fit.max);
    else
        lathe_buffer_puts(b, "null");
    if (fit.have >= 0)
        lathe_buffer_printf(b, ", \"bytes_free\": %lld", (long long)fit.have);
    else
        lathe_buffer_puts(b, ", \"bytes_free\": null");
    lathe_buffer_printf(b, ", \"fit\": %s},\n", fit.fits ? "true" : "false");
}

/* Prints rate, weight decay and size of the groups of parameters, without the schedule. */
static void put_groups(const lathe_plan_figures *p, int is_json, lathe_buffer *b)
{
    lathe_buffer_puts(b, is_json ? "  \"groups\": ["
                                 : "groups           part          lr  weight decay   tensors   "
                                   "parameters\n");
    for (int32_t i = 0; i < p->n_groups; i++) {
        const lathe_group_row *r = &p->groups[i];
        if (!is_json) {
            lathe_buffer_printf(b, "  %-14s %-8s %.3e %13g %9lld %12lld\n", r->name,
                                r->part ? r->part : "-", r->lr, r->weight_decay,
                                (long long)r->n_tensors, (long long)r->n_params);
            continue;
        }
        lathe_buffer_puts(b, i ? ",\n    {\"name\": " : "\n    {\"name\": ");
        lathe_buffer_json_string(b, r->name);
        lathe_buffer_puts(b, ", \"part\": ");
        if (r->part)
            lathe_buffer_json_string(b, r->part);
        else
            lathe_buffer_puts(b, "null");
        lathe_buffer_printf(b,
                            ", \"lr\": %.9g, \"weight_decay\": %.9g, \"tensors\": %lld, "
                            "\"parameters\": %lld}",
                            r->lr, r->weight_decay, (long long)r->n_tensors,
                            (long long)r->n_params);
    }
    lathe_buffer_puts(b, is_json ? "],\n" : "");
}

static void put_json_packed(const lathe_plan_figures *p, lathe_buffer *b)
{
    const lathe_plan_packed c = p->packed;
    lathe_buffer_printf(b,
                        "  \"packed_products\": %d,\n  \"quantized_activations\": %d,\n"
                        "  \"decoded_weights\": %d,\n",
                        c.packed, c.quantized, c.whole);
}

static void put_json(lathe_run *run, const lathe_plan_figures *p, const lathe_fit *fit,
                     const lathe_methods *methods, const lathe_plan_ranks *ranks, lathe_buffer *b)
{
    lathe_buffer_puts(b, "{\n  \"memory\": {");
    for (int32_t i = 0; i < LATHE_N_MEM; i++)
        lathe_buffer_printf(b, "\"%s\": %lld, ", lathe_mem_name(i), (long long)p->memory.by[i]);
    lathe_buffer_printf(b, "\"peak\": %lld},\n", (long long)p->peak);
    put_json_fit(fit, b);
    lathe_buffer_printf(b, "  \"checkpoint_bytes\": %lld,\n", (long long)p->checkpoint_bytes);
    lathe_buffer_printf(
        b, "  \"saved\": {\"offload_optimizer\": %lld, \"offload_activations\": %lld},\n",
        (long long)p->saved_state, (long long)p->saved_activations);
    lathe_buffer_printf(
        b,
        "  \"parameters\": %lld,\n  \"flops_per_step\": %.0f,\n  \"model_flops_per_token\": %.0f,\n"
        "  \"tokens_per_step\": %.0f,\n",
        (long long)p->n_params, p->flops, p->flops_per_token, p->tokens);
    lathe_buffer_puts(b, "  \"precision\": ");
    lathe_precision_json(p->precision, p->compute_dtype, p->fp8, b);
    lathe_buffer_printf(b, ",\n  \"fp8_flops_per_step\": %.0f,\n", p->fp8_flops);
    put_json_packed(p, b);
    lathe_buffer_printf(b, "  \"device\": \"%s\",\n  \"attention\": \"%s\",\n  \"nodes\": %d,\n",
                        p->device, p->attention, p->n_nodes);
    put_disk(run, p, 1, b);
    put_groups(p, 1, b);
    if (methods->n > 0) {
        lathe_buffer_puts(b, "  \"methods\": ");
        lathe_methods_json(methods, b);
        lathe_buffer_puts(b, ",\n");
    }
    if (ranks->seconds > 0.0)
        lathe_plan_ranks_json(ranks, b);
    lathe_buffer_printf(b, "  \"max_steps\": %lld,\n  \"schedule\": [", (long long)p->max_steps);
    for (int32_t i = 0; i < p->n_points; i++)
        lathe_buffer_printf(b, "%s{\"step\": %lld, \"lr\": %.9g}", i ? ", " : "",
                            (long long)p->points[i].step + 1, p->points[i].lr);
    lathe_buffer_puts(b, "]\n}\n");
}

/* Prints a line such as "precision fp8 rowwise, 93 % of the work; the rest bf16". */
static void put_precision(const lathe_plan_figures *s, lathe_buffer *b)
{
    const char *used = lathe_precision_used(s->compute_dtype, s->fp8);
    lathe_buffer_printf(b, "  precision %s", used);
    if (s->fp8 != 0)
        lathe_buffer_printf(b, " %s, %.0f %% of the work; the rest %s",
                            lathe_fp8_recipe_name(s->fp8), 100.0 * s->fp8_flops / s->flops,
                            lathe_precision_name(s->compute_dtype));
    if (strcmp(lathe_precision_name(s->precision), used) != 0)
        lathe_buffer_printf(b, " for %s", lathe_precision_name(s->precision));
    lathe_buffer_puts(b, "\n");
}

static void put_packed(const lathe_plan_figures *p, lathe_buffer *b)
{
    const lathe_plan_packed c = p->packed;
    if (c.packed > c.quantized)
        lathe_buffer_printf(b,
                            "  quantized weights: %d products decode them part by part, at most "
                            "one part for each thread at a time\n",
                            c.packed - c.quantized);
    if (c.quantized > 0)
        lathe_buffer_printf(b,
                            "  quantized activations: %d products round their inputs to 8 bits "
                            "and multiply codes\n",
                            c.quantized);
    if (c.whole > 0)
        lathe_buffer_printf(b,
                            "  quantized weights: %d times one is decoded whole before it is "
                            "used: the device, the format or the op needs it so\n",
                            c.whole);
}

/* Prints the row lengths that batches of padded rows are computed with. */
static void put_row_lengths(const lathe_plan_figures *p, lathe_buffer *b)
{
    if (p->n_short == 0)
        return;
    lathe_buffer_puts(b, "  at most: a batch is computed with rows of ");
    for (int32_t i = 0; i < p->n_short; i++)
        lathe_buffer_printf(b, "%s%lld", i ? ", " : "", (long long)p->short_rows[i]);
    lathe_buffer_printf(b, " or %lld tokens, as its longest sequence needs\n",
                        (long long)p->row_tokens);
}

static void put_memory(const lathe_plan_figures *p, lathe_buffer *b)
{
    const double mib = 1024.0 * 1024.0;
    lathe_buffer_puts(b, "memory                       bytes         MiB\n");
    for (int32_t i = 0; i < LATHE_N_MEM; i++)
        if (p->memory.by[i])
            lathe_buffer_printf(b, "  %-14s %17lld %11.1f%s\n", lathe_mem_name(i),
                                (long long)p->memory.by[i], (double)p->memory.by[i] / mib,
                                p->is_in_peak[i] ? "" : "  of the host");
    lathe_buffer_printf(b, "  %-14s %17lld %11.1f\n", "peak", (long long)p->peak,
                        (double)p->peak / mib);
    put_savings(p, b);
}

static void put_text(lathe_run *run, const lathe_plan_figures *p, const lathe_fit *fit,
                     const lathe_methods *methods, const lathe_plan_ranks *ranks, lathe_buffer *b)
{
    const int is_large = p->flops >= 1e11;
    put_memory(p, b);
    lathe_buffer_puts(b, "  ");
    lathe_fit_text(fit, b);
    if (p->writes_checkpoints)
        lathe_buffer_printf(b, "\n  a checkpoint takes up to %lld bytes, %.1f MiB, on the disk",
                            (long long)p->checkpoint_bytes,
                            (double)p->checkpoint_bytes / (1024.0 * 1024.0));
    put_disk(run, p, 0, b);
    lathe_buffer_printf(
        b, "\nwork\n  %.3f %s and %.0f tokens per step; %d nodes; device %s, attention %s\n",
        is_large ? p->flops / 1e12 : p->flops / 1e9, is_large ? "TFLOP" : "GFLOP", p->tokens,
        p->n_nodes, p->device, p->attention);
    put_row_lengths(p, b);
    put_precision(p, b);
    put_packed(p, b);
    put_groups(p, 0, b);
    if (methods->n > 0)
        lathe_methods_text(methods, b);
    if (ranks->seconds > 0.0)
        lathe_plan_ranks_text(ranks, b);
    if (p->max_steps <= 0)
        return;
    lathe_buffer_printf(b, "schedule\n  %s over %lld steps\n", p->scheduler,
                        (long long)p->max_steps);
    for (int32_t i = 0; i < p->n_points; i++)
        lathe_buffer_printf(b, "  step %-10lld lr %.3e\n", (long long)p->points[i].step + 1,
                            p->points[i].lr);
}

static lathe_status write_graph(const lathe_run *run, const char *path)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    const size_t n = strlen(path);
    if (n > 4 && strcmp(path + n - 4, ".dot") == 0)
        lathe_graph_dot(lathe_plan_graph(run), &b);
    else
        lathe_graph_dump(lathe_plan_graph(run), &b);
    const lathe_status status =
        b.status == LATHE_OK ? lathe_file_write_output(path, b.data, b.len) : b.status;
    lathe_buffer_fini(&b);
    return status;
}

/* The length of a run by epochs. A plan is made without the data, too, if they are not here. */
static void count_steps(lathe_run *run)
{
    if (lathe_run_count_planned(run) != LATHE_OK)
        lathe_log(LATHE_LOG_WARN,
                  "the steps of train.epochs are not counted, and there is no schedule: %s",
                  lathe_error_message());
    lathe_error_clear();
}

/* Describes a planned run. */
static lathe_status describe(const lathe_args *args, lathe_run *run, lathe_plan_ranks *ranks,
                             lathe_buffer *text)
{
    lathe_fit fit;
    lathe_plan_figures figures;
    lathe_methods methods = {.n = 0};
    lathe_fit_check(run, &fit);
    if (fit.need > fit.have && ranks->setup.network.n_ranks == 0)
        lathe_fit_search(run, &fit); /* with ranks, this machine is not the one in question */
    LATHE_TRY(lathe_plan_figures_get(run, &figures));
    if (lathe_args_value(args, "--all-methods"))
        LATHE_TRY(lathe_methods_plan(run, 1, &methods));
    if (ranks->setup.network.n_ranks > 0)
        LATHE_TRY(lathe_plan_ranks_make(run, figures.flops, ranks));
    if (lathe_args_value(args, "--json"))
        put_json(run, &figures, &fit, &methods, ranks, text);
    else
        put_text(run, &figures, &fit, &methods, ranks, text);
    return text->status;
}

static int run_command(const lathe_args *args)
{
    lathe_run *run = NULL;
    lathe_buffer text = LATHE_BUFFER_INIT;
    const char *graph = lathe_args_value(args, "--graph");
    lathe_plan_ranks ranks;
    int code = LATHE_EXIT_OK;
    lathe_status status = lathe_plan_ranks_read(args, &ranks);
    if (status != LATHE_OK)
        goto out;
    status = lathe_run_open_for(&(lathe_run_source){args->words[0], &args->edits, NULL},
                                LATHE_OPEN_PLAN, &run);
    if (status != LATHE_OK)
        goto out;
    lathe__run_name_tokenizer(run);
    count_steps(run);
    if (graph != NULL && (status = write_graph(run, graph)) != LATHE_OK)
        goto out;
    if ((status = describe(args, run, &ranks, &text)) != LATHE_OK)
        goto out;
    lathe_print_text(stdout, text.data);
out:
    if (status != LATHE_OK)
        code = lathe_args_fail(args, status);
    lathe_buffer_fini(&text);
    lathe_run_close(run);
    return code;
}

const lathe_command lathe_cmd_plan = {
    .name = "plan",
    .arguments = "RUN.toml",
    .summary = "show peak memory by category, work per step and schedule, without running",
    .details = "Needs a config.json or a [model] table, but no weights. If train.epochs is the\n"
               "length of the run, its data are read for the schedule, where they are there.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = 1,
    .run = run_command,
};
