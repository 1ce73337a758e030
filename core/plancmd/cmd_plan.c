/* lathe plan: prints memory, work and schedule of a run before it runs. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/print.h"
#include "checkpoint/disk_fit.h"
#include "checkpoint/model_file.h"
#include "ir/dump.h"
#include "ir/flops.h"
#include "model/model_size.h"
#include "opening/fit_search.h"
#include "opening/methods.h"
#include "opening/opening.h"
#include "plancmd/plan_commands.h"
#include "plancmd/plan_ranks.h"
#include "plancmd/step_count.h"
#include "run/run_saved.h"
#include "update/curvature.h"

static const lathe_option options[] = {
    {"--json", NULL, "print one JSON object"},
    {"--all-methods", NULL, "also show what each fine-tuning method needs, and which ones fit"},
    {"--graph", "FILE", "also write the training graph to FILE: .dot for Graphviz, otherwise text"},
    LATHE_PLAN_RANKS_OPTIONS,
};

/* Number of points of the schedule that are shown. */
#define N_POINTS 11

static double lr_at(const lathe_run *run, int64_t step)
{
    const lathe_scheduler_v1 *table = run->parts.scheduler.table;
    return table->at(run->parts.scheduler.self, step, run->set.max_steps, run->opt.base_lr,
                     run->at.scheduler_state);
}

/* Chooses the steps of the schedule to show, evenly over the run, step 0 first; a short run has
 * fewer. Returns their number. */
static int32_t points(const lathe_run *run, int64_t steps[N_POINTS])
{
    int32_t n = 0;
    for (int64_t i = 0; run->set.max_steps > 0 && i < N_POINTS; i++) {
        const int64_t step = (run->set.max_steps - 1) * i / (N_POINTS - 1);
        if (n == 0 || step > steps[n - 1])
            steps[n++] = step;
    }
    return n;
}

static double step_flops(const lathe_run *run)
{
    return lathe_graph_flops(lathe_exec_graph(run->programs.train.exec), 1) *
               run->set.gradient_accumulation_steps +
           lathe_update_flops(run->opt.update) +
           lathe_curvature_flops(&run->programs, &run->parts.optimizer);
}

static double fp8_flops(const lathe_run *run)
{
    return lathe_graph_fp8_flops(lathe_exec_graph(run->programs.train.exec)) *
           run->set.gradient_accumulation_steps;
}

static double step_tokens(const lathe_run *run)
{
    return (double)run->programs.train.n_rows * (double)run->programs.train.row_tokens *
           run->set.gradient_accumulation_steps;
}

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

/* Bytes of device memory that the options for offloading save. */
typedef struct savings {
    int64_t state, values; /* bytes; 0: the option is off or changes nothing */
} savings;

static savings find_savings(const lathe_run *run)
{
    savings s = {0, 0};
    if (run->store.slots_on_host)
        s.state = lathe_fit_saved(run, "train.offload_optimizer");
    if (run->programs.train.n_offloaded > 0)
        s.values = lathe_fit_saved(run, "train.offload_activations");
    return s;
}

static void put_savings(const savings *s, lathe_buffer *b)
{
    const struct {
        const char *key;
        int64_t bytes;
    } all[] = {{"offload_optimizer", s->state}, {"offload_activations", s->values}};
    for (int i = 0; i < 2; i++)
        if (all[i].bytes != 0)
            lathe_buffer_printf(b, "  train.%s: %.1f MiB less on the device\n", all[i].key,
                                (double)all[i].bytes / (1024.0 * 1024.0));
}

/* Prints the number of checkpoints, and whether the disk has room for them. */
static void put_disk(lathe_run *run, int is_json, lathe_buffer *b)
{
    lathe_disk_fit fit;
    if (!run->set.checkpoint.dir || lathe_disk_fit_check(lathe__run_saved(run), &fit) != LATHE_OK)
        return;
    if (!is_json) {
        lathe_buffer_puts(b, "\n  ");
        lathe_disk_fit_text(lathe__run_saved(run), &fit, b);
        return;
    }
    lathe_buffer_printf(
        b, "  \"checkpoints\": {\"bytes_each\": %lld, \"at_a_time\": ", (long long)fit.each);
    if (fit.most > 0)
        lathe_buffer_printf(b, "%lld", (long long)fit.most);
    else
        lathe_buffer_puts(b, "null");
    if (fit.have >= 0)
        lathe_buffer_printf(b, ", \"bytes_free\": %lld", (long long)fit.have);
    else
        lathe_buffer_puts(b, ", \"bytes_free\": null");
    lathe_buffer_printf(b, ", \"fit\": %s},\n", fit.fits ? "true" : "false");
}

