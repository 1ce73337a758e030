/* The ops of a mixture of experts: the order of rows by expert, rows in that order and back, and
 * products in which each expert has a weight of its own, with their derivatives.
 *
 * N tokens choose K experts each, so there are exactly N*K rows, whatever the router decides: the
 * memory plan stays exact, and no token is dropped. */
#include "graph/ops/rules.h"

/* Whether d is i32 [n, k] or i32 [n]. */
static int32_t is_index(const lathe_desc *d, int32_t rank)
{
    return d != NULL && d->rank == rank && d->dtype == LATHE_I32;
}

/* ---- the order of rows ---- */

static lathe_status infer_places(lathe_op_problem *p)
{
    const lathe_desc *index = lathe__in(p, 0);
    if (!is_index(index, 2) || p->attrs.count < 1)
        return lathe__bad_inputs(p, "an index i32[N,K] and a count of experts");
    p->out[0] = *index;
    p->out[1] = lathe_desc_1d(LATHE_I32, p->attrs.count + 1);
    return LATHE_OK;
}

static lathe_status check_places(const lathe_op_problem *p)
{
    if (p->in[0].rank != 2 || lathe_desc_count(&p->in[0]) < 1 || p->attrs.count < 1)
        return lathe__refuse_shape(p, "the index must be [N, K], with at least one expert");
    LATHE_TRY(lathe__check_in(p, 0, LATHE_I32, lathe_desc_count(&p->in[0])));
    LATHE_TRY(lathe__check_out(p, 0, LATHE_I32, lathe_desc_count(&p->in[0])));
    return lathe__check_out(p, 1, LATHE_I32, p->attrs.count + 1);
}

static void exact_places(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[0]);
    int64_t at = 0;
    for (int64_t e = 0; e < p->attrs.count; e++) {
        out[1][e] = (double)at;
        for (int64_t i = 0; i < n; i++)
            if (in[0][i] == (double)e || (e == 0 && in[0][i] < 0.0))
                out[0][i] = (double)at++;
    }
    out[1][p->attrs.count] = (double)at;
}

/* ---- rows in that order, and back ---- */

static lathe_status infer_rows(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *place = lathe__in(p, 1);
    if (!x || x->rank != 2 || !lathe__computes(x->dtype) || !is_index(place, 2) ||
        place->dims[0] != x->dims[0])
        return lathe__bad_inputs(p, "x c[N,C] and places i32[N,K]");
    p->out[0] = lathe_desc_2d(x->dtype, lathe_desc_count(place), x->dims[1]);
    return LATHE_OK;
}

static lathe_status infer_sum(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *w = lathe__in(p, 1), *place = lathe__in(p, 2);
    if (!x || x->rank != 2 || !lathe__computes(x->dtype) || !is_index(place, 2) ||
        lathe_desc_count(place) != x->dims[0] ||
        (w && (w->dtype != LATHE_F32 || !lathe__same_shape(w, place))))
        return lathe__bad_inputs(p, "x c[N*K,C], weights f32[N,K] or none, places i32[N,K]");
    p->out[0] = lathe_desc_2d(x->dtype, place->dims[0], x->dims[1]);
    return LATHE_OK;
}

static lathe_status infer_sum_bwd(lathe_op_problem *p)
{
    if (!lathe__in(p, 1) || !lathe__in(p, 2))
        return lathe__bad_inputs(p, "dy, x, weights and places");
    p->out[0] = p->in[1];
    p->out[1] = p->in[2];
    return LATHE_OK;
}

static void derive_rows(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[3] = {dy, LATHE_NONE, n->in[1]};
    if (lathe__needs(t, n->in[0]))
        lathe__emit(t, LATHE_OP_EXPERT_SUM, NULL, in, 3, n->in, 1, 1, n->label);
}

static void derive_sum(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[4] = {dy, n->in[0], n->in[1], n->in[2]};
    if (n->in[1] == LATHE_NONE)
        lathe__emit_one(t, n, LATHE_OP_EXPERT_ROWS, NULL, dy, n->in[2], n->in[0]);
    else
        lathe__emit(t, LATHE_OP_EXPERT_SUM_BWD, NULL, in, 4, n->in, 1, 2, n->label);
}

/* Checks x [N*K, C] against places [N, K] and y [N, C]. */
static lathe_status check_spread(const lathe_op_problem *p, const lathe_desc *wide,
                                 const lathe_desc *narrow, const lathe_desc *place)
{
    if (wide->rank != 2 || narrow->rank != 2 || place->rank != 2 || place->dims[0] < 1 ||
        place->dims[1] < 1 || wide->dims[0] != lathe_desc_count(place) ||
        narrow->dims[0] != place->dims[0] || wide->dims[1] != narrow->dims[1] || wide->dims[1] < 1)
        return lathe__refuse_shape(p, "N rows, N*K rows and places [N, K], all at least 1");
    return LATHE_OK;
}

