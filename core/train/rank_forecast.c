/* Forecasts a training on ranks from a planned run. */
#include "train/rank_forecast.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "exec/program/exec.h"
#include "exec/store/gather_layout.h"
#include "exec/store/grad_lives.h"
#include "graph/ir/flops.h"
#include "run/parts/run_ranks.h"
#include "run/plan/fit_search.h"
#include "run/plan/trial.h"
#include "train/train.h"

/* Measurements of the peak that differ by more than this factor are reported. */
#define BUSY_RATIO 2.0

/* Counts the weights as kernels read them, those that train, and their masters beside a copy. */
static void count_weights(const lathe_store *store, lathe_forecast_run *out)
{
    const int64_t width = lathe_dtype_bytes(store->params->compute_dtype);
    out->read_bytes = store->plane_bytes;
    for (int32_t i = 0; i < store->n_rows; i++) {
        const lathe_store_row *row = &store->rows[i];
        const lathe_param *p = store->params->rows[i];
        const int64_t n = lathe_desc_count(&p->desc);
        const int has_copy = row->shadow >= 0, has_master = row->master >= 0;
        const int64_t read = has_copy ? n * width : has_master ? n * (int64_t)sizeof(float) : 0;
        out->read_bytes += read;
        out->n_trained += p->trainable ? n : 0;
        out->trained_bytes += p->trainable ? read : 0;
        out->copied_bytes += has_copy && has_master ? n * (int64_t)sizeof(float) : 0;
    }
}

static int64_t narrow_width(const lathe_store *store)
{
    for (int32_t i = 0; i < store->n_rows; i++)
        if (store->rows[i].grad >= store->wide_grad_bytes)
            return lathe_dtype_bytes(lathe_params_grad_dtype(store->params, i));
    return (int64_t)sizeof(float);
}

/* Share of a micro-batch's work that is backward and recomputation. */
static double backward_share(const lathe_graph *g)
{
    const double all = lathe_graph_flops(g, 1);
    double forward = 0.0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].phase == LATHE_PHASE_FORWARD)
            forward += lathe_node_flops(g, i);
    return all > 0.0 ? 1.0 - forward / all : 0.0;
}

static double grad_bytes(const lathe_store *store, int32_t row)
{
    return (double)lathe_desc_count(&store->params->rows[row]->desc) *
           (double)lathe_dtype_bytes(lathe_params_grad_dtype(store->params, row));
}

/* A gradient, and the last node that uses it. */
typedef struct completion {
    int32_t last, row;
} completion;

static int by_last_node(const void *a, const void *b)
{
    const completion *x = a, *y = b;
    return x->last != y->last ? (x->last > y->last) - (x->last < y->last)
                              : (x->row > y->row) - (x->row < y->row);
}

/* Puts the gradients in the order in which the backward completes them; returns their number.
 * lives: room for all rows. */
static int32_t order_gradients(const lathe_store *store, const lathe_graph *g,
                               lathe_grad_life *lives, completion *out)
{
    int32_t n = 0;
    lathe_grad_lives(g, store->n_rows, lives);
    for (int32_t i = 0; i < store->n_rows; i++)
        if (store->rows[i].grad >= 0)
            out[n++] = (completion){lives[i].last, i};
    qsort(out, (size_t)n, sizeof *out, by_last_node);
    return n;
}

static double backward_flops(const lathe_graph *g, int32_t node)
{
    return g->nodes[node].phase == LATHE_PHASE_FORWARD ? 0.0 : lathe_node_flops(g, node);
}

