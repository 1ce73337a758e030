/* Takes the figures of a planned run. */
#include "run/plan/plan_figures.h"

#include "base/error.h"
#include "checkpoint/state/model_file.h"
#include "exec/program/exec.h"
#include "graph/ir/flops.h"
#include "model/family/model_size.h"
#include "optim/curvature.h"
#include "run/plan/fit_search.h"
#include "run/state/run_saved.h"

const lathe_graph *lathe_plan_graph(const lathe_run *run)
{
    return lathe_exec_graph(run->programs.train.exec);
}

/* Chooses the steps of the schedule to show, step 0 first; a short run has fewer. */
static void take_points(const lathe_run *run, lathe_plan_figures *out)
{
    const lathe_scheduler_v1 *table = run->parts.scheduler.table;
    const int64_t total = run->set.max_steps;
    for (int64_t i = 0; total > 0 && i < LATHE_PLAN_POINTS; i++) {
        const int64_t step = (total - 1) * i / (LATHE_PLAN_POINTS - 1);
        if (out->n_points > 0 && step <= out->points[out->n_points - 1].step)
            continue;
        out->points[out->n_points++] =
            (lathe_plan_point){step, table->at(run->parts.scheduler.self, step, total,
                                               run->opt.base_lr, run->at.scheduler_state)};
    }
}

static void count_packed(const lathe_graph *g, lathe_plan_packed *out)
{
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        const int is_forward = n->op != LATHE_OP_LINEAR_DX && n->op != LATHE_OP_LINEAR_DX_GELU;
        out->whole += n->op == LATHE_OP_DEQUANT;
        for (int32_t k = 0; k < n->n_in; k++) {
            const lathe_ir_value *v = n->in[k] != LATHE_NONE ? &g->values[n->in[k]] : NULL;
            if (v && v->kind == LATHE_VALUE_PLANES) {
                out->packed++;
                out->quantized += is_forward && g->params->rows[v->param]->activations != 0;
            }
        }
    }
}

static void take_work(const lathe_run *run, lathe_plan_figures *out)
{
    const lathe_graph *g = lathe_plan_graph(run);
    const double n_micro = run->set.gradient_accumulation_steps;
    const lathe_program *train = &run->programs.train;
    out->flops = lathe_graph_flops(g, 1) * n_micro + lathe_update_flops(run->opt.update) +
                 lathe_curvature_flops(&run->programs, &run->parts.optimizer);
    out->fp8_flops = lathe_graph_fp8_flops(g) * n_micro;
    out->tokens = (double)train->n_rows * (double)train->row_tokens * n_micro;
    out->flops_per_token = lathe_model_flops_per_token(&run->model, &run->params, run->set.seq_len);
    out->n_params = lathe_model_n_params(&run->params);
    out->device = run->parts.device.component->plugin->name;
    out->attention = lathe_exec_attention(train->exec);
    out->n_nodes = g->n_nodes;
    out->precision = run->set.precision;
    out->compute_dtype = run->set.compute_dtype;
    out->fp8 = run->set.fp8;
    out->row_tokens = train->row_tokens;
    count_packed(g, &out->packed);
}

static lathe_status take_short_rows(lathe_run *run, lathe_plan_figures *out)
{
    const lathe_short_programs *shorter = &run->programs.shorter;
    int64_t *rows = lathe_arena_alloc(&run->arena, (shorter->n + 1) * (int64_t)sizeof *rows);
    if (rows == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < shorter->n; i++)
        rows[i] = shorter->train[i].row_tokens;
    out->short_rows = rows;
    out->n_short = shorter->n;
    return LATHE_OK;
}

static void take_memory(const lathe_run *run, lathe_plan_figures *out)
{
    out->memory = run->planned;
    out->peak = lathe_machine_total(&run->machine, &run->planned);
    for (int32_t i = 0; i < LATHE_N_MEM; i++)
        out->is_in_peak[i] = lathe_machine_counts(&run->machine, i);
    out->has_limit = run->set.memory_limit > 0;
    if (run->store.slots_on_host)
        out->saved_state = lathe_fit_saved(run, "train.offload_optimizer");
    if (run->programs.train.n_offloaded > 0)
        out->saved_activations = lathe_fit_saved(run, "train.offload_activations");
}

lathe_status lathe_plan_figures_get(lathe_run *run, lathe_plan_figures *out)
{
    const lathe_saved_state *saved = lathe__run_saved(run);
    lathe_group_row *groups = NULL;
    *out = (lathe_plan_figures){.max_steps = run->set.max_steps,
                                .writes_checkpoints = run->set.checkpoint.dir != NULL,
                                .checkpoint_bytes = lathe__checkpoint_disk_bytes(saved),
                                .scheduler = run->parts.scheduler.component != NULL
                                                 ? run->parts.scheduler.component->plugin->name
                                                 : ""};
    take_memory(run, out);
    take_work(run, out);
    take_points(run, out);
    LATHE_TRY(take_short_rows(run, out));
    LATHE_TRY(lathe_param_groups_rows(&run->opt.groups, &run->params, &run->arena, &groups,
                                      &out->n_groups));
    out->groups = groups;
    if (out->writes_checkpoints)
        out->disk_is_known = lathe_disk_fit_check(saved, &out->disk) == LATHE_OK;
    lathe_error_clear(); /* a disk that is not known is not shown */
    return LATHE_OK;
}
