/* TOPK, which selects the largest elements of each row, and its derivative. */
#include <math.h>

#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0);
    const int64_t k = p->attrs.count;
    if (!x || x->rank != 2 || !lathe__computes(x->dtype) || k < 1 || k > x->dims[1])
        return lathe__bad_inputs(p, "x c[N,V] and a count of 1 to V");
    p->out[0] = lathe_desc_2d(x->dtype, x->dims[0], k);
    p->out[1] = lathe__with_dtype(p->out[0], LATHE_I32);
    return LATHE_OK;
}

static lathe_status infer_bwd(lathe_op_problem *p)
{
    const lathe_desc *dy = lathe__in(p, 0), *index = lathe__in(p, 1);
    if (!dy || !index || dy->rank != 2 || !lathe__same_shape(dy, index) ||
        index->dtype != LATHE_I32 || p->attrs.count < dy->dims[1])
        return lathe__bad_inputs(p, "dy c[N,k], an index i32[N,k] and the elements of a row");
    p->out[0] = lathe_desc_2d(dy->dtype, dy->dims[0], p->attrs.count);
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs attrs = {.count = t->g->values[n->in[0]].desc.dims[1]};
    lathe__emit_one(t, n, LATHE_OP_TOPK_BWD, &attrs, dy, n->out[1], n->in[0]);
}

static lathe_status check(const lathe_op_problem *p)
{
    const lathe_desc *x = &p->in[0], *y = &p->out[0];
    if (x->rank != 2 || y->rank != 2 || x->dims[0] != y->dims[0] || y->dims[1] < 1 ||
        y->dims[1] > x->dims[1])
        return lathe__refuse_shape(p, "x must be [N, V] and y [N, k] with k from 1 to V");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(x)));
    LATHE_TRY(lathe__check_out(p, 0, x->dtype, lathe_desc_count(y)));
    return lathe__check_out(p, 1, LATHE_I32, lathe_desc_count(y));
}

static lathe_status check_bwd(const lathe_op_problem *p)
{
    const lathe_desc *dy = &p->in[0], *dx = &p->out[0];
    if (dy->rank != 2 || dx->rank != 2 || dy->dims[0] != dx->dims[0] || dy->dims[1] < 1 ||
        dy->dims[1] > dx->dims[1])
        return lathe__refuse_shape(p, "dy must be [N, k] and dx [N, V] with k from 1 to V");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(dy)));
    LATHE_TRY(lathe__check_in(p, 1, LATHE_I32, lathe_desc_count(dy)));
    return lathe__check_out(p, 0, dy->dtype, lathe_desc_count(dx));
}

/* Whether element i of a row ranks before element j. */
static int32_t is_before(const double *x, int64_t i, int64_t j)
{
    return x[i] > x[j] || (x[i] == x[j] && i < j);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t v = p->in[0].dims[1], k = p->out[0].dims[1];
    for (int64_t r = 0; r < p->in[0].dims[0]; r++) {
        const double *x = in[0] + r * v;
        int64_t last = -1;
        for (int64_t j = 0; j < k; j++) {
            int64_t best = -1;
            for (int64_t i = 0; i < v && (j == 0 || last >= 0); i++)
                if (!isnan(x[i]) && (last < 0 || is_before(x, last, i)) &&
                    (best < 0 || is_before(x, i, best)))
                    best = i;
            out[0][r * k + j] = best < 0 ? (double)NAN : x[best];
            if (out[1] != NULL)
                out[1][r * k + j] = (double)best;
            last = best;
        }
    }
}

static void exact_bwd(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t k = p->in[0].dims[1], v = p->out[0].dims[1];
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++)
        if (in[1][i] >= 0.0)
            out[0][i / k * v + (int64_t)in[1][i]] += in[0][i];
}

static const lathe_op_case forward_cases[] = {
    LATHE_CASE_WITH("c[7,301]:w", "c[7,5] i32[7,5]", 0, 0, .count = 5),
    LATHE_CASE_WITH("c[3,19]", "c[3,19] i32[3,19]", 0, 0, .count = 19),
    LATHE_CASE_WITH("c[2,1]", "c[2,1] i32[2,1]", 0, 0, .count = 1),
    LATHE_LAST_CASE,
};
/* Each row of the index is 2, 9, 16: no element occurs twice. */
static const lathe_op_case backward_cases[] = {
    LATHE_CASE_WITH("c[1,3] i32[1,3]:t19", "c[1,19]", 0, 0, .count = 19),
    LATHE_CASE_WITH("c[5,1] i32[5,1]:t19", "c[5,19]", 0, 0, .count = 19),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(TOPK, .infer = infer, .derive = derive, .check = check, .exact = exact,
                .cases = forward_cases);
LATHE_OP_DEFINE(TOPK_BWD, .accumulates = 1, .infer = infer_bwd, .check = check_bwd,
                .exact = exact_bwd, .cases = backward_cases);
