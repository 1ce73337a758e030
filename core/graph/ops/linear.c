/* LINEAR, its two derivatives, and the products that are fused with GELU. */
#include <math.h>

#include "graph/ops/rules.h"
#include "lathe/fp8.h"

static lathe_status infer_linear(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *w = lathe__in(p, 1), *b = lathe__in(p, 2);
    if (!x || !w || x->rank != 2 || w->rank != 2 || x->dims[1] != w->dims[1] ||
        x->dtype != w->dtype || (b && !lathe__is_vector(b, w->dims[0])))
        return lathe__bad_inputs(p, "x c[N,I], W c[O,I], b f32[O] or none");
    p->out[0] = lathe_desc_2d(x->dtype, x->dims[0], w->dims[0]);
    return LATHE_OK;
}

static lathe_status infer_backward(lathe_op_problem *p)
{
    const lathe_desc *dy = lathe__in(p, 0), *b = lathe__in(p, 1);
    if (!dy || !b || dy->rank != 2 || b->rank != 2 || dy->dtype != b->dtype)
        return lathe__bad_inputs(p, "two matrices of one dtype");
    if (p->op != LATHE_OP_LINEAR_DW) {
        if (dy->dims[1] != b->dims[0])
            return lathe__bad_inputs(p, "dy c[N,O], W c[O,I]");
        p->out[0] = lathe_desc_2d(dy->dtype, dy->dims[0], b->dims[1]);
    } else {
        if (dy->dims[0] != b->dims[0])
            return lathe__bad_inputs(p, "dy c[N,O], x c[N,I]");
        p->out[0] = lathe_desc_2d(LATHE_F32, dy->dims[1], b->dims[1]);
        p->out[1] = lathe_desc_1d(LATHE_F32, dy->dims[1]);
    }
    return LATHE_OK;
}

static lathe_status infer_linear_gelu(lathe_op_problem *p)
{
    if (p->op == LATHE_OP_LINEAR_GELU) {
        LATHE_TRY(infer_linear(p));
        p->out[1] = p->out[0];
        return LATHE_OK;
    }
    LATHE_TRY(infer_backward(p));
    if (!lathe__in(p, 2) || !lathe__same_shape(lathe__in(p, 2), &p->out[0]) ||
        p->in[2].dtype != p->out[0].dtype)
        return lathe__bad_inputs(p, "dy c[N,O], W c[O,I], z c[N,I]");
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val x = n->in[0], w = n->in[1], b = n->in[2];
    const lathe_op_attrs attrs = {.fp8 = n->attrs.fp8};
    lathe__emit_one(t, n, LATHE_OP_LINEAR_DX, &attrs, dy, w, x);
    if (lathe__needs(t, w) || lathe__needs(t, b)) {
        const lathe_val in[2] = {dy, x}, targets[2] = {w, b};
        lathe__emit(t, LATHE_OP_LINEAR_DW, &attrs, in, 2, targets, 1, 2, n->label);
    }
}

static double flops_forward(const lathe_op_problem *p)
{
    return 2.0 * (double)lathe_desc_count(&p->in[0]) * (double)p->in[1].dims[0];
}

static double flops_backward(const lathe_op_problem *p)
{
    return 2.0 * (double)lathe_desc_count(&p->in[0]) * (double)p->in[1].dims[1];
}

/* Checks that a product [m,k] by [k,n] fits the attribute fp8. */
static lathe_status check_fp8(const lathe_op_problem *p, int64_t m, int64_t n, int64_t k)
{
    if (p->attrs.fp8 == LATHE_FP8_NONE)
        return LATHE_OK;
    if (p->attrs.fp8 < 0 || p->attrs.fp8 >= LATHE_N_FP8)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: fp8 recipe %d is unknown here",
                           lathe__op_name(p), (int)p->attrs.fp8);
    if (p->in[0].dtype != LATHE_BF16)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: fp8 is cast from bf16, not from %s",
                           lathe__op_name(p), lathe_dtype_name(p->in[0].dtype));
    if (m % LATHE_FP8_DIM != 0 || n % LATHE_FP8_DIM != 0 || k % LATHE_FP8_DIM != 0)
        return lathe_error(LATHE_E_SHAPE,
                           "%s: [%lld,%lld]x[%lld,%lld] in fp8: the dims must be multiples of %d",
                           lathe__op_name(p), (long long)m, (long long)k, (long long)k,
                           (long long)n, LATHE_FP8_DIM);
    return LATHE_OK;
}