/* Prints rate, weight decay and size of the groups of parameters, without the schedule. */
static void put_groups(const lathe_run *run, int is_json, lathe_buffer *b)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_group_row *rows = NULL;
    int32_t n = 0;
    if (lathe_param_groups_rows(&run->opt.groups, &run->params, &arena, &rows, &n) != LATHE_OK) {
        b->status = LATHE_E_NOMEM;
        n = 0;
    }
    lathe_buffer_puts(b, is_json ? "  \"groups\": ["
                                 : "groups           part          lr  weight decay   tensors   "
                                   "parameters\n");
    for (int32_t i = 0; i < n; i++) {
        const lathe_group_row *r = &rows[i];
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
    lathe_arena_fini(&arena);
}

/* Products of a step with quantized weights. */
typedef struct packed_count {
    int32_t packed;    /* read the weight from its planes */
    int32_t quantized; /* of these: quantize their inputs */
    int32_t whole;     /* DEQUANT nodes, which decode a weight whole */
} packed_count;

static packed_count count_packed(const lathe_run *run)
{
    const lathe_graph *g = lathe_exec_graph(run->programs.train.exec);
    packed_count c = {0, 0, 0};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        const int is_forward = n->op != LATHE_OP_LINEAR_DX && n->op != LATHE_OP_LINEAR_DX_GELU;
        c.whole += n->op == LATHE_OP_DEQUANT;
        for (int32_t k = 0; k < n->n_in; k++) {
            const lathe_ir_value *v = n->in[k] != LATHE_NONE ? &g->values[n->in[k]] : NULL;
            if (v && v->kind == LATHE_VALUE_PLANES) {
                c.packed++;
                c.quantized += is_forward && g->params->rows[v->param]->activations != 0;
            }
        }
    }
    return c;
}

static void put_json_packed(const lathe_run *run, lathe_buffer *b)
{
    const packed_count c = count_packed(run);
    lathe_buffer_printf(b,
                        "  \"packed_products\": %d,\n  \"quantized_activations\": %d,\n"
                        "  \"decoded_weights\": %d,\n",
                        c.packed, c.quantized, c.whole);
}

static void put_json(lathe_run *run, const lathe_fit *fit, const savings *s,
                     const lathe_methods *methods, const lathe_plan_ranks *ranks, lathe_buffer *b)
{
    lathe_buffer_puts(b, "{\n  \"memory\": {");
    for (int32_t i = 0; i < LATHE_N_MEM; i++)
        lathe_buffer_printf(b, "\"%s\": %lld, ", lathe_mem_name(i), (long long)run->planned.by[i]);
    lathe_buffer_printf(b, "\"peak\": %lld},\n",
                        (long long)lathe_machine_total(&run->machine, &run->planned));
    put_json_fit(fit, b);
    lathe_buffer_printf(b, "  \"checkpoint_bytes\": %lld,\n",
                        (long long)lathe__checkpoint_disk_bytes(lathe__run_saved(run)));
    lathe_buffer_printf(
        b, "  \"saved\": {\"offload_optimizer\": %lld, \"offload_activations\": %lld},\n",
        (long long)s->state, (long long)s->values);
    lathe_buffer_printf(
        b,
        "  \"parameters\": %lld,\n  \"flops_per_step\": %.0f,\n  \"model_flops_per_token\": %.0f,\n"
        "  \"tokens_per_step\": %.0f,\n",
        (long long)lathe_model_n_params(&run->params), step_flops(run),
        lathe_model_flops_per_token(&run->model, &run->params, run->set.seq_len), step_tokens(run));
    lathe_buffer_puts(b, "  \"precision\": ");
    lathe_precision_json(run->set.precision, run->set.compute_dtype, run->set.fp8, b);
    lathe_buffer_printf(b, ",\n  \"fp8_flops_per_step\": %.0f,\n", fp8_flops(run));
    put_json_packed(run, b);
    lathe_buffer_printf(b, "  \"device\": \"%s\",\n  \"attention\": \"%s\",\n  \"nodes\": %d,\n",
                        run->parts.device.component->plugin->name,
                        lathe_exec_attention(run->programs.train.exec),
                        lathe_exec_graph(run->programs.train.exec)->n_nodes);
    put_disk(run, 1, b);
    put_groups(run, 1, b);
    if (methods->n > 0) {
        lathe_buffer_puts(b, "  \"methods\": ");
        lathe_methods_json(methods, b);
        lathe_buffer_puts(b, ",\n");
    }
    if (ranks->seconds > 0.0)
        lathe_plan_ranks_json(run, ranks, b);
    lathe_buffer_printf(b, "  \"max_steps\": %lld,\n  \"schedule\": [",
                        (long long)run->set.max_steps);
    int64_t steps[N_POINTS];
    const int32_t n = points(run, steps);
    for (int32_t i = 0; i < n; i++)
        lathe_buffer_printf(b, "%s{\"step\": %lld, \"lr\": %.9g}", i ? ", " : "",
                            (long long)steps[i] + 1, lr_at(run, steps[i]));
    lathe_buffer_puts(b, "]\n}\n");
}

