/* XIELU and its derivative: arXiv:2411.13010, the activation of Apertus. */
#include <math.h>

#include "graph/ops/rules.h"

enum { ALPHA_P, ALPHA_N, BETA, EPS, N_NUMBERS };

static int is_backward(const lathe_op_problem *p)
{
    return p->op == LATHE_OP_XIELU_BWD;
}

static lathe_status infer(lathe_op_problem *p)
{
    const int32_t back = is_backward(p), first = 1 + back;
    const lathe_desc *x = lathe__in(p, back);
    int fits = x != NULL && lathe__computes(x->dtype);
    for (int32_t i = 0; i < N_NUMBERS; i++)
        fits = fits && lathe__in(p, first + i) && lathe__is_vector(lathe__in(p, first + i), 1);
    if (!fits || (back && (!lathe__in(p, 0) || !lathe__same_shape(lathe__in(p, 0), x))))
        return lathe__bad_inputs(p, "x c[..] and alpha_p, alpha_n, beta, eps f32[1]");
    p->out[0] = *x;
    if (back)
        p->out[1] = p->out[2] = lathe_desc_1d(LATHE_F32, 1);
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[6] = {dy, n->in[0], n->in[1], n->in[2], n->in[3], n->in[4]};
    lathe__emit(t, LATHE_OP_XIELU_BWD, &n->attrs, in, 6, n->in, 1, 3, n->label);
}

static lathe_status check(const lathe_op_problem *p)
{
    const int32_t back = is_backward(p);
    const int64_t n = lathe_desc_count(&p->in[back]);
    LATHE_TRY(lathe__check_in(p, back, LATHE__COMPUTE, n));
    if (back)
        LATHE_TRY(lathe__check_in(p, 0, p->in[1].dtype, n));
    for (int32_t i = 0; i < N_NUMBERS; i++)
        LATHE_TRY(lathe__check_in(p, 1 + back + i, LATHE_F32, 1));
    LATHE_TRY(lathe__check_out(p, 0, p->in[back].dtype, n));
    for (int32_t i = 1; i < p->n_out; i++)
        if (lathe__out(p, i))
            LATHE_TRY(lathe__check_out(p, i, LATHE_F32, 1));
    return LATHE_OK;
}

static double softplus(double x)
{
    return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int32_t back = is_backward(p);
    double *const *const number = in + 1 + back;
    const double beta = number[BETA][0], eps = number[EPS][0];
    const double ap = softplus(number[ALPHA_P][0]), an = beta + softplus(number[ALPHA_N][0]);
    double of_ap = 0.0, of_an = 0.0;
    for (int64_t i = 0; i < lathe_desc_count(&p->in[back]); i++) {
        const double x = in[back][i], low = fmin(x, eps);
        const double bent = expm1(low) - x;
        if (!back) {
            out[0][i] = (x > 0.0 ? ap * x * x : an * bent) + beta * x;
            continue;
        }
        const double bend = (x < eps ? exp(low) : 0.0) - 1.0, dy = in[0][i];
        out[0][i] = dy * ((x > 0.0 ? 2.0 * ap * x : an * bend) + beta);
        of_ap += x > 0.0 ? dy * x * x : 0.0;
        of_an += x > 0.0 ? 0.0 : dy * bent;
    }
    if (back && out[1] != NULL)
        out[1][0] = of_ap * sigmoid(number[ALPHA_P][0]);
    if (back && out[2] != NULL)
        out[2][0] = of_an * sigmoid(number[ALPHA_N][0]);
}

static const lathe_op_case forward_cases[] = {
    LATHE_CASE("c[5003]:2 f32[1] f32[1] f32[1]:+ f32[1]", "c[5003]", 16, 0),
    LATHE_CASE("c[7,3]:2 f32[1] f32[1] f32[1]:+ f32[1]", "c[7,3]", 16, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case backward_cases[] = {
    LATHE_CASE("c[40003] c[40003]:2 f32[1] f32[1] f32[1]:+ f32[1]", "c[40003] f32[1] f32[1]", 32,
               0),
    LATHE_CASE("c[7,3] c[7,3]:2 f32[1] f32[1] f32[1]:+ f32[1]", "c[7,3] - -", 32, 0),
    LATHE_LAST_CASE,
};

/* beta and eps have no derivative */
LATHE_OP_DEFINE(XIELU, .cheap = 1, .fixed_inputs = 3u << (1 + BETA), .infer = infer,
                .derive = derive, .check = check, .exact = exact, .cases = forward_cases);
LATHE_OP_DEFINE(XIELU_BWD, .accumulates = 1, .param_outputs = 6, .infer = infer, .check = check,
                .exact = exact, .cases = backward_cases);
