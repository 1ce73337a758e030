/* RMSNORM, LAYERNORM, ADD_RMSNORM, ADD_LAYERNORM, and the derivatives. */
#include <math.h>

#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const int32_t op = p->op;
    const int32_t adds = op == LATHE_OP_ADD_RMSNORM || op == LATHE_OP_ADD_LAYERNORM;
    const lathe_desc *x = lathe__in(p, 0), *w = lathe__in(p, 1 + adds);
    if (adds && (!x || !lathe__in(p, 1) || !lathe__same_shape(x, lathe__in(p, 1)) ||
                 x->dtype != p->in[1].dtype))
        return lathe__bad_inputs(p, "two tensors of one shape and dtype to add");
    if (!x || !w || w->rank != 1 || w->dtype != LATHE_F32 || w->dims[0] < 1 ||
        lathe__last_dim(x) % w->dims[0])
        return lathe__bad_inputs(p,
                                 "x c[..] and a weight f32[D] with D dividing the last dim of x");
    const int64_t rows = lathe_desc_count(x) / w->dims[0];
    p->out[0] = *x;
    p->out[adds] = *x;
    p->out[1 + adds] = lathe_desc_1d(LATHE_F32, rows);
    if (op == LATHE_OP_LAYERNORM || op == LATHE_OP_ADD_LAYERNORM)
        p->out[2 + adds] = lathe_desc_1d(LATHE_F32, rows);
    return LATHE_OK;
}

static lathe_status infer_bwd(lathe_op_problem *p)
{
    const lathe_desc *dy = lathe__in(p, 0), *x = lathe__in(p, 1), *w = lathe__in(p, 2);
    if (!dy || !x || !w || !lathe__same_shape(dy, x) || w->rank != 1)
        return lathe__bad_inputs(p, "dy and x of one shape, and the weight");
    p->out[0] = *x;
    p->out[1] = *w;
    if (p->op == LATHE_OP_LAYERNORM_BWD)
        p->out[2] = *w;
    return LATHE_OK;
}

static void derive_rmsnorm(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[4] = {dy, n->in[0], n->in[1], n->out[1]};
    lathe__emit(t, LATHE_OP_RMSNORM_BWD, &n->attrs, in, 4, n->in, 1, 2, n->label);
}

static void derive_layernorm(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[5] = {dy, n->in[0], n->in[1], n->out[1], n->out[2]};
    lathe__emit(t, LATHE_OP_LAYERNORM_BWD, &n->attrs, in, 5, n->in, 1, 3, n->label);
}

/* Checks y and n_stats statistics per group, computed from x, weights and maybe a bias. A group has
 * as many elements as there are weights. */
static lathe_status check_norm(const lathe_op_problem *p, int32_t n_stats, int32_t adds)
{
    const int64_t n = lathe_desc_count(&p->in[0]), d = lathe_desc_count(&p->in[1 + adds]);
    if (d < 1 || n % d != 0)
        return lathe__refuse_shape(p, "x must be whole groups of as many elements as w has");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n));
    if (adds)
        LATHE_TRY(lathe__check_in(p, 1, p->in[0].dtype, n));
    for (int32_t i = 1 + adds; i < 3 + adds; i++)
        if (lathe__in(p, i))
            LATHE_TRY(lathe__check_in(p, i, LATHE_F32, d));
    for (int32_t i = 0; i <= adds; i++)
        LATHE_TRY(lathe__check_out(p, i, p->in[0].dtype, n));
    for (int32_t i = 1 + adds; i <= n_stats + adds; i++)
        LATHE_TRY(lathe__check_out(p, i, LATHE_F32, n / d));
    return LATHE_OK;
}

/* Checks dx and, if wanted, the gradients of weights and bias, computed from dy, x, weights and the
 * n_stats statistics. */
static lathe_status check_norm_bwd(const lathe_op_problem *p, int32_t n_stats)
{
    const int64_t n = lathe_desc_count(&p->in[1]), d = lathe_desc_count(&p->in[2]);
    if (d < 1 || n % d != 0)
        return lathe__refuse_shape(p, "x must be whole groups of as many elements as w has");
    LATHE_TRY(lathe__check_in(p, 1, LATHE__COMPUTE, n));
    LATHE_TRY(lathe__check_in(p, 0, p->in[1].dtype, n));
    LATHE_TRY(lathe__check_in(p, 2, LATHE_F32, d));
    for (int32_t i = 3; i < 3 + n_stats; i++)
        LATHE_TRY(lathe__check_in(p, i, LATHE_F32, n / d));
    LATHE_TRY(lathe__check_out(p, 0, p->in[1].dtype, n));
    for (int32_t i = 1; i < p->n_out; i++)
        if (lathe__out(p, i))
            LATHE_TRY(lathe__check_out(p, i, LATHE_F32, d));
    return LATHE_OK;
}