/* Prints a line such as "precision fp8 rowwise, 93 % of the work; the rest bf16". */
static void put_precision(const lathe_run *run, lathe_buffer *b)
{
    const lathe_settings *s = &run->set;
    const char *used = lathe_precision_used(s->compute_dtype, s->fp8);
    lathe_buffer_printf(b, "  precision %s", used);
    if (s->fp8 != 0)
        lathe_buffer_printf(b, " %s, %.0f %% of the work; the rest %s",
                            lathe_fp8_recipe_name(s->fp8), 100.0 * fp8_flops(run) / step_flops(run),
                            lathe_precision_name(s->compute_dtype));
    if (strcmp(lathe_precision_name(s->precision), used) != 0)
        lathe_buffer_printf(b, " for %s", lathe_precision_name(s->precision));
    lathe_buffer_puts(b, "\n");
}

static void put_packed(const lathe_run *run, lathe_buffer *b)
{
    const packed_count c = count_packed(run);
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
static void put_row_lengths(const lathe_programs *programs, lathe_buffer *b)
{
    const lathe_short_programs *shorter = &programs->shorter;
    if (shorter->n == 0)
        return;
    lathe_buffer_puts(b, "  at most: a batch is computed with rows of ");
    for (int32_t i = 0; i < shorter->n; i++)
        lathe_buffer_printf(b, "%s%lld", i ? ", " : "", (long long)shorter->train[i].row_tokens);
    lathe_buffer_printf(b, " or %lld tokens, as its longest sequence needs\n",
                        (long long)programs->train.row_tokens);
}

static void put_text(lathe_run *run, const lathe_fit *fit, const savings *s,
                     const lathe_methods *methods, const lathe_plan_ranks *ranks, lathe_buffer *b)
{
    const double mib = 1024.0 * 1024.0, flops = step_flops(run);
    const int is_large = flops >= 1e11;
    lathe_buffer_puts(b, "memory                       bytes         MiB\n");
    for (int32_t i = 0; i < LATHE_N_MEM; i++)
        if (run->planned.by[i])
            lathe_buffer_printf(b, "  %-14s %17lld %11.1f%s\n", lathe_mem_name(i),
                                (long long)run->planned.by[i], (double)run->planned.by[i] / mib,
                                lathe_machine_shares(&run->machine) || !lathe_mem_is_host(i)
                                    ? ""
                                    : "  of the host");
    const int64_t total = lathe_machine_total(&run->machine, &run->planned);
    lathe_buffer_printf(b, "  %-14s %17lld %11.1f\n", "peak", (long long)total,
                        (double)total / mib);
    put_savings(s, b);
    lathe_buffer_puts(b, "  ");
    lathe_fit_text(fit, b);
    const int64_t disk = lathe__checkpoint_disk_bytes(lathe__run_saved(run));
    if (run->set.checkpoint.dir)
        lathe_buffer_printf(b, "\n  a checkpoint takes up to %lld bytes, %.1f MiB, on the disk",
                            (long long)disk, (double)disk / mib);
    put_disk(run, 0, b);
    lathe_buffer_printf(
        b, "\nwork\n  %.3f %s and %.0f tokens per step; %d nodes; device %s, attention %s\n",
        is_large ? flops / 1e12 : flops / 1e9, is_large ? "TFLOP" : "GFLOP", step_tokens(run),
        lathe_exec_graph(run->programs.train.exec)->n_nodes,
        run->parts.device.component->plugin->name, lathe_exec_attention(run->programs.train.exec));
    put_row_lengths(&run->programs, b);
    put_precision(run, b);
    put_packed(run, b);
    put_groups(run, 0, b);
    if (methods->n > 0)
        lathe_methods_text(methods, b);
    if (ranks->seconds > 0.0)
        lathe_plan_ranks_text(run, ranks, b);
    if (run->set.max_steps <= 0)
        return;
    lathe_buffer_printf(b, "schedule\n  %s over %lld steps\n",
                        run->parts.scheduler.component->plugin->name,
                        (long long)run->set.max_steps);
    int64_t steps[N_POINTS];
    const int32_t n = points(run, steps);
    for (int32_t i = 0; i < n; i++)
        lathe_buffer_printf(b, "  step %-10lld lr %.3e\n", (long long)steps[i] + 1,
                            lr_at(run, steps[i]));
}

static lathe_status write_graph(const lathe_run *run, const char *path)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    const size_t n = strlen(path);
    if (n > 4 && strcmp(path + n - 4, ".dot") == 0)
        lathe_graph_dot(lathe_exec_graph(run->programs.train.exec), &b);
    else
        lathe_graph_dump(lathe_exec_graph(run->programs.train.exec), &b);
    const lathe_status status =
        b.status == LATHE_OK ? lathe_file_write_output(path, b.data, b.len) : b.status;
    lathe_buffer_fini(&b);
    return status;
}