static lathe_status check_rows(const lathe_op_problem *p)
{
    LATHE_TRY(check_spread(p, &p->out[0], &p->in[0], &p->in[1]));
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(&p->in[0])));
    LATHE_TRY(lathe__check_in(p, 1, LATHE_I32, lathe_desc_count(&p->in[1])));
    return lathe__check_out(p, 0, p->in[0].dtype, lathe_desc_count(&p->out[0]));
}

static lathe_status check_sum(const lathe_op_problem *p)
{
    LATHE_TRY(check_spread(p, &p->in[0], &p->out[0], &p->in[2]));
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(&p->in[0])));
    if (lathe__in(p, 1))
        LATHE_TRY(lathe__check_in(p, 1, LATHE_F32, p->in[0].dims[0]));
    LATHE_TRY(lathe__check_in(p, 2, LATHE_I32, p->in[0].dims[0]));
    return lathe__check_out(p, 0, p->in[0].dtype, lathe_desc_count(&p->out[0]));
}

static lathe_status check_sum_bwd(const lathe_op_problem *p)
{
    LATHE_TRY(check_spread(p, &p->in[1], &p->in[0], &p->in[3]));
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(&p->in[0])));
    LATHE_TRY(lathe__check_in(p, 1, p->in[0].dtype, lathe_desc_count(&p->in[1])));
    LATHE_TRY(lathe__check_in(p, 2, LATHE_F32, p->in[1].dims[0]));
    LATHE_TRY(lathe__check_in(p, 3, LATHE_I32, p->in[1].dims[0]));
    LATHE_TRY(lathe__check_out(p, 0, p->in[0].dtype, lathe_desc_count(&p->in[1])));
    return lathe__out(p, 1) ? lathe__check_out(p, 1, LATHE_F32, p->in[1].dims[0]) : LATHE_OK;
}

static void exact_rows(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t c = p->in[0].dims[1], k = p->in[1].dims[1];
    for (int64_t i = 0; i < lathe_desc_count(&p->in[1]); i++)
        for (int64_t j = 0; j < c; j++)
            out[0][(int64_t)in[1][i] * c + j] = in[0][i / k * c + j];
}

static void exact_sum(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t c = p->in[0].dims[1], k = p->in[2].dims[1];
    for (int64_t i = 0; i < lathe_desc_count(&p->in[2]); i++)
        for (int64_t j = 0; j < c; j++)
            out[0][i / k * c + j] +=
                (in[1] != NULL ? in[1][i] : 1.0) * in[0][(int64_t)in[2][i] * c + j];
}

static void exact_sum_bwd(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t c = p->in[1].dims[1], k = p->in[3].dims[1];
    for (int64_t i = 0; i < lathe_desc_count(&p->in[3]); i++) {
        const double *dy = in[0] + i / k * c;
        const int64_t row = (int64_t)in[3][i] * c;
        double dot = 0.0;
        for (int64_t j = 0; j < c; j++) {
            out[0][row + j] = in[2][i] * dy[j];
            dot += dy[j] * in[1][row + j];
        }
        if (out[1] != NULL)
            out[1][i] = dot;
    }
}

/* ---- products with a weight for each expert ---- */

static int64_t experts_of(const lathe_desc *first)
{
    return first->dims[0] - 1;
}

static lathe_status infer_linear(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *w = lathe__in(p, 1), *first = lathe__in(p, 2);
    const int32_t backward = p->op == LATHE_OP_EXPERT_LINEAR_DX;
    if (!x || !w || !is_index(first, 1) || first->dims[0] < 2 || x->rank != 2 || w->rank != 2 ||
        x->dtype != w->dtype || w->dims[0] % experts_of(first) != 0 ||
        x->dims[1] != (backward ? w->dims[0] / experts_of(first) : w->dims[1]))
        return lathe__bad_inputs(p, backward ? "dy c[M,O], W c[E*O,I] and first rows i32[E+1]"
                                             : "x c[M,I], W c[E*O,I] and first rows i32[E+1]");
    p->out[0] =
        lathe_desc_2d(x->dtype, x->dims[0], backward ? w->dims[1] : w->dims[0] / experts_of(first));
    return LATHE_OK;
}

