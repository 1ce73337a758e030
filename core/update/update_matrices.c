/* Matrix parameters updated by their graph, and the norms of what it did. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "update/update_ranges.h"

#define CHUNK 16384
#define PARTS 256

typedef struct job {
    const float *p;
    const void *u;
    int32_t u_dtype;
    double scale, alpha, beta;
    int64_t n, first; /* first chunk of this round */
    double part[PARTS];
} job;

static double value(const void *x, int32_t dtype, int64_t i)
{
    if (dtype == LATHE_F32)
        return (double)((const float *)x)[i];
    const uint16_t bits = ((const uint16_t *)x)[i];
    return (double)(dtype == LATHE_BF16 ? lathe_bf16_to_f32(bits) : lathe_f16_to_f32(bits));
}

static void over_chunks(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    job *j = arg;
    (void)worker;
    for (int64_t c = begin; c < end; c++) {
        const int64_t from = (j->first + c) * CHUNK;
        const int64_t to = from + CHUNK < j->n ? from + CHUNK : j->n;
        double sum = 0.0;
        for (int64_t i = from; i < to; i++) {
            const double d =
                j->scale * (j->alpha * value(j->u, j->u_dtype, i) + j->beta * (double)j->p[i]);
            sum += d * d;
        }
        j->part[c] = sum;
    }
}

/* Sum of squares of what an APPLY_UPDATE is about to take off its parameter. */
static double update2_of(lathe_exec *x, const lathe_ir_node *n)
{
    const lathe_graph *g = lathe_exec_graph(x);
    const float *scalars = lathe_exec_data(x, n->in[2]);
    const lathe_desc *p = &g->values[n->in[0]].desc;
    const int64_t n_chunks = (lathe_desc_count(p) + CHUNK - 1) / CHUNK;
    double total = 0.0;
    job j = {.p = lathe_exec_data(x, n->in[0]),
             .u = lathe_exec_data(x, n->in[1]),
             .u_dtype = g->values[n->in[1]].desc.dtype,
             .scale = (double)scalars[n->attrs.start],
             .alpha = n->attrs.alpha,
             .beta = n->attrs.beta,
             .n = lathe_desc_count(p)};
    for (; j.first < n_chunks; j.first += PARTS) {
        const int64_t parts = n_chunks - j.first < PARTS ? n_chunks - j.first : PARTS;
        lathe_parallel_for(parts, 1, over_chunks, &j);
        for (int64_t c = 0; c < parts; c++)
            total += j.part[c];
    }
    return total;
}

lathe_status lathe__matrices_run(lathe_exec *x, double *io_update2, double *io_param2)
{
    const lathe_graph *g = lathe_exec_graph(x);
    int32_t begin = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        if (n->op != LATHE_OP_APPLY_UPDATE)
            continue;
        LATHE_TRY(lathe_exec_run_range(x, begin, i, 0));
        *io_update2 += update2_of(x, n);
        begin = i;
        LATHE_TRY(lathe_exec_run_range(x, begin, i + 1, 0));
        begin = i + 1;
        *io_param2 += lathe_sum_squares(lathe_exec_data(x, n->out[0]), LATHE_F32,
                                        lathe_desc_count(&g->values[n->out[0]].desc));
    }
    return lathe_exec_run_range(x, begin, g->n_nodes, 0);
}

lathe_status lathe__matrix_measure(lathe_graph *g, int32_t node, lathe_val *out_sums)
{
    const int64_t n = lathe_desc_count(&g->values[g->nodes[node].in[0]].desc);
    LATHE_TRY(lathe_graph_state(g, "update_squares",
                                lathe_desc_1d(LATHE_F64, (n + CHUNK - 1) / CHUNK), out_sums));
    if (!lathe__graph_append(g))
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

/* The part of matrices whose state a node touches; -1: none's. */
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

lathe_status lathe__matrices_cut(const lathe_graph *g, const lathe_matrix_state *state,
                                 const lathe_offload *offload, int32_t *ends)
{
    const int32_t first = lathe_offload_n_tensor_parts(offload);
    const int32_t n = lathe_offload_n_parts(offload) - first;
    int32_t *part = malloc(((size_t)g->n_values + 1) * sizeof *part), now = 0;
    if (!part)
        return lathe_error(LATHE_E_NOMEM, "no memory for the update of matrices");
    memset(part, 0xff, (size_t)g->n_values * sizeof *part);
    for (int32_t i = 0; i < state->n; i++)
        part[state->values[i]] = lathe_offload_part_of(offload, state->params[i]) - first;
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
    for (; now + 1 < n; now++)
        ends[now + 1] = ends[now];
    ends[n - 1] = g->n_nodes;
    free(part);
    return status;
}
