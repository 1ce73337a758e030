/* Updates MATRIX parameters with the graph that the optimizer emits. */
#include "optim/update_matrices.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/transfer.h"
#include "graph/passes/passes.h"

#define PIECE 16384 /* elements of a sum of UPDATE_SQUARES */

/* A STATE value of the graph, and the optimizer slot to which it is bound. */
typedef struct slot_value {
    lathe_val value;
    int32_t param, slot;
} slot_value;

struct lathe_matrices {
    lathe_machine *m;
    lathe_store *store;
    const lathe_instance *optimizer;
    const lathe_param_groups *groups;
    const lathe_offload *offload; /* NULL: the state is in the store */
    lathe_exec *exec;
    lathe_val scalars; /* STATE in the graph */
    slot_value *slots; /* [n_slots] */
    int32_t n_slots;
    lathe_val *sum_vals; /* [n_sum_vals] STATE values that UPDATE_SQUARES write, in order */
    int32_t n_sum_vals;
    int64_t n_sums;     /* total number of sums */
    double *sums;       /* device */
    double *host_sums;  /* the host's view of them */
    int32_t *part_ends; /* with an offload: end of each part's nodes */
};

static lathe_status no_memory(void)
{
    return lathe_error(LATHE_E_NOMEM, "no memory for the update of matrices");
}

/* ---- the graph ---- */

/* Inserts an UPDATE_SQUARES before the APPLY_UPDATE `node`, whose index grows by one. *out_sums:
 * the STATE value that the new node writes. */
static lathe_status measure_node(lathe_graph *g, int32_t node, lathe_val *out_sums)
{
    const int64_t n = lathe_desc_count(&g->values[g->nodes[node].in[0]].desc);
    LATHE_TRY(lathe_graph_state(g, "update_squares",
                                lathe_desc_1d(LATHE_F64, (n + PIECE - 1) / PIECE), out_sums));
    if (lathe__graph_append(g) == NULL)
        return LATHE_E_NOMEM;
    lathe_ir_node *at = &g->nodes[node];
    lathe_ir_node measure = g->nodes[g->n_nodes - 1];
    measure.op = LATHE_OP_UPDATE_SQUARES;
    measure.attrs = at->attrs;
    measure.n_in = 3;
    measure.n_out = 1;
    memcpy(measure.in, at->in, sizeof measure.in);
    measure.out[0] = *out_sums;
    measure.label = at->label;
    memmove(at + 1, at, (size_t)(g->n_nodes - 1 - node) * sizeof *at);
    *at = measure;
    for (lathe_val v = 0; v < g->n_values; v++)
        g->values[v].node += g->values[v].node >= node;
    return LATHE_OK;
}

/* Inserts an UPDATE_SQUARES before every APPLY_UPDATE, from node `begin` on. */
static lathe_status measure_updates(lathe_matrices *x, lathe_graph *g, int32_t begin)
{
    for (int32_t i = begin; i < g->n_nodes; i++) {
        if (g->nodes[i].op != LATHE_OP_APPLY_UPDATE)
            continue;
        lathe_val *grown = realloc(x->sum_vals, ((size_t)x->n_sum_vals + 1) * sizeof *x->sum_vals);
        if (grown == NULL)
            return no_memory();
        x->sum_vals = grown;
        LATHE_TRY(measure_node(g, i, &x->sum_vals[x->n_sum_vals]));
        x->n_sums += lathe_desc_count(&g->values[x->sum_vals[x->n_sum_vals++]].desc);
        i++; /* skip the APPLY_UPDATE, which moved by one */
    }
    return LATHE_OK;
}

/* The gradient of a MATRIX parameter, in f32. */
static lathe_status matrix_grad(lathe_graph *g, int32_t param, const char *label, lathe_val *out)
{
    const lathe_op_attrs attrs = {.dtype = LATHE_F32};
    lathe_val grad;
    LATHE_TRY(lathe_graph_grad(g, param, &grad));
    *out = grad;
    if (g->values[grad].desc.dtype == LATHE_F32)
        return LATHE_OK;
    return lathe_graph_node(g, LATHE_OP_CAST, &attrs, &grad, 1, out, 1, -1, label);
}

/* Emits the cast that refreshes the compute copy from the master. Its input is the output of the
 * last APPLY_UPDATE among the nodes from `begin` on. */