static lathe_status check_rmsnorm(const lathe_op_problem *p)
{
    return check_norm(p, 1, 0);
}

static lathe_status check_add_rmsnorm(const lathe_op_problem *p)
{
    return check_norm(p, 1, 1);
}

static lathe_status check_rmsnorm_bwd(const lathe_op_problem *p)
{
    return check_norm_bwd(p, 1);
}

static lathe_status check_layernorm(const lathe_op_problem *p)
{
    return check_norm(p, 2, 0);
}

static lathe_status check_add_layernorm(const lathe_op_problem *p)
{
    return check_norm(p, 2, 1);
}

static lathe_status check_layernorm_bwd(const lathe_op_problem *p)
{
    return check_norm_bwd(p, 2);
}

/* Statistics of one row of d elements. mean is 0 for RMSNORM. */
typedef struct row_stats {
    double mean, rstd;
} row_stats;

static row_stats stats_of(const double *x, int64_t d, int centered, double eps)
{
    row_stats s = {0.0, 0.0};
    double squares = 0.0;
    for (int64_t i = 0; centered && i < d; i++)
        s.mean += x[i] / (double)d;
    for (int64_t i = 0; i < d; i++)
        squares += (x[i] - s.mean) * (x[i] - s.mean);
    s.rstd = 1.0 / sqrt(squares / (double)d + eps);
    return s;
}

/* y = (x - mean) * rstd * (w + offset) + bias */
static void write_row(const double *x, row_stats s, const double *w, double offset,
                      const double *bias, int64_t d, double *y)
{
    for (int64_t i = 0; i < d; i++)
        y[i] = (x[i] - s.mean) * s.rstd * (w[i] + offset) + (bias != NULL ? bias[i] : 0.0);
}

static void forward(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int centered = p->op == LATHE_OP_LAYERNORM;
    const int64_t d = lathe_desc_count(&p->in[1]), n = lathe_desc_count(&p->in[0]);
    for (int64_t r = 0; r < n / d; r++) {
        const row_stats s = stats_of(in[0] + r * d, d, centered, (double)p->attrs.eps);
        write_row(in[0] + r * d, s, in[1], p->attrs.offset_one ? 1.0 : 0.0, centered ? in[2] : NULL,
                  d, out[0] + r * d);
        if (centered && out[1] != NULL)
            out[1][r] = s.mean;
        if (out[centered ? 2 : 1] != NULL)
            out[centered ? 2 : 1][r] = s.rstd;
    }
}

/* The sum is rounded to its dtype before the norm. */
static void joined(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int centered = p->op == LATHE_OP_ADD_LAYERNORM;
    const int64_t d = lathe_desc_count(&p->in[2]), n = lathe_desc_count(&p->in[0]);
    for (int64_t i = 0; i < n; i++)
        out[0][i] = lathe__op_round(in[0][i] + in[1][i], p->in[0].dtype);
    for (int64_t r = 0; r < n / d; r++) {
        const row_stats s = stats_of(out[0] + r * d, d, centered, (double)p->attrs.eps);
        write_row(out[0] + r * d, s, in[2], p->attrs.offset_one ? 1.0 : 0.0,
                  centered ? in[3] : NULL, d, out[1] + r * d);
        if (centered)
            out[2][r] = s.mean;
        out[centered ? 3 : 2][r] = s.rstd;
    }
}

/* Computes dx of one row from the saved statistics; adds to dw and db. */
static void row_bwd(const double *dy, const double *x, const double *w, double offset, row_stats s,
                    int centered, int64_t d, double *dx, double *dw, double *db)
{
    double g_mean = 0.0, gx_mean = 0.0;
    for (int64_t i = 0; i < d; i++) {
        const double g = dy[i] * (w[i] + offset), xhat = (x[i] - s.mean) * s.rstd;
        g_mean += centered ? g / (double)d : 0.0;
        gx_mean += g * xhat / (double)d;
        if (dw != NULL)
            dw[i] += dy[i] * xhat;
        if (db != NULL)
            db[i] += dy[i];
    }
    for (int64_t i = 0; i < d; i++)
        dx[i] = s.rstd * (dy[i] * (w[i] + offset) - g_mean - (x[i] - s.mean) * s.rstd * gx_mean);
}

