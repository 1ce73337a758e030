/* RMSNORM, LAYERNORM and their derivatives on the CPU device. */
#include "kernels/op_harness.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

/* y, rstd of x [rows, d] with weights w. */
static void rms(const op_case *c, const double *x, const double *w, int64_t rows, int64_t d,
                double *y, double *rstd)
{
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0;
        for (int64_t i = 0; i < d; i++)
            sum += x[r * d + i] * x[r * d + i];
        rstd[r] = 1.0 / sqrt(sum / (double)d + (double)c->attrs.eps);
        for (int64_t i = 0; i < d; i++)
            y[r * d + i] = x[r * d + i] * rstd[r] * (w[i] + (c->attrs.offset_one ? 1.0 : 0.0));
    }
}

static void rms_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t d = lathe_desc_count(&c->in[1]);
    rms(c, in[0], in[1], lathe_desc_count(&c->in[0]) / d, d, want[0], want[1]);
}

static double rms_loss(const op_case *c, double *const *in)
{
    const int64_t d = lathe_desc_count(&c->in[2]), n = lathe_desc_count(&c->in[1]);
    double *y = malloc((size_t)n * sizeof *y), *rstd = malloc((size_t)n * sizeof *rstd), sum = 0.0;
    rms(c, in[1], in[2], n / d, d, y, rstd);
    for (int64_t i = 0; i < n; i++)
        sum += in[0][i] * y[i];
    free(y);
    free(rstd);
    return sum;
}

static void rms_bwd_reference(const op_case *c, double *const *in, double *const *want)
{
    op_differences(rms_loss, c, in, in[1], lathe_desc_count(&c->in[1]), want[0]);
    if (c->out[1].dtype != LATHE_ABSENT)
        op_differences(rms_loss, c, in, in[2], lathe_desc_count(&c->in[2]), want[1]);
}

static void rms_case(int32_t dtype, int64_t rows, int64_t d, int offset_one)
{
    op_case c = {.op = LATHE_OP_RMSNORM, .reference = rms_reference, .slack = slack_of(d)};
    c.attrs.eps = 1e-5f;
    c.attrs.offset_one = offset_one;
    op_input(&c, 0, lathe_desc_2d(dtype, rows, d), 0.0, 2.0);
    op_input(&c, 1, lathe_desc_1d(LATHE_F32, d), 1.0, 0.5);
    op_output(&c, 0, lathe_desc_2d(dtype, rows, d));
    op_output(&c, 1, lathe_desc_1d(LATHE_F32, rows));
    op_check(&c);
}

static void rms_bwd_case(int32_t dtype, int64_t rows, int64_t d, int offset_one, int with_dw)
{
    op_case c = {.op = LATHE_OP_RMSNORM_BWD,
                 .reference = rms_bwd_reference,
                 .slack = 4.0 * slack_of(d) + 1e-8, /* and the error of the differences */
                 .add = 1};
    c.attrs.eps = 1e-5f;
    c.attrs.offset_one = offset_one;
    op_input(&c, 0, lathe_desc_2d(dtype, rows, d), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(dtype, rows, d), 0.0, 2.0);
    op_input(&c, 2, lathe_desc_1d(LATHE_F32, d), 1.0, 0.5);
    op_input(&c, 3, lathe_desc_1d(LATHE_F32, rows), 0.0, 1.0);
    double *y = malloc((size_t)(rows * d) * sizeof *y);
    rms(&c, c.value[1], c.value[2], rows, d, y, c.value[3]);
    free(y);
    op_output(&c, 0, lathe_desc_2d(dtype, rows, d));
    if (with_dw)
        op_output(&c, 1, lathe_desc_1d(LATHE_F32, d));
    else
        op_absent_out(&c, 1);
    op_check(&c);
}

Test(rmsnorm, agrees_at_odd_sizes)
{
    for (int d = 0; d < 3; d++) {
        rms_case(dtypes[d], 37, 67, 0);
        rms_case(dtypes[d], 1, 1, 0);
        rms_case(dtypes[d], 300, 96, 1);
    }
}

Test(rmsnorm_bwd, agrees_with_finite_differences)
{
    for (int d = 0; d < 3; d++) {
        rms_bwd_case(dtypes[d], 7, 21, 0, 1);
        rms_bwd_case(dtypes[d], 7, 21, 1, 0);
        rms_bwd_case(dtypes[d], 1, 5, 1, 1);
    }
}

static void layer(const op_case *c, const double *x, const double *w, const double *b, int64_t rows,
                  int64_t d, double *y, double *mean, double *rstd)
{
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < d; i++)
            sum += x[r * d + i];
        mean[r] = sum / (double)d;
        for (int64_t i = 0; i < d; i++)
            squares += (x[r * d + i] - mean[r]) * (x[r * d + i] - mean[r]);
        rstd[r] = 1.0 / sqrt(squares / (double)d + (double)c->attrs.eps);
        for (int64_t i = 0; i < d; i++)
            y[r * d + i] = (x[r * d + i] - mean[r]) * rstd[r] * w[i] + (b == NULL ? 0.0 : b[i]);
    }
}