static lathe_status infer_dw(lathe_op_problem *p)
{
    const lathe_desc *dy = lathe__in(p, 0), *x = lathe__in(p, 1), *first = lathe__in(p, 2);
    if (!dy || !x || !is_index(first, 1) || first->dims[0] < 2 || dy->rank != 2 || x->rank != 2 ||
        dy->dims[0] != x->dims[0] || dy->dtype != x->dtype)
        return lathe__bad_inputs(p, "dy c[M,O], x c[M,I] and first rows i32[E+1]");
    p->out[0] = lathe_desc_2d(LATHE_F32, experts_of(first) * dy->dims[1], x->dims[1]);
    return LATHE_OK;
}

static void derive_linear(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val dx[3] = {dy, n->in[1], n->in[2]}, dw[3] = {dy, n->in[0], n->in[2]};
    if (lathe__needs(t, n->in[0]))
        lathe__emit(t, LATHE_OP_EXPERT_LINEAR_DX, NULL, dx, 3, &n->in[0], 1, 1, n->label);
    if (lathe__needs(t, n->in[1]))
        lathe__emit(t, LATHE_OP_EXPERT_LINEAR_DW, NULL, dw, 3, &n->in[1], 1, 1, n->label);
}

static double flops_linear(const lathe_op_problem *p)
{
    const double outputs = (double)p->in[1].dims[0] / (double)experts_of(&p->in[2]);
    return 2.0 * (double)p->in[0].dims[0] * outputs * (double)p->in[1].dims[1];
}

static double flops_dw(const lathe_op_problem *p)
{
    return 2.0 * (double)lathe_desc_count(&p->in[0]) * (double)p->in[1].dims[1];
}

static lathe_status check_linear(const lathe_op_problem *p)
{
    const lathe_desc *x = &p->in[0], *w = &p->in[1], *first = &p->in[2];
    const int32_t backward = p->op == LATHE_OP_EXPERT_LINEAR_DX;
    if (first->rank != 1 || first->dims[0] < 2 || w->rank != 2 || x->rank != 2 || x->dims[0] < 1 ||
        w->dims[0] < 1 || w->dims[1] < 1 || w->dims[0] % experts_of(first) != 0 ||
        x->dims[1] != (backward ? w->dims[0] / experts_of(first) : w->dims[1]))
        return lathe__refuse_shape(p, "W must be [E*O, I], with E+1 first rows");
    const int64_t n = backward ? w->dims[1] : w->dims[0] / experts_of(first);
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(x)));
    LATHE_TRY(lathe__check_in(p, 1, x->dtype, lathe_desc_count(w)));
    LATHE_TRY(lathe__check_in(p, 2, LATHE_I32, lathe_desc_count(first)));
    return lathe__check_out(p, 0, x->dtype, x->dims[0] * n);
}

static lathe_status check_dw(const lathe_op_problem *p)
{
    const lathe_desc *dy = &p->in[0], *x = &p->in[1], *first = &p->in[2];
    if (first->rank != 1 || first->dims[0] < 2 || dy->rank != 2 || x->rank != 2 ||
        dy->dims[0] != x->dims[0] || dy->dims[0] < 1 || dy->dims[1] < 1 || x->dims[1] < 1)
        return lathe__refuse_shape(p, "dy [M, O] and x [M, I], with E+1 first rows");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(dy)));
    LATHE_TRY(lathe__check_in(p, 1, dy->dtype, lathe_desc_count(x)));
    LATHE_TRY(lathe__check_in(p, 2, LATHE_I32, lathe_desc_count(first)));
    const int32_t narrow = p->out[0].dtype != LATHE_F32;
    return lathe__check_out(p, 0, narrow ? dy->dtype : LATHE_F32,
                            experts_of(first) * dy->dims[1] * x->dims[1]);
}

/* For each row of each expert: the index of the row, and of its expert's weight. */
#define LATHE__EACH_ROW(first, n_experts, e, r)                                                    \
    for (int64_t e = 0; e < (n_experts); e++)                                                      \
        for (int64_t r = (int64_t)(first)[e]; r < (int64_t)(first)[e + 1]; r++)

static void exact_linear(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = experts_of(&p->in[2]), o = p->in[1].dims[0] / n, k = p->in[1].dims[1];
    LATHE__EACH_ROW(in[2], n, e, r)
    for (int64_t j = 0; j < o; j++)
        for (int64_t i = 0; i < k; i++)
            out[0][r * o + j] += in[0][r * k + i] * in[1][(e * o + j) * k + i];
}

static void exact_dx(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = experts_of(&p->in[2]), o = p->in[1].dims[0] / n, k = p->in[1].dims[1];
    LATHE__EACH_ROW(in[2], n, e, r)
    for (int64_t j = 0; j < o; j++)
        for (int64_t i = 0; i < k; i++)
            out[0][r * k + i] += in[0][r * o + j] * in[1][(e * o + j) * k + i];
}

