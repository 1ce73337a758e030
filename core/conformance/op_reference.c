/* Elementwise ops, reductions over everything, and the table that finds the rest. */
#include "conformance/op_reference.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "lathe/fp8.h"
#include "lathe/rng.h"

double lathe__op_load(const void *memory, int32_t dtype, int64_t i)
{
    switch (dtype) {
    case LATHE_F32:
        return (double)((const float *)memory)[i];
    case LATHE_BF16:
        return (double)lathe_bf16_to_f32(((const uint16_t *)memory)[i]);
    case LATHE_F16:
        return (double)lathe_f16_to_f32(((const uint16_t *)memory)[i]);
    case LATHE_F64:
        return ((const double *)memory)[i];
    case LATHE_I32:
        return (double)((const int32_t *)memory)[i];
    case LATHE_I64:
        return (double)((const int64_t *)memory)[i];
    default:
        return NAN;
    }
}

void lathe__op_store(void *memory, int32_t dtype, int64_t i, double x)
{
    if (dtype == LATHE_F32)
        ((float *)memory)[i] = (float)x;
    else if (dtype == LATHE_BF16)
        ((uint16_t *)memory)[i] = lathe_f32_to_bf16((float)x);
    else if (dtype == LATHE_F16)
        ((uint16_t *)memory)[i] = lathe_f32_to_f16((float)x);
    else if (dtype == LATHE_F64)
        ((double *)memory)[i] = x;
    else if (dtype == LATHE_I32)
        ((int32_t *)memory)[i] = (int32_t)x;
    else if (dtype == LATHE_I64)
        ((int64_t *)memory)[i] = (int64_t)x;
}

double lathe__op_round(double x, int32_t dtype)
{
    char cell[8];
    lathe__op_store(cell, dtype, 0, x);
    return lathe__op_load(cell, dtype, 0);
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static const double gelu_factor = 0.79788456080286535588; /* sqrt(2 / pi) */

double lathe__gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(gelu_factor * (x + 0.044715 * x * x * x)));
}

double lathe__gelu_slope(double x)
{
    const double t = tanh(gelu_factor * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * gelu_factor * (1.0 + 3.0 * 0.044715 * x * x);
}

static double clamped(double x, double limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* Ops whose output element i comes from element i of the inputs alone. */
static double element(const lathe__op_problem *p, double *const *in, int64_t i)
{
    const double x = in[0][i], alpha = p->attrs.alpha, beta = p->attrs.beta;
    switch (p->op) {
    case LATHE_OP_ADD:
        return x + in[1][i];
    case LATHE_OP_SUB:
        return x - in[1][i];
    case LATHE_OP_MUL:
        return x * in[1][i];
    case LATHE_OP_SCALE:
        return alpha * x + beta;
    case LATHE_OP_SCALE_BY:
        return x * in[1][p->attrs.start];
    case LATHE_OP_LINCOMB:
        return alpha * x + beta * in[1][i];
    case LATHE_OP_APPLY_UPDATE:
        return x - in[2][p->attrs.start] * (alpha * in[1][i] + beta * x);
    case LATHE_OP_CLAMP:
        return clamped(x, in[1][p->attrs.start]);
    case LATHE_OP_SWIGLU:
        return x * sigmoid(x) * in[1][i];
    case LATHE_OP_GELU_TANH:
        return lathe__gelu(x);
    case LATHE_OP_GELU_TANH_BWD:
        return x * lathe__gelu_slope(in[1][i]);
    case LATHE_OP_SIGMOID:
        return sigmoid(x);
    case LATHE_OP_LOGSIGMOID:
        return x < -700.0 ? x : -log1p(exp(-x));
    default: /* CAST, COPY */
        return x;
    }
}

static void elementwise(const lathe__op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = element(p, in, i);
}

static void swiglu_bwd(const lathe__op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++) {
        const double dy = in[0][i], g = in[1][i], u = in[2][i], s = sigmoid(g);
        out[0][i] = dy * u * s * (1.0 + g * (1.0 - s));
        if (out[1] != NULL)
            out[1][i] = dy * g * s;
    }
}

/* The backward multiplies dy by the same mask. */
static void dropout(const lathe__op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++) {
        const lathe_u32x4 r = lathe_rng_block((uint64_t)in[1][0], (uint64_t)in[1][1],
                                              p->attrs.rng_stream, (uint64_t)(i / 4));
        const int kept = lathe_uniform_f32(r.v[i % 4]) >= p->attrs.p;
        out[0][i] = kept ? in[0][i] / (1.0 - (double)p->attrs.p) : 0.0;
    }
}

