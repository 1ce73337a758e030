/* Runs graphs in double precision. */
#include "check/harness/graph_exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/singular.h"
#include "graph/ir/op_info.h"
#include "graph/ops/op_values.h"
#include "lathe/rng.h"

lathe_status lathe__exact_init(lathe__exact *e, lathe__subject *s, const lathe_graph *g)
{
    *e = (lathe__exact){.g = g};
    e->data = lathe__memory(s, g->n_values * (int64_t)sizeof *e->data);
    for (lathe_val v = 0; v < g->n_values; v++) {
        const int64_t n = lathe_desc_count(&g->values[v].desc);
        if (n < 0 || n > (int64_t)1 << 24)
            return lathe_error(LATHE_E_SHAPE, "value %d of its graph has %lld elements", v,
                               (long long)n);
        e->data[v] = lathe__memory(s, 8 * n);
        for (int64_t i = 0; g->values[v].kind == LATHE_VALUE_CONST && i < n; i++)
            e->data[v][i] = lathe__op_load(g->values[v].data, g->values[v].desc.dtype, i);
    }
    return LATHE_OK;
}

double *lathe__exact_data(const lathe__exact *e, lathe_val v)
{
    return e->data[v];
}

int64_t lathe__exact_count(const lathe__exact *e, lathe_val v)
{
    return lathe_desc_count(&e->g->values[v].desc);
}

/* The values to which output i of a node is added; NULL: none. If they are in the output's own
 * memory, a copy of them. */
static double *added_to(const lathe__exact *e, const lathe_ir_node *n, int32_t i)
{
    const int64_t bytes = 8 * lathe__exact_count(e, n->out[i]);
    if (n->write[i] != LATHE_WRITE_ADD)
        return NULL;
    if (n->acc[i] != LATHE_NONE)
        return e->data[n->acc[i]];
    double *copy = malloc((size_t)bytes + 1);
    return copy == NULL ? NULL : memcpy(copy, e->data[n->out[i]], (size_t)bytes);
}

static lathe_status run_node(const lathe__exact *e, const lathe_ir_node *n)
{
    lathe_op_problem p = {
        .op = n->op, .attrs = n->attrs, .self = n->self, .n_in = n->n_in, .n_out = n->n_out};
    double *in[LATHE_OP_MAX_IN] = {0}, *out[LATHE_OP_MAX_OUT] = {0};
    for (int32_t i = 0; i < LATHE_OP_MAX_IN; i++) {
        const int given = i < n->n_in && n->in[i] != LATHE_NONE;
        p.in[i].dtype = LATHE_ABSENT;
        if (given) {
            p.in[i] = e->g->values[n->in[i]].desc;
            in[i] = e->data[n->in[i]];
        }
    }
    double *before[LATHE_OP_MAX_OUT] = {0}; /* the values to which an output is added */
    for (int32_t i = 0; i < LATHE_OP_MAX_OUT; i++) {
        const int wanted = i < n->n_out && n->out[i] != LATHE_NONE;
        p.out[i].dtype = LATHE_ABSENT;
        if (!wanted)
            continue;
        p.out[i] = e->g->values[n->out[i]].desc;
        out[i] = e->data[n->out[i]];
        before[i] = added_to(e, n, i);
        memset(out[i], 0, 8 * (size_t)lathe_desc_count(&p.out[i]));
    }
    const lathe_status status = lathe__op_exact(&p, in, out);
    for (int32_t i = 0; i < LATHE_OP_MAX_OUT; i++) {
        for (int64_t k = 0; before[i] != NULL && k < lathe_desc_count(&p.out[i]); k++)
            out[i][k] += before[i][k];
        if (i < n->n_out && n->acc[i] == LATHE_NONE)
            free(before[i]);
    }
    return status;
}

lathe_status lathe__exact_run(const lathe__exact *e)
{
    for (int32_t i = 0; i < e->g->n_nodes; i++)
        LATHE_TRY(run_node(e, &e->g->nodes[i]));
    return LATHE_OK;
}