static void backward(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int centered = p->op == LATHE_OP_LAYERNORM_BWD;
    const int64_t d = lathe_desc_count(&p->in[2]), n = lathe_desc_count(&p->in[1]);
    for (int64_t r = 0; r < n / d; r++) {
        const row_stats s = {centered ? in[3][r] : 0.0, centered ? in[4][r] : in[3][r]};
        row_bwd(in[0] + r * d, in[1] + r * d, in[2], p->attrs.offset_one ? 1.0 : 0.0, s, centered,
                d, out[0] + r * d, out[1], centered ? out[2] : NULL);
    }
}

static const lathe_op_case rmsnorm_cases[] = {
    LATHE_CASE_WITH("c[9,48]:2 f32[48]:+", "c[9,48] f32[9]", 48, 0, .eps = 1e-5f),
    LATHE_CASE_WITH("c[3,67]:2 f32[67]:+", "c[3,67] f32[3]", 67, 0, .eps = 1e-2f, .offset_one = 1),
    LATHE_LAST_CASE,
};

static const lathe_op_case layernorm_cases[] = {
    LATHE_CASE_WITH("c[9,67]:2 f32[67]:+ f32[67]", "c[9,67] f32[9] f32[9]", 67, 0, .eps = 1e-5f),
    LATHE_CASE_WITH("c[1,5]:2 f32[5]:+ -", "c[1,5] f32[1] f32[1]", 5, 0, .eps = 1e-2f),
    LATHE_LAST_CASE,
};

static const lathe_op_case rmsnorm_bwd_cases[] = {
    LATHE_CASE_WITH("c[7,21] c[7,21]:2 f32[21]:+ f32[7]:+", "c[7,21] f32[21]", 28, 0, .eps = 1e-5f),
    LATHE_CASE_WITH("c[2,67] c[2,67]:2 f32[67]:+ f32[2]:+", "c[2,67] -", 67, 0, .eps = 1e-5f,
                    .offset_one = 1),
    LATHE_LAST_CASE,
};

static const lathe_op_case layernorm_bwd_cases[] = {
    LATHE_CASE_WITH("c[7,21] c[7,21]:2 f32[21]:+ f32[7] f32[7]:+", "c[7,21] f32[21] f32[21]", 28, 0,
                    .eps = 1e-5f),
    LATHE_CASE_WITH("c[2,67] c[2,67]:2 f32[67]:+ f32[2] f32[2]:+", "c[2,67] - -", 67, 0,
                    .eps = 1e-5f),
    LATHE_LAST_CASE,
};

static const lathe_op_case add_rmsnorm_cases[] = {
    LATHE_CASE_WITH("c[9,67] c[9,67] f32[67]:+", "c[9,67] c[9,67] f32[9]", 67, 2, .eps = 1e-5f),
    LATHE_LAST_CASE,
};

static const lathe_op_case add_layernorm_cases[] = {
    LATHE_CASE_WITH("c[9,67] c[9,67] f32[67]:+ f32[67]", "c[9,67] c[9,67] f32[9] f32[9]", 67, 2,
                    .eps = 1e-5f),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(RMSNORM, .cheap = 1, .infer = infer, .derive = derive_rmsnorm,
                .check = check_rmsnorm, .exact = forward, .cases = rmsnorm_cases);
LATHE_OP_DEFINE(LAYERNORM, .cheap = 1, .infer = infer, .derive = derive_layernorm,
                .check = check_layernorm, .exact = forward, .cases = layernorm_cases);
LATHE_OP_DEFINE(RMSNORM_BWD, .accumulates = 1, .param_outputs = 2, .infer = infer_bwd,
                .check = check_rmsnorm_bwd, .exact = backward, .cases = rmsnorm_bwd_cases);
LATHE_OP_DEFINE(LAYERNORM_BWD, .accumulates = 1, .param_outputs = 6, .infer = infer_bwd,
                .check = check_layernorm_bwd, .exact = backward, .cases = layernorm_bwd_cases);
LATHE_OP_DEFINE(ADD_RMSNORM, .inplace = 3, .infer = infer, .check = check_add_rmsnorm,
                .exact = joined, .cases = add_rmsnorm_cases);
LATHE_OP_DEFINE(ADD_LAYERNORM, .inplace = 3, .infer = infer, .check = check_add_layernorm,
                .exact = joined, .cases = add_layernorm_cases);