static lathe_status build_refresh(const lathe_matrices *x, lathe_graph *g, int32_t param,
                                  lathe_val master, int32_t begin)
{
    const char *label = x->store->params->rows[param]->name;
    lathe_val updated = LATHE_NONE, shadow;
    for (int32_t i = begin; i < g->n_nodes; i++)
        if (g->nodes[i].op == LATHE_OP_APPLY_UPDATE &&
            lathe_graph_root(g, g->nodes[i].out[0]) == master)
            updated = g->nodes[i].out[0];
    if (updated == LATHE_NONE)
        return lathe_error(LATHE_E_PLUGIN, "optimizer %s emitted no APPLY_UPDATE for '%s'",
                           x->optimizer->component->plugin->name, label);
    LATHE_TRY(lathe_graph_param(g, param, &shadow));
    lathe_ir_node *cast = lathe__graph_append(g);
    if (cast == NULL)
        return LATHE_E_NOMEM;
    cast->op = LATHE_OP_CAST;
    cast->n_in = cast->n_out = 1;
    cast->attrs.dtype = g->values[shadow].desc.dtype;
    cast->in[0] = updated;
    cast->out[0] = shadow;
    cast->label = label;
    return LATHE_OK;
}

/* Emits the update of one parameter, the sum of its squares, and the refresh of its compute
 * copy. */
static lathe_status build_matrix(lathe_matrices *x, lathe_graph *g, int32_t param)
{
    const lathe_optimizer_v1 *table = x->optimizer->table;
    const lathe_param_info info = lathe_params_info(x->store->params, param);
    const lathe_store_row *row = &x->store->rows[param];
    lathe_val master, grad, slots[LATHE_MAX_SLOTS];
    LATHE_TRY(lathe_graph_master(g, param, &master));
    LATHE_TRY(matrix_grad(g, param, info.name, &grad));
    for (int32_t k = 0; k < row->n_slots; k++) {
        LATHE_TRY(lathe_graph_state(g, row->slots[k].name, row->slots[k].desc, &slots[k]));
        x->slots[x->n_slots++] = (slot_value){slots[k], param, k};
    }
    const int32_t begin = g->n_nodes;
    if (!LATHE_HAS(table, build))
        return lathe_error(LATHE_E_PLUGIN,
                           "optimizer %s declares '%s' as a matrix but has no build()",
                           x->optimizer->component->plugin->name, info.name);
    LATHE_TRY(table->build(x->optimizer->self, lathe_graph_api_get(), g, &info,
                           x->groups->lr_mult[param], x->groups->decay_mult[param], master, grad,
                           slots, x->scalars));
    LATHE_TRY(measure_updates(x, g, begin));
    return lathe_params_value_dtype(x->store->params, param) == LATHE_F32
               ? LATHE_OK
               : build_refresh(x, g, param, master, begin);
}

static lathe_status build(lathe_matrices *x, const int32_t *params, int32_t n)
{
    lathe_graph *g;
    LATHE_TRY(lathe_graph_create(x->store->params, &g));
    lathe_status status =
        lathe_graph_state(g, "scalars", lathe_desc_1d(LATHE_F32, LATHE_N_SCALARS), &x->scalars);
    for (int32_t i = 0; i < n && status == LATHE_OK; i++)
        status = build_matrix(x, g, params[i]);
    if (status == LATHE_OK)
        status = lathe_pass_dead(g);
    if (status == LATHE_OK)
        status = lathe_pass_inplace(g);
    if (status != LATHE_OK) {
        lathe_graph_destroy(g);
        return lathe_error_context(status, "optimizer %s", x->optimizer->component->plugin->name);
    }
    return lathe_exec_create(x->m, g, &x->exec);
}

lathe_status lathe_matrices_create(lathe_machine *m, lathe_store *store,
                                   const lathe_instance *optimizer,
                                   const lathe_param_groups *groups, const int32_t *params,
                                   int32_t n, lathe_matrices **out)
{
    lathe_matrices *x = calloc(1, sizeof *x);
    if (x == NULL)
        return no_memory();
    x->m = m;
    x->store = store;
    x->optimizer = optimizer;
    x->groups = groups;
    x->slots = calloc((size_t)n * LATHE_MAX_SLOTS, sizeof *x->slots);
    const lathe_status status = x->slots ? build(x, params, n) : no_memory();
    if (status != LATHE_OK) {
        lathe_matrices_destroy(x);
        return status;
    }
    *out = x;
    return LATHE_OK;
}

void lathe_matrices_destroy(lathe_matrices *x)
{
    if (x == NULL)
        return;
    lathe_exec_destroy(x->exec);
    free(x->slots);
    free(x->sum_vals);
    free(x->part_ends);
    free(x);
}

lathe_exec *lathe_matrices_exec(const lathe_matrices *x)
{
    return x->exec;
}