/* Finds when the backward completes gradients. Its time is that of its operations. */
static lathe_status find_ready(lathe_run *run, lathe_forecast_run *out)
{
    const lathe_store *store = &run->store;
    const lathe_graph *g = lathe_exec_graph(run->programs.train.exec);
    const int64_t room = store->n_rows + 1;
    lathe_forecast_ready *ready = lathe_arena_alloc(&run->arena, room * (int64_t)sizeof *ready);
    lathe_grad_life *lives = lathe_arena_alloc(&run->arena, room * (int64_t)sizeof *lives);
    completion *order = lathe_arena_alloc(&run->arena, room * (int64_t)sizeof *order);
    double all = 0.0, flops = 0.0, bytes = 0.0, total = 0.0;
    int32_t node = 0;
    if (!ready || !lives || !order)
        return LATHE_E_NOMEM;
    const int32_t n = order_gradients(store, g, lives, order);
    for (int32_t i = 0; i < g->n_nodes; i++)
        all += backward_flops(g, i);
    for (int32_t k = 0; k < n; k++)
        total += grad_bytes(store, order[k].row);
    for (int32_t k = 0; k < n; k++) {
        for (; node <= order[k].last; node++)
            flops += backward_flops(g, node);
        bytes += grad_bytes(store, order[k].row);
        ready[k] = (lathe_forecast_ready){all > 0.0 ? flops / all : 1.0, bytes / total};
    }
    out->ready = ready;
    out->n_ready = n;
    return LATHE_OK;
}

static lathe_status measure_peak(void *arg, double *out)
{
    return lathe_peak_flops(arg, out);
}

/* The highest of several measurements of the device's peak, which other processes lower. */
static lathe_status find_peak(lathe_run *run, double *out)
{
    lathe_rate_range peak;
    LATHE_TRY(lathe_rate_measure(measure_peak, run, &peak));
    *out = peak.highest;
    if (peak.highest > BUSY_RATIO * peak.lowest)
        lathe_log(LATHE_LOG_WARN,
                  "the device reached %.3g to %.3g GFLOP/s in %d measurements, so other processes "
                  "use it: the forecast takes the highest, which may be too low; repeat it when "
                  "the device is free, or give --rate or --step-time",
                  peak.lowest / 1e9, peak.highest / 1e9, peak.n);
    return LATHE_OK;
}

static lathe_status settle_seconds(lathe_run *run, double step_flops, lathe_plan_ranks *x)
{
    double peak = 0.0;
    if (x->seconds > 0.0) {
        (void)snprintf(x->from, sizeof x->from, "given");
        return LATHE_OK;
    }
    if (x->rate > 0.0) {
        (void)snprintf(x->from, sizeof x->from, "%.4g TFLOP at %.4g TFLOP/s, as given",
                       step_flops / 1e12, x->rate / 1e12);
        x->seconds = step_flops / x->rate;
        return LATHE_OK;
    }
    LATHE_TRY(find_peak(run, &peak));
    if (peak <= 0.0)
        return lathe_error(LATHE_E_ARG,
                           "the peak of device \"%s\" cannot be measured; give --step-time or "
                           "--rate",
                           run->parts.device.component->plugin->name);
    x->seconds = step_flops / (x->share * peak);
    (void)snprintf(x->from, sizeof x->from, "%.3g of the %.3g GFLOP/s that this device reaches",
                   x->share, peak / 1e9);
    return LATHE_OK;
}

/* The settings of [parallel] that make a run train with a strategy. */
static void settings_of(const lathe_plan_ranks *x, int32_t strategy, lathe_edits *out)
{
    static const char *const dtypes[] = {"fp32", "bf16", "int8", "int4"}; /* of diloco's rows */
    const int is_hybrid = strategy == LATHE_FORECAST_HYBRID;
    const int is_diloco = strategy >= LATHE_FORECAST_DILOCO;
    const lathe_network *net = &x->setup.network;
    const int32_t islands = net->n_islands > 1 ? net->n_islands : net->n_ranks;
    const int32_t shard = is_hybrid   ? LATHE_SHARD_PARAMETERS
                          : is_diloco ? LATHE_SHARD_NONE
                                      : strategy;
    lathe_edits_int(out, LATHE_BY_TRIAL, "parallel.diloco_islands", is_diloco ? islands : 0);
    lathe_edits_int(out, LATHE_BY_TRIAL, "parallel.shard_ranks",
                    is_hybrid ? x->setup.shard_ranks : 0);
    lathe_edits_text(out, LATHE_BY_TRIAL, "parallel.shard", lathe_shard_name(shard));
    if (!is_diloco)
        return;
    lathe_edits_int(out, LATHE_BY_TRIAL, "parallel.diloco_inner_steps", x->setup.inner_steps);
    lathe_edits_text(out, LATHE_BY_TRIAL, "parallel.diloco_pseudo_gradient_dtype",
                     dtypes[strategy - LATHE_FORECAST_DILOCO]);
}