lathe_val lathe__exact_last(const lathe__exact *e, lathe_val v)
{
    const lathe_val root = lathe_graph_root(e->g, v);
    for (lathe_val last = e->g->n_values - 1; last > v; last--)
        if (lathe_graph_root(e->g, last) == root)
            return last;
    return v;
}

void lathe__exact_noise(const lathe__exact *e, lathe_val v, uint64_t seed, double scale)
{
    for (int64_t i = 0; i < lathe__exact_count(e, v); i++) {
        const lathe_u32x4 w = lathe_rng_block(seed, 0, 3, (uint64_t)i);
        e->data[v][i] = scale * (2.0 * lathe_uniform_f64(w.v[0], w.v[1]) - 1.0);
    }
}

/* The value of the weight `from`, whose elements are set before. */
static lathe_val weight_value(const lathe__exact *e, int32_t from)
{
    lathe_val w = 0;
    while (e->g->values[w].kind != LATHE_VALUE_PARAM || e->g->values[w].param != from)
        w++;
    return w;
}

/* The norms of a weight's rows, or of its columns. */
static void norms(const lathe__exact *e, lathe_val v, int32_t from, int of_columns)
{
    const double *w = e->data[weight_value(e, from)];
    const int64_t n = lathe__exact_count(e, v);
    const int64_t each = lathe__exact_count(e, weight_value(e, from)) / n;
    for (int64_t o = 0; o < n; o++) {
        double sum = 0.0;
        for (int64_t i = 0; i < each; i++) {
            const double x = of_columns ? w[i * n + o] : w[o * each + i];
            sum += x * x;
        }
        e->data[v][o] = sqrt(sum);
    }
}

/* The singular vectors of a weight of at most 64 x 64; zeros if they do not converge. */
static void singular_vectors(const lathe__exact *e, lathe_val v, const lathe_param *p)
{
    float w[64 * 64] = {0}, a[64 * 64] = {0}, b[64 * 64] = {0};
    const lathe_desc *d = &e->g->params->rows[p->init_from]->desc;
    const double *from = e->data[weight_value(e, p->init_from)];
    const int is_a = p->init == LATHE_INIT_SINGULAR_A,
              of_columns = p->init == LATHE_INIT_MINOR_RIGHT;
    if (d->dims[0] > 64 || d->dims[1] > 64)
        return;
    for (int64_t i = 0; i < d->dims[0] * d->dims[1]; i++)
        w[i] = (float)from[i];
    const lathe_status status =
        of_columns || p->init == LATHE_INIT_MINOR_LEFT
            ? lathe_singular_minor(w, d->dims[0], d->dims[1], p->desc.dims[1], of_columns, b)
            : lathe_singular_factors(w, d->dims[0], d->dims[1], p->desc.dims[!is_a], p->init_scale,
                                     a, b);
    if (status == LATHE_OK)
        for (int64_t i = 0; i < lathe__exact_count(e, v); i++)
            e->data[v][i] = (double)(is_a ? a : b)[i];
}

void lathe__exact_initial(const lathe__exact *e, lathe_val v, uint64_t seed)
{
    const lathe_param *p = e->g->params->rows[e->g->values[v].param];
    if (p->init == LATHE_INIT_ROW_NORMS || p->init == LATHE_INIT_COLUMN_NORMS) {
        norms(e, v, p->init_from, p->init == LATHE_INIT_COLUMN_NORMS);
        return;
    }
    if (p->init == LATHE_INIT_SINGULAR_A || p->init == LATHE_INIT_SINGULAR_B ||
        p->init == LATHE_INIT_MINOR_LEFT || p->init == LATHE_INIT_MINOR_RIGHT) {
        singular_vectors(e, v, p);
        return;
    }
    if (p->init == LATHE_INIT_ZERO || p->init == LATHE_INIT_ONE)
        for (int64_t i = 0; i < lathe__exact_count(e, v); i++)
            e->data[v][i] = p->init == LATHE_INIT_ONE ? 1.0 : 0.0;
    else
        lathe__exact_noise(e, v, seed, p->init_scale > 0.0 ? p->init_scale : 0.1);
}