static void sum(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t per = p->op == LATHE_OP_ROW_SUM ? p->attrs.count : lathe_desc_count(&p->in[0]);
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++)
        out[0][i / per] += in[0][i];
}

static void broadcast(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t per = lathe_desc_count(&p->out[0]) / lathe_desc_count(&p->in[0]);
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i / per];
}

static void l2_normalize(const lathe__op_problem *p, double *const *in, double *const *out)
{
    double squares = 0.0;
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++)
        squares += in[0][i] * in[0][i];
    const double norm = fmax(sqrt(squares), (double)p->attrs.eps);
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++)
        out[0][i] = in[0][i] / norm;
}

static void sum_squares(const lathe__op_problem *p, double *const *in, double *const *out)
{
    for (int64_t s = 0; s < p->out[0].dims[0]; s++) {
        const int64_t first = (int64_t)in[1][2 * s], n = (int64_t)in[1][2 * s + 1];
        for (int64_t e = first; e < first + n; e++)
            out[0][s] += in[0][e] * in[0][e];
    }
}

static void update_squares(const lathe__op_problem *p, double *const *in, double *const *out)
{
    for (int64_t e = 0; e < lathe_desc_count(&p->in[0]); e++) {
        const double d =
            in[2][p->attrs.start] * (p->attrs.alpha * in[1][e] + p->attrs.beta * in[0][e]);
        out[0][e / 16384] += d * d;
    }
}

static lathe__op_function simple(int32_t op)
{
    switch (op) {
    case LATHE_OP_SWIGLU_BWD:
        return swiglu_bwd;
    case LATHE_OP_DROPOUT:
    case LATHE_OP_DROPOUT_BWD:
        return dropout;
    case LATHE_OP_SUM:
    case LATHE_OP_ROW_SUM:
        return sum;
    case LATHE_OP_BROADCAST:
        return broadcast;
    case LATHE_OP_L2_NORMALIZE:
        return l2_normalize;
    case LATHE_OP_SUM_SQUARES:
        return sum_squares;
    case LATHE_OP_UPDATE_SQUARES:
        return update_squares;
    case LATHE_OP_ADD:
    case LATHE_OP_SUB:
    case LATHE_OP_MUL:
    case LATHE_OP_SCALE:
    case LATHE_OP_SCALE_BY:
    case LATHE_OP_LINCOMB:
    case LATHE_OP_APPLY_UPDATE:
    case LATHE_OP_CLAMP:
    case LATHE_OP_SWIGLU:
    case LATHE_OP_GELU_TANH:
    case LATHE_OP_GELU_TANH_BWD:
    case LATHE_OP_SIGMOID:
    case LATHE_OP_LOGSIGMOID:
    case LATHE_OP_CAST:
    case LATHE_OP_COPY:
        return elementwise;
    default:
        return NULL;
    }
}

lathe_status lathe__op_exact(const lathe__op_problem *p, double *const *in, double *const *out)
{
    lathe__op_function f = simple(p->op);
    if (f == NULL)
        f = lathe__op_rows(p->op);
    if (f == NULL)
        f = lathe__op_norms(p->op);
    if (f == NULL)
        f = lathe__op_products(p->op);
    if (f == NULL)
        return lathe_error(LATHE_E_UNSUPPORTED, "op %d has no reference", p->op);
    f(p, in, out);
    return LATHE_OK;
}