static void exact_dw(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = experts_of(&p->in[2]), o = p->in[0].dims[1], k = p->in[1].dims[1];
    LATHE__EACH_ROW(in[2], n, e, r)
    for (int64_t j = 0; j < o; j++)
        for (int64_t i = 0; i < k; i++)
            out[0][(e * o + j) * k + i] += in[0][r * o + j] * in[1][r * k + i];
}

/* ---- cases: places are permutations, since 7 and the number of rows have no common divisor ----
 */

static const lathe_op_case places_cases[] = {
    LATHE_CASE_WITH("i32[13,2]:t5", "i32[13,2] i32[6]", 0, 0, .count = 5),
    LATHE_CASE_WITH("i32[9,1]:T4", "i32[9,1] i32[8]", 0, 0, .count = 7),
    LATHE_CASE_WITH("i32[300,8]:t128", "i32[300,8] i32[129]", 0, 0, .count = 128),
    LATHE_LAST_CASE,
};
static const lathe_op_case rows_cases[] = {
    LATHE_CASE("c[13,67] i32[13,2]:t26", "c[26,67]", 0, 0),
    LATHE_CASE("c[5,8] i32[5,1]:t5", "c[5,8]", 0, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case sum_cases[] = {
    LATHE_CASE("c[26,67] f32[13,2] i32[13,2]:t26", "c[13,67]", 2, 0),
    LATHE_CASE("c[24,8] - i32[3,8]:t24", "c[3,8]", 8, 0),
    LATHE_CASE("c[1,3] f32[1,1] i32[1,1]:t1", "c[1,3]", 1, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case sum_bwd_cases[] = {
    LATHE_CASE("c[13,67] c[26,67] f32[13,2] i32[13,2]:t26", "c[26,67] f32[13,2]", 67, 0),
    LATHE_CASE("c[3,8] c[9,8] f32[3,3] i32[3,3]:t9", "c[9,8] -", 1, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case linear_cases[] = {
    LATHE_CASE("c[13,72] c[148,72] i32[5]:g13", "c[13,37]", 72, 0),
    LATHE_CASE("c[1,33] c[5,33] i32[2]:g1", "c[1,5]", 33, 0),
    LATHE_CASE("c[40,16] c[72,16] i32[10]:g40", "c[40,8]", 16, 0),
    LATHE_CASE_WITH("c[13,72] c[148,72] i32[5]:g13", "c[13,37]", 72, 0, .invariant = 1),
    LATHE_LAST_CASE,
};
static const lathe_op_case dx_cases[] = {
    LATHE_CASE("c[13,37] c[148,72] i32[5]:g13", "c[13,72]", 37, 0),
    LATHE_CASE("c[40,8] c[72,16] i32[10]:g40", "c[40,16]", 8, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case dw_cases[] = {
    LATHE_CASE("c[13,37] c[13,72] i32[5]:g13", "f32[148,72]", 13, 0),
    LATHE_CASE("c[40,8] c[40,16] i32[10]:g40", "c[72,16]", 40, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(EXPERT_PLACES, .infer = infer_places, .check = check_places, .exact = exact_places,
                .cases = places_cases);
LATHE_OP_DEFINE(EXPERT_ROWS, .accumulates = 1, .cheap = 1, .infer = infer_rows,
                .derive = derive_rows, .check = check_rows, .exact = exact_rows,
                .cases = rows_cases);
LATHE_OP_DEFINE(EXPERT_SUM, .accumulates = 1, .infer = infer_sum, .derive = derive_sum,
                .check = check_sum, .exact = exact_sum, .cases = sum_cases);
LATHE_OP_DEFINE(EXPERT_SUM_BWD, .accumulates = 1, .infer = infer_sum_bwd, .check = check_sum_bwd,
                .exact = exact_sum_bwd, .cases = sum_bwd_cases);
LATHE_OP_DEFINE(EXPERT_LINEAR, .infer = infer_linear, .derive = derive_linear,
                .flops = flops_linear, .check = check_linear, .exact = exact_linear,
                .cases = linear_cases);
LATHE_OP_DEFINE(EXPERT_LINEAR_DX, .accumulates = 1, .infer = infer_linear, .flops = flops_linear,
                .check = check_linear, .exact = exact_dx, .cases = dx_cases);
LATHE_OP_DEFINE(EXPERT_LINEAR_DW, .accumulates = 1, .param_outputs = 1, .in_grad_dtype = 1,
                .infer = infer_dw, .flops = flops_dw, .check = check_dw, .exact = exact_dw,
                .cases = dw_cases);