static void layer_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t d = lathe_desc_count(&c->in[1]);
    layer(c, in[0], in[1], in[2], lathe_desc_count(&c->in[0]) / d, d, want[0], want[1], want[2]);
}

static double layer_loss(const op_case *c, double *const *in)
{
    const int64_t d = lathe_desc_count(&c->in[2]), n = lathe_desc_count(&c->in[1]);
    double *y = malloc((size_t)n * 3 * sizeof *y), sum = 0.0;
    layer(c, in[1], in[2], NULL, n / d, d, y, y + n, y + 2 * n);
    for (int64_t i = 0; i < n; i++)
        sum += in[0][i] * y[i];
    free(y);
    return sum;
}

static void layer_bwd_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t d = lathe_desc_count(&c->in[2]), n = lathe_desc_count(&c->in[1]);
    op_differences(layer_loss, c, in, in[1], n, want[0]);
    if (c->out[1].dtype != LATHE_ABSENT)
        op_differences(layer_loss, c, in, in[2], d, want[1]);
    for (int64_t i = 0; c->out[2].dtype != LATHE_ABSENT && i < n; i++)
        want[2][i % d] += in[0][i];
}

static void layer_case(int32_t dtype, int64_t rows, int64_t d, int bias)
{
    op_case c = {.op = LATHE_OP_LAYERNORM, .reference = layer_reference, .slack = slack_of(d)};
    c.attrs.eps = 1e-5f;
    op_input(&c, 0, lathe_desc_2d(dtype, rows, d), 0.5, 2.0);
    op_input(&c, 1, lathe_desc_1d(LATHE_F32, d), 1.0, 0.5);
    if (bias)
        op_input(&c, 2, lathe_desc_1d(LATHE_F32, d), 0.0, 1.0);
    else
        op_absent_in(&c, 2);
    op_output(&c, 0, lathe_desc_2d(dtype, rows, d));
    op_output(&c, 1, lathe_desc_1d(LATHE_F32, rows));
    op_output(&c, 2, lathe_desc_1d(LATHE_F32, rows));
    op_check(&c);
}

static void layer_bwd_case(int32_t dtype, int64_t rows, int64_t d, int with_dw, int with_db)
{
    op_case c = {.op = LATHE_OP_LAYERNORM_BWD,
                 .reference = layer_bwd_reference,
                 .slack = 4.0 * slack_of(d) + 1e-8, /* and the error of the differences */
                 .add = 1};
    c.attrs.eps = 1e-5f;
    op_input(&c, 0, lathe_desc_2d(dtype, rows, d), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(dtype, rows, d), 0.5, 2.0);
    op_input(&c, 2, lathe_desc_1d(LATHE_F32, d), 1.0, 0.5);
    op_input(&c, 3, lathe_desc_1d(LATHE_F32, rows), 0.0, 1.0);
    op_input(&c, 4, lathe_desc_1d(LATHE_F32, rows), 0.0, 1.0);
    double *y = malloc((size_t)(rows * d) * sizeof *y);
    layer(&c, c.value[1], c.value[2], NULL, rows, d, y, c.value[3], c.value[4]);
    free(y);
    op_output(&c, 0, lathe_desc_2d(dtype, rows, d));
    if (with_dw)
        op_output(&c, 1, lathe_desc_1d(LATHE_F32, d));
    else
        op_absent_out(&c, 1);
    if (with_db)
        op_output(&c, 2, lathe_desc_1d(LATHE_F32, d));
    else
        op_absent_out(&c, 2);
    op_check(&c);
}

Test(layernorm, agrees_at_odd_sizes_with_and_without_bias)
{
    for (int d = 0; d < 3; d++) {
        layer_case(dtypes[d], 37, 67, 1);
        layer_case(dtypes[d], 1, 3, 0);
        layer_case(dtypes[d], 500, 64, 1);
    }
}

Test(layernorm_bwd, agrees_with_finite_differences)
{
    for (int d = 0; d < 3; d++) {
        layer_bwd_case(dtypes[d], 7, 21, 1, 1);
        layer_bwd_case(dtypes[d], 5, 19, 0, 1);
        layer_bwd_case(dtypes[d], 5, 19, 1, 0);
        layer_bwd_case(dtypes[d], 1, 4, 0, 0);
    }
}