static lathe_status check_linear(const lathe_op_problem *p)
{
    if (p->in[1].rank != 2)
        return lathe__refuse_shape(p, "W must have two dims");
    const int64_t o = p->in[1].dims[0], i = p->in[1].dims[1];
    const int64_t n =
        lathe__last_dim(&p->in[0]) == i && i > 0 ? lathe_desc_count(&p->in[0]) / i : -1;
    if (n < 1 || o < 1)
        return lathe__refuse_shape(p, "x must be [N, I] for W [O, I], all at least 1");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n * i));
    LATHE_TRY(lathe__check_weight(p, 1));
    LATHE_TRY(lathe__check_out(p, 0, LATHE__COMPUTE, n * o));
    if (lathe__in(p, 2))
        LATHE_TRY(lathe__check_in(p, 2, LATHE_F32, o));
    return check_fp8(p, n, o, i);
}

static lathe_status check_dx(const lathe_op_problem *p)
{
    if (p->in[1].rank != 2)
        return lathe__refuse_shape(p, "W must have two dims");
    const int64_t o = p->in[1].dims[0], i = p->in[1].dims[1];
    const int64_t n =
        lathe__last_dim(&p->in[0]) == o && o > 0 ? lathe_desc_count(&p->in[0]) / o : -1;
    if (n < 1 || i < 1)
        return lathe__refuse_shape(p, "dy must be [N, O] for W [O, I], all at least 1");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n * o));
    LATHE_TRY(lathe__check_weight(p, 1));
    LATHE_TRY(lathe__check_out(p, 0, LATHE__COMPUTE, n * i));
    return check_fp8(p, n, i, o);
}

static lathe_status check_dw(const lathe_op_problem *p)
{
    const int64_t o = lathe__last_dim(&p->in[0]), i = lathe__last_dim(&p->in[1]);
    const int64_t n = o > 0 ? lathe_desc_count(&p->in[0]) / o : 0;
    if (n < 1 || o < 1 || i < 1)
        return lathe__refuse_shape(p, "dy [N, O] and x [N, I] must be at least 1 in each dim");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n * o));
    LATHE_TRY(lathe__check_in(p, 1, p->in[0].dtype, n * i));
    const int32_t narrow = p->out[0].dtype != LATHE_F32;
    LATHE_TRY(lathe__check_out(p, 0, narrow ? p->in[0].dtype : LATHE_F32, o * i));
    if (lathe__out(p, 1))
        LATHE_TRY(lathe__check_out(p, 1, LATHE_F32, o));
    return check_fp8(p, o, i, n);
}

static lathe_status refuse_fp8(const lathe_op_problem *p)
{
    if (p->attrs.fp8 == LATHE_FP8_NONE)
        return LATHE_OK;
    return lathe_error(LATHE_E_UNSUPPORTED, "%s is not computed in fp8", lathe__op_name(p));
}

static lathe_status check_linear_gelu(const lathe_op_problem *p)
{
    LATHE_TRY(refuse_fp8(p));
    LATHE_TRY(check_linear(p));
    const int64_t n = lathe_desc_count(&p->in[0]) / p->in[1].dims[1] * p->in[1].dims[0];
    for (int32_t i = 0; i < 2; i++)
        if (i == 0 || lathe__out(p, i))
            LATHE_TRY(lathe__check_out(p, i, p->in[0].dtype, n));
    return LATHE_OK;
}

static lathe_status check_dx_gelu(const lathe_op_problem *p)
{
    LATHE_TRY(refuse_fp8(p));
    LATHE_TRY(check_dx(p));
    const int64_t n = lathe_desc_count(&p->in[0]) / p->in[1].dims[0] * p->in[1].dims[1];
    LATHE_TRY(lathe__check_out(p, 0, p->in[0].dtype, n));
    return lathe__check_in(p, 2, p->in[0].dtype, n);
}

/* The scale factor of row r of x [rows, cols] in an fp8 recipe. */
static float fp8_factor(const double *x, int64_t rows, int64_t cols, int64_t r, int32_t recipe)
{
    const int64_t first = recipe == LATHE_FP8_ROWWISE ? r * cols : 0;
    const int64_t n = recipe == LATHE_FP8_ROWWISE ? cols : rows * cols;
    double most = 0.0;
    for (int64_t i = first; i < first + n; i++)
        most = fmax(most, fabs(x[i]));
    return lathe_fp8_scale((float)most, LATHE_F8_E4M3, recipe);
}

