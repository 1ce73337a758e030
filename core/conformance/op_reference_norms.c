/* RMSNORM, LAYERNORM, their derivatives, and the norms of a sum. */
#include <math.h>
#include <stddef.h>

#include "conformance/op_reference.h"

/* One row of d elements. mean is 0 for RMSNORM. */
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

static void forward(const lathe__op_problem *p, double *const *in, double *const *out)
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

/* The sum is rounded to its dtype before its norm is taken. */
static void joined(const lathe__op_problem *p, double *const *in, double *const *out)
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

/* dx of one row from the saved statistics; adds to dw and db. */
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

static void backward(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int centered = p->op == LATHE_OP_LAYERNORM_BWD;
    const int64_t d = lathe_desc_count(&p->in[2]), n = lathe_desc_count(&p->in[1]);
    for (int64_t r = 0; r < n / d; r++) {
        const row_stats s = {centered ? in[3][r] : 0.0, centered ? in[4][r] : in[3][r]};
        row_bwd(in[0] + r * d, in[1] + r * d, in[2], p->attrs.offset_one ? 1.0 : 0.0, s, centered,
                d, out[0] + r * d, out[1], centered ? out[2] : NULL);
    }
}

lathe__op_function lathe__op_norms(int32_t op)
{
    switch (op) {
    case LATHE_OP_RMSNORM:
    case LATHE_OP_LAYERNORM:
        return forward;
    case LATHE_OP_RMSNORM_BWD:
    case LATHE_OP_LAYERNORM_BWD:
        return backward;
    case LATHE_OP_ADD_RMSNORM:
    case LATHE_OP_ADD_LAYERNORM:
        return joined;
    default:
        return NULL;
    }
}