/* Replaces the prediction of a row's memory by the plan of its rank 0. */
static lathe_status plan_row(const lathe_run *run, int32_t strategy, lathe_plan_ranks *x)
{
    lathe_edits settings = {.n = 0};
    lathe_run *planned = NULL;
    lathe_fit fit;
    settings_of(x, strategy, &settings);
    const lathe_status status =
        lathe_run_open_as_rank(run, x->setup.network.n_ranks, &settings, &planned);
    lathe_edits_fini(&settings);
    if (status == LATHE_E_NOMEM)
        return status;
    x->is_planned[strategy] = status == LATHE_OK;
    if (status == LATHE_OK) {
        x->rows[strategy].memory = planned->planned;
        x->rows[strategy].outer_bytes = 0; /* it is among them */
        lathe_fit_check(planned, &fit);
        x->is_too_large[strategy] = run->set.memory_limit > 0 && fit.need > fit.have;
    }
    if (status == LATHE_OK && strategy == LATHE_FORECAST_ZERO3)
        x->whole_bytes = planned->store.gathers->whole_bytes;
    if (status != LATHE_OK)
        (void)lathe_error_line(x->why[strategy], sizeof x->why[strategy]);
    lathe_run_close(planned);
    lathe_error_clear();
    return LATHE_OK;
}

/* If train.memory_limit, which stands for the memory of each rank, is too small for all strategies
 * that train: looks for what would fit. */
static void search(const lathe_run *run, lathe_plan_ranks *x)
{
    int32_t n_planned = 0, n_fit = 0;
    for (int32_t i = 0; i < LATHE_N_FORECASTS; i++) {
        n_planned += x->is_planned[i];
        n_fit += x->is_planned[i] && !x->is_too_large[i];
    }
    if (run->set.memory_limit <= 0 || n_planned == 0 || n_fit > 0)
        return;
    lathe_fit_check(run, &x->fit);
    lathe_fit_search_ranks(run, x->setup.network.n_ranks, &x->fit);
    x->fits_none = 1;
}

lathe_status lathe_plan_ranks_make(lathe_run *run, double step_flops, lathe_plan_ranks *x)
{
    const lathe_store *store = &run->store;
    LATHE_TRY(settle_seconds(run, step_flops, x));
    if (lathe__run_check_ranks(run) != LATHE_OK)
        (void)snprintf(x->refusal, sizeof x->refusal, "%s", lathe_error_message());
    lathe_error_clear();
    x->run = (lathe_forecast_run){
        .planned = run->planned,
        .weight_bytes = store->master_bytes + store->shadow_bytes,
        .average_bytes = store->average_bytes,
        .plane_bytes = store->plane_bytes,
        .grad_bytes = store->grad_bytes,
        .wide_grad_bytes = store->wide_grad_bytes,
        .slot_bytes = store->slot_bytes,
        .slot_category = store->slots_on_host ? LATHE_MEM_OFFLOAD : LATHE_MEM_OPTIMIZER,
        .narrow_width = (int32_t)narrow_width(store),
        .bucket_bytes = run->set.bucket_bytes,
        .n_blocks = run->model.n_layers > 0 ? (int32_t)run->model.n_layers : 1,
        .n_micro = run->set.gradient_accumulation_steps,
        .seconds = x->seconds,
        .backward = backward_share(lathe_exec_graph(run->programs.train.exec))};
    count_weights(store, &x->run);
    LATHE_TRY(find_ready(run, &x->run));
    lathe_forecast_make(&x->run, &x->setup, x->rows);
    for (int32_t i = 0; i < LATHE_N_FORECASTS && !x->refusal[0]; i++)
        if (lathe_forecast_is_built(i) && (i != LATHE_FORECAST_HYBRID || x->setup.shard_ranks > 0))
            LATHE_TRY(plan_row(run, i, x));
    search(run, x);
    x->has_limit = run->set.memory_limit > 0;
    for (int32_t i = 0; i < LATHE_N_FORECASTS; i++)
        x->peaks[i] =
            lathe_machine_total(&run->machine, &x->rows[i].memory) + x->rows[i].outer_bytes;
    return LATHE_OK;
}
