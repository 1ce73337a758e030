/* SOFTMAX over rows, and its derivative. */
#include <math.h>

#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    LATHE_TRY(p->n_in > 1 ? lathe__infer_pair(p) : lathe__infer_like(p));
    return p->in[0].rank < 1 ? lathe__bad_inputs(p, "rows") : LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_SOFTMAX_BWD, NULL, dy, n->out[0], n->in[0]);
}

static lathe_status check(const lathe_op_problem *p)
{
    if (p->in[0].rank < 1)
        return lathe__refuse_shape(p, "x must have rows");
    return lathe__check_alike(p);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t d = lathe__last_dim(&p->in[0]), n = lathe_desc_count(&p->in[0]);
    for (int64_t first = 0; first < n; first += d) {
        const double *x = in[0] + first;
        double most = -HUGE_VAL, sum = 0.0;
        for (int64_t i = 0; i < d; i++)
            most = fmax(most, x[i]);
        for (int64_t i = 0; i < d; i++)
            sum += exp(x[i] - most);
        for (int64_t i = 0; i < d; i++)
            out[0][first + i] = exp(x[i] - most) / sum;
    }
}

static void exact_bwd(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t d = lathe__last_dim(&p->in[0]), n = lathe_desc_count(&p->in[0]);
    for (int64_t first = 0; first < n; first += d) {
        const double *dy = in[0] + first, *y = in[1] + first;
        double dot = 0.0;
        for (int64_t i = 0; i < d; i++)
            dot += dy[i] * y[i];
        for (int64_t i = 0; i < d; i++)
            out[0][first + i] = y[i] * (dy[i] - dot);
    }
}

static const lathe_op_case forward_cases[] = {
    LATHE_CASE("c[9,67]:2", "c[9,67]", 67, 0),
    LATHE_CASE("c[3,1]", "c[3,1]", 1, 0),
    LATHE_CASE("c[2,3,8]:2", "c[2,3,8]", 8, 0),
    LATHE_CASE("c[3,1500]:2", "c[3,1500]", 1500, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case backward_cases[] = {
    LATHE_CASE("c[9,67] c[9,67]", "c[9,67]", 67, 0),
    LATHE_CASE("c[3,1504] c[3,1504]", "c[3,1504]", 1504, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(SOFTMAX, .infer = infer, .derive = derive, .check = check, .exact = exact,
                .cases = forward_cases);
LATHE_OP_DEFINE(SOFTMAX_BWD, .accumulates = 1, .infer = infer, .check = check, .exact = exact_bwd,
                .cases = backward_cases);