/* The length of a run by epochs. A plan is made without the data, too, if they are not here. */
static void count_steps(const lathe_args *args, lathe_run *run)
{
    int64_t n = 0;
    if (run->set.max_steps > 0 || !run->set.datasets)
        return;
    if (lathe_count_steps(args->words[0], args->overrides, args->n_overrides, &n) == LATHE_OK)
        run->set.max_steps = n;
    else
        lathe_log(LATHE_LOG_WARN,
                  "the steps of train.epochs are not counted, and there is no schedule: %s",
                  lathe_error_message());
    lathe_error_clear();
}

static int run_command(const lathe_args *args)
{
    lathe_run *run = NULL;
    lathe_buffer text = LATHE_BUFFER_INIT;
    const char *graph = lathe_args_value(args, "--graph");
    lathe_plan_ranks ranks;
    lathe_status status = lathe_plan_ranks_read(args, &ranks);
    if (status == LATHE_OK)
        status = lathe_run_open_mode(args->words[0], args->overrides, args->n_overrides,
                                     LATHE_OPEN_PLAN, &run);
    if (status == LATHE_OK)
        lathe__run_name_tokenizer(run);
    if (status == LATHE_OK)
        count_steps(args, run);
    if (status == LATHE_OK && graph)
        status = write_graph(run, graph);
    if (status == LATHE_OK) {
        lathe_fit fit;
        lathe_fit_check(run, &fit);
        if (fit.need > fit.have && ranks.setup.network.n_ranks == 0)
            lathe_fit_search(run, &fit); /* with ranks, this machine is not the one in question */
        const savings saved = find_savings(run);
        lathe_methods methods = {.n = 0};
        if (lathe_args_value(args, "--all-methods"))
            status = lathe_methods_plan(run, 1, &methods);
        if (status == LATHE_OK && ranks.setup.network.n_ranks > 0)
            status = lathe_plan_ranks_make(run, step_flops(run), &ranks);
        if (lathe_args_value(args, "--json"))
            put_json(run, &fit, &saved, &methods, &ranks, &text);
        else
            put_text(run, &fit, &saved, &methods, &ranks, &text);
        status = status == LATHE_OK ? text.status : status;
    }
    if (status == LATHE_OK)
        lathe_print_text(stdout, text.data);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
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