static double through_fp8(double x, float factor, int32_t recipe)
{
    if (recipe == 0)
        return x;
    return (double)lathe_e4m3_to_f32(lathe_f32_to_e4m3((float)x * factor)) / (double)factor;
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t o = p->in[1].dims[0], k = p->in[1].dims[1], n = lathe_desc_count(&p->in[0]) / k;
    const int32_t recipe = p->attrs.fp8;
    for (int64_t i = 0; i < n; i++) {
        const float x = recipe != 0 ? fp8_factor(in[0], n, k, i, recipe) : 1.0f;
        for (int64_t j = 0; j < o; j++) {
            const float w = recipe != 0 ? fp8_factor(in[1], o, k, j, recipe) : 1.0f;
            double total = in[2] != NULL ? in[2][j] : 0.0;
            for (int64_t e = 0; e < k; e++)
                total += through_fp8(in[0][i * k + e], x, recipe) *
                         through_fp8(in[1][j * k + e], w, recipe);
            out[0][i * o + j] = total;
        }
    }
}

static void exact_gelu(const lathe_op_problem *p, double *const *in, double *const *out)
{
    exact(p, in, out);
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++) {
        const double z = lathe__op_round(out[0][i], p->in[0].dtype);
        if (out[1] != NULL)
            out[1][i] = z;
        out[0][i] = lathe__gelu(z);
    }
}

static void exact_dx(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t o = p->in[1].dims[0], k = p->in[1].dims[1], n = lathe_desc_count(&p->in[0]) / o;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < o; j++)
            for (int64_t e = 0; e < k; e++)
                out[0][i * k + e] += in[0][i * o + j] * in[1][j * k + e];
    for (int64_t i = 0; p->op == LATHE_OP_LINEAR_DX_GELU && i < n * k; i++)
        out[0][i] = lathe__op_round(out[0][i], p->in[0].dtype) * lathe__gelu_slope(in[2][i]);
}

static void exact_dw(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = p->in[0].dims[0], o = p->in[0].dims[1], k = p->in[1].dims[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < o; j++) {
            if (out[1] != NULL)
                out[1][j] += in[0][i * o + j];
            for (int64_t e = 0; e < k; e++)
                out[0][j * k + e] += in[0][i * o + j] * in[1][i * k + e];
        }
}

static const lathe_op_case linear_cases[] = {
    LATHE_CASE("c[13,72] c[37,72] f32[37]", "c[13,37]", 72, 0),
    LATHE_CASE("c[1,33] c[129,33] -", "c[1,129]", 33, 0),
    LATHE_CASE_WITH("bf16[16,80] bf16[48,80] f32[48]", "bf16[16,48]", 80, 0,
                    .fp8 = LATHE_FP8_TENSORWISE),
    LATHE_CASE_WITH("bf16[16,80] bf16[48,80] f32[48]", "bf16[16,48]", 80, 0,
                    .fp8 = LATHE_FP8_ROWWISE),
    LATHE_LAST_CASE,
};

static const lathe_op_case dx_cases[] = {
    LATHE_CASE("c[13,37] c[37,72]", "c[13,72]", 37, 0),
    LATHE_CASE("c[1,3] c[3,5]", "c[1,5]", 3, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case dw_cases[] = {
    LATHE_CASE("c[37,45] c[37,67]", "f32[45,67] f32[45]", 37, 0),
    LATHE_CASE("c[1,9] c[1,33]", "f32[9,33] -", 1, 0),
    LATHE_CASE("c[29,9] c[29,33]", "c[9,33] f32[9]", 29, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case gelu_cases[] = {
    LATHE_CASE("c[13,24] c[37,24] f32[37]", "c[13,37] c[13,37]", 24, 4),
    LATHE_CASE("c[1,33] c[5,33] -", "c[1,5] -", 33, 4),
    LATHE_LAST_CASE,
};

static const lathe_op_case dx_gelu_cases[] = {
    LATHE_CASE("c[13,37] c[37,24] c[13,24]:2", "c[13,24]", 37, 4),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(LINEAR, .infer = infer_linear, .derive = derive, .flops = flops_forward,
                .check = check_linear, .exact = exact, .cases = linear_cases);
LATHE_OP_DEFINE(LINEAR_DX, .accumulates = 1, .infer = infer_backward, .flops = flops_backward,
                .check = check_dx, .exact = exact_dx, .cases = dx_cases);
LATHE_OP_DEFINE(LINEAR_DW, .accumulates = 1, .param_outputs = 3, .in_grad_dtype = 1,
                .infer = infer_backward, .flops = flops_backward, .check = check_dw,
                .exact = exact_dw, .cases = dw_cases);
LATHE_OP_DEFINE(LINEAR_GELU, .infer = infer_linear_gelu, .flops = flops_forward,
                .check = check_linear_gelu, .exact = exact_gelu, .cases = gelu_cases);
LATHE_OP_DEFINE(LINEAR_DX_GELU, .infer = infer_linear_gelu, .flops = flops_backward,
                .check = check_dx_gelu, .exact = exact_dx, .cases = dx_gelu_cases);
