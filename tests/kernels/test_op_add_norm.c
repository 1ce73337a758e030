/* ADD_RMSNORM and ADD_LAYERNORM: the norm of a sum that is rounded first. */
#include "kernels/op_harness.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

static void reference(const op_case *c, double *const *in, double *const *want)
{
    const int is_rms = c->op == LATHE_OP_ADD_RMSNORM;
    const int64_t d = lathe_desc_count(&c->in[2]), rows = lathe_desc_count(&c->in[0]) / d;
    double *rstd = want[is_rms ? 2 : 3];
    for (int64_t r = 0; r < rows; r++) {
        double *x = want[0] + r * d, mean = 0.0, squares = 0.0;
        for (int64_t i = 0; i < d; i++) {
            x[i] = op_round(in[0][r * d + i] + in[1][r * d + i], c->in[0].dtype);
            mean += is_rms ? 0.0 : x[i] / (double)d;
        }
        for (int64_t i = 0; i < d; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        rstd[r] = 1.0 / sqrt(squares / (double)d + (double)c->attrs.eps);
        if (!is_rms)
            want[2][r] = mean;
        for (int64_t i = 0; i < d; i++)
            want[1][r * d + i] =
                (x[i] - mean) * rstd[r] * (in[2][i] + (c->attrs.offset_one ? 1.0 : 0.0)) +
                (!is_rms && in[3] ? in[3][i] : 0.0);
    }
}

/* flag: use 1 + w, or a bias */
static void check(int32_t op, int32_t dtype, int64_t rows, int64_t d, int flag, int in_place)
{
    const int is_rms = op == LATHE_OP_ADD_RMSNORM;
    op_case c = {.op = op, .reference = reference, .slack = slack_of(d), .in_place = in_place};
    c.attrs.eps = 1e-5f;
    c.attrs.offset_one = is_rms && flag;
    op_input(&c, 0, lathe_desc_2d(dtype, rows, d), 0.5, 2.0);
    op_input(&c, 1, lathe_desc_2d(dtype, rows, d), 0.0, 1.0);
    op_input(&c, 2, lathe_desc_1d(LATHE_F32, d), 1.0, 0.5);
    if (!is_rms && flag)
        op_input(&c, 3, lathe_desc_1d(LATHE_F32, d), 0.0, 1.0);
    else if (!is_rms)
        op_absent_in(&c, 3);
    op_output(&c, 0, lathe_desc_2d(dtype, rows, d));
    op_output(&c, 1, lathe_desc_2d(dtype, rows, d));
    for (int i = 2; i < (is_rms ? 3 : 4); i++)
        op_output(&c, i, lathe_desc_1d(LATHE_F32, rows));
    op_check(&c);
}

static const int32_t ops[] = {LATHE_OP_ADD_RMSNORM, LATHE_OP_ADD_LAYERNORM};

Test(add_norm, agrees_at_odd_sizes_and_in_the_memory_of_either)
{
    for (int o = 0; o < 2; o++)
        for (int d = 0; d < 3; d++) {
            check(ops[o], dtypes[d], 37, 67, 0, 0);
            check(ops[o], dtypes[d], 1, 2, 1, 1);
            check(ops[o], dtypes[d], 300, 96, 1, 1);
            check(ops[o], dtypes[d], 300, 96, 0, 2);
        }
}

/* Widths around those at which a device changes its algorithm. */
Test(add_norm, agrees_at_wide_rows)
{
    static const int64_t widths[] = {64, 1024, 1032, 1027, 2048, 8192, 8200};
    for (int o = 0; o < 2; o++)
        for (int w = 0; w < 7; w++)
            check(ops[o], dtypes[w % 3], 11, widths[w], w & 1, w % 3);
}

Test(add_norm, refuses_terms_that_differ)
{
    for (int o = 0; o < 2; o++) {
        op_case c = {.op = ops[o]};
        op_input(&c, 0, lathe_desc_2d(LATHE_BF16, 4, 6), 0.0, 1.0);
        op_input(&c, 1, lathe_desc_2d(LATHE_F16, 4, 6), 0.0, 1.0);
        op_input(&c, 2, lathe_desc_1d(LATHE_F32, 6), 0.0, 1.0);
        if (o == 1)
            op_absent_in(&c, 3);
        op_output(&c, 0, lathe_desc_2d(LATHE_BF16, 4, 6));
        op_output(&c, 1, lathe_desc_2d(LATHE_BF16, 4, 6));
        for (int i = 2; i < 3 + o; i++)
            op_output(&c, i, lathe_desc_1d(LATHE_F32, 4));
        cr_assert_eq(op_refusal(&c), LATHE_E_DTYPE);
        c.in[1] = lathe_desc_2d(LATHE_BF16, 3, 6);
        cr_assert_eq(op_refusal(&c), LATHE_E_SHAPE);
        op_free(&c);
    }
}