/* ---- parts ---- */

/* Returns the part whose state a node uses, from the parts of the values; -1: none. */
static int32_t part_of(const lathe_graph *g, const lathe_ir_node *node, const int32_t *part)
{
    int32_t found = -1;
    for (int32_t k = 0; k < node->n_in + node->n_out; k++) {
        const lathe_val v = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
        const int32_t p = v == LATHE_NONE ? -1 : part[lathe_graph_root(g, v)];
        found = p > found ? p : found;
    }
    return found;
}

lathe_status lathe_matrices_join(lathe_matrices *x, const lathe_offload *offload)
{
    const lathe_graph *g = lathe_exec_graph(x->exec);
    const int32_t first = lathe_offload_n_tensor_parts(offload);
    const int32_t n = lathe_offload_n_parts(offload) - first;
    int32_t *part = malloc(((size_t)g->n_values + 1) * sizeof *part), now = 0;
    int32_t *ends = calloc((size_t)n + 1, sizeof *ends);
    x->offload = offload;
    x->part_ends = ends;
    if (part == NULL || ends == NULL) {
        free(part);
        return no_memory();
    }
    memset(part, 0xff, (size_t)g->n_values * sizeof *part);
    for (int32_t i = 0; i < x->n_slots; i++)
        part[x->slots[i].value] = lathe_offload_part_of(offload, x->slots[i].param) - first;
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < g->n_nodes && status == LATHE_OK; i++) {
        const int32_t at = part_of(g, &g->nodes[i], part);
        if (at < 0)
            continue;
        if (at < now)
            status = lathe_error(LATHE_E_STATE,
                                 "part %d of the matrices' state is needed after part %d", at, now);
        for (; now < at; now++)
            ends[now + 1] = ends[now];
        ends[now] = i + 1;
    }
    /* The nodes that follow the last node that uses a part's state run with the next part. */
    for (; now + 1 < n; now++)
        ends[now + 1] = ends[now];
    ends[n - 1] = g->n_nodes;
    free(part);
    return status;
}

/* ---- memory ---- */

int64_t lathe_matrices_bytes(const lathe_matrices *x)
{
    return (x->n_sums * (int64_t)sizeof(double) + 63) / 64 * 64;
}

int64_t lathe_matrices_staging_bytes(const lathe_matrices *x)
{
    return lathe_view_bytes(x->m, lathe_matrices_bytes(x));
}

lathe_status lathe_matrices_place(lathe_matrices *x, void *arena, void *own, void *staging)
{
    lathe_store view = *x->store; /* this graph reads the sums, not what the backward wrote */
    view.fresh = NULL;
    x->sums = own;
    x->host_sums = lathe_view_at(x->m, own, staging);
    LATHE_TRY(lathe_exec_place(x->exec, &view, arena));
    lathe_exec_bind(x->exec, x->scalars, x->store->step->scalars);
    double *sums = x->sums;
    for (int32_t i = 0; i < x->n_sum_vals; i++) {
        lathe_exec_bind(x->exec, x->sum_vals[i], sums);
        sums += lathe_desc_count(&lathe_exec_graph(x->exec)->values[x->sum_vals[i]].desc);
    }
    for (int32_t i = 0; i < x->n_slots; i++) {
        const slot_value *s = &x->slots[i];
        lathe_exec_bind(x->exec, s->value,
                        x->offload ? lathe_offload_slot(x->offload, s->param, s->slot)
                                   : lathe_store_slot(x->store, s->param, s->slot));
    }
    return LATHE_OK;
}

/* ---- a step ---- */

lathe_status lathe_matrices_run(const lathe_matrices *x)
{
    return lathe_exec_run(x->exec, 0);
}

lathe_status lathe_matrices_run_part(const lathe_matrices *x, int32_t part)
{
    return lathe_exec_run_range(x->exec, part > 0 ? x->part_ends[part - 1] : 0, x->part_ends[part],
                                0);
}

lathe_status lathe_matrices_fetch(const lathe_matrices *x)
{
    return lathe_fetch_pinned(x->m, x->host_sums, x->sums, x->n_sums * (int64_t)sizeof(double));
}

void lathe_matrices_figures(const lathe_matrices *x, double *io_update2)
{
    const double *sums = x->host_sums;
    for (int32_t i = 0; i < x->n_sum_vals; i++) {
        const int64_t n = lathe_desc_count(&lathe_exec_graph(x->exec)->values[x->sum_vals[i]].desc);
        double total = 0.0;
        for (int64_t k = 0; k < n; k++)
            total += *sums++;
        *io_update2 += total;
    }
}