/* The derivatives by their formulas, for sizes for which differences take too long. */
static void rms_bwd_formula(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = lathe_desc_count(&c->in[1]), d = lathe_desc_count(&c->in[2]);
    const double offset = c->attrs.offset_one ? 1.0 : 0.0;
    for (int64_t r = 0; r < n; r += d) {
        const double *dy = in[0] + r, *x = in[1] + r, rstd = in[3][r / d];
        double mean = 0.0;
        for (int64_t i = 0; i < d; i++)
            mean += dy[i] * (in[2][i] + offset) * x[i] * rstd / (double)d;
        for (int64_t i = 0; i < d; i++) {
            want[0][r + i] = rstd * (dy[i] * (in[2][i] + offset) - x[i] * rstd * mean);
            want[1][i] += dy[i] * x[i] * rstd;
        }
    }
}

static void layer_bwd_formula(const op_case *c, double *const *in, double *const *want)
{
    const int64_t d = c->in[0].dims[1];
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++) {
        const int64_t r = i / d;
        const double xhat = (in[1][i] - in[3][r]) * in[4][r];
        want[1][i % d] += in[0][i] * xhat;
        want[2][i % d] += in[0][i];
        double g = 0.0, gx = 0.0;
        for (int64_t j = r * d; j < (r + 1) * d; j++) {
            g += in[0][j] * in[2][j % d] / (double)d;
            gx += in[0][j] * in[2][j % d] * (in[1][j] - in[3][r]) * in[4][r] / (double)d;
        }
        want[0][i] = in[4][r] * (in[0][i] * in[2][i % d] - g - xhat * gx);
    }
}

Test(layernorm_bwd, adds_partials_of_many_rows)
{
    op_case c = {.op = LATHE_OP_LAYERNORM_BWD,
                 .reference = layer_bwd_formula,
                 .slack = 4.0 * slack_of(3000),
                 .add = 1};
    const int64_t rows = 3001, d = 40;
    op_input(&c, 0, lathe_desc_2d(LATHE_F32, rows, d), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_F32, rows, d), 0.0, 1.0);
    op_input(&c, 2, lathe_desc_1d(LATHE_F32, d), 1.0, 0.5);
    op_input(&c, 3, lathe_desc_1d(LATHE_F32, rows), 0.0, 0.1);
    op_input(&c, 4, lathe_desc_1d(LATHE_F32, rows), 1.0, 0.5);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, rows, d));
    op_output(&c, 1, lathe_desc_1d(LATHE_F32, d));
    op_output(&c, 2, lathe_desc_1d(LATHE_F32, d));
    op_check(&c);
}

/* Widths around those at which a device changes its algorithm: a warp or a block per row, rows in
 * registers or not, whole packs of elements or not. */
static const int64_t widths[] = {64, 1024, 1032, 1027, 2048, 8192, 8200};
#define N_WIDTHS ((int)(sizeof widths / sizeof widths[0]))

Test(rmsnorm, agrees_at_wide_rows)
{
    for (int w = 0; w < N_WIDTHS; w++)
        rms_case(dtypes[w % 3], 11, widths[w], w & 1);
}

Test(layernorm, agrees_at_wide_rows)
{
    for (int w = 0; w < N_WIDTHS; w++)
        layer_case(dtypes[w % 3], 11, widths[w], w & 1);
}

/* Inputs dy, x and w, and arbitrary statistics, for `rows` rows of d. */
static op_case wide_bwd(int32_t op, int32_t dtype, int64_t rows, int64_t d)
{
    op_case c = {.op = op, .slack = 4.0 * slack_of(d + rows), .add = 1};
    op_input(&c, 0, lathe_desc_2d(dtype, rows, d), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(dtype, rows, d), 0.0, 1.0);
    op_input(&c, 2, lathe_desc_1d(LATHE_F32, d), 1.0, 0.5);
    op_output(&c, 0, lathe_desc_2d(dtype, rows, d));
    op_output(&c, 1, lathe_desc_1d(LATHE_F32, d));
    return c;
}

Test(rmsnorm_bwd, agrees_at_wide_rows)
{
    for (int w = 0; w < N_WIDTHS; w++) {
        const int64_t rows = w == 0 ? 700 : 3;
        op_case c = wide_bwd(LATHE_OP_RMSNORM_BWD, dtypes[w % 3], rows, widths[w]);
        c.reference = rms_bwd_formula;
        c.attrs.offset_one = w & 1;
        op_input(&c, 3, lathe_desc_1d(LATHE_F32, rows), 1.0, 0.5);
        op_check(&c);
    }
}

Test(layernorm_bwd, agrees_at_wide_rows)
{
    for (int w = 0; w < N_WIDTHS; w++) {
        op_case c = wide_bwd(LATHE_OP_LAYERNORM_BWD, dtypes[w % 3], 3, widths[w]);
        c.reference = layer_bwd_formula;
        op_input(&c, 3, lathe_desc_1d(LATHE_F32, 3), 0.0, 0.1);
        op_input(&c, 4, lathe_desc_1d(LATHE_F32, 3), 1.0, 0.5);
        op_output(&c, 2, lathe_desc_1d(LATHE_F32, widths[w]));
        op_check(&c);
    }
}
