/* HEAD_LOGPROB and its derivative on the CPU device. */
#include "kernels/op_harness.h"

static double logit(const op_case *c, double *const *in, int64_t n, int64_t v)
{
    const int64_t width = c->in[1].dims[1];
    double sum = 0.0;
    for (int64_t i = 0; i < width; i++)
        sum += in[0][n * width + i] * in[1][v * width + i];
    const double cap = (double)c->attrs.softcap;
    return cap > 0.0 ? cap * tanh(sum / cap) : sum;
}

static void forward(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = lathe_desc_count(&c->in[2]), vocabulary = c->in[1].dims[0];
    for (int64_t r = 0; r < n; r++) {
        const int64_t target = (int64_t)in[2][r];
        want[0][r] = 0.0;
        if (target < 0)
            continue;
        double sum = 0.0, of_target = 0.0;
        for (int64_t v = 0; v < vocabulary; v++) {
            const double l = logit(c, in, r, v);
            sum += exp(l);
            if (v == target)
                of_target = l;
        }
        want[0][r] = of_target - log(sum);
    }
}

static double loss(const op_case *c, double *const *in)
{
    const int64_t n = lathe_desc_count(&c->in[2]);
    double *logp = calloc((size_t)n, sizeof *logp), sum = 0.0;
    double *const want[1] = {logp};
    forward(c, in, want);
    for (int64_t r = 0; r < n; r++)
        sum += in[3][r] * logp[r];
    free(logp);
    return sum;
}

static void backward(const op_case *c, double *const *in, double *const *want)
{
    forward(c, in, want);
    op_differences(loss, c, in, in[0], lathe_desc_count(&c->in[0]), want[1]);
    if (c->out[2].dtype != LATHE_ABSENT)
        op_differences(loss, c, in, in[1], lathe_desc_count(&c->in[1]), want[2]);
}

/* bf16: the logits (up to about 3 here) and their gradients are rounded to 8 bits on the way. */
static double head_slack(int32_t dtype, int64_t width)
{
    return dtype == LATHE_BF16 ? 0x1p-6 : 4.0 * slack_of(width) + 1e-7;
}

static void inputs(op_case *c, int32_t dtype, int64_t n, int64_t width, int64_t vocabulary,
                   int64_t ignored)
{
    op_input(c, 0, lathe_desc_2d(dtype, n, width), 0.0, 1.0);
    op_input(c, 1, lathe_desc_2d(dtype, vocabulary, width), 0.0, 1.0);
    op_indices(c, 2, n, 1, 7, vocabulary);
    for (int64_t r = 0; ignored > 0 && r < n; r += ignored)
        c->value[2][r] = -1.0;
    c->slack = head_slack(dtype, width);
}

static void forward_case(int32_t dtype, int64_t n, int64_t width, int64_t vocabulary, float cap,
                         int64_t ignored, int64_t chunk)
{
    op_case c = {.op = LATHE_OP_HEAD_LOGPROB, .product = 1, .reference = forward};
    c.attrs.softcap = cap;
    c.attrs.chunk_rows = chunk;
    inputs(&c, dtype, n, width, vocabulary, ignored);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, n));
    op_check(&c);
}

static void backward_case(int32_t dtype, int64_t n, int64_t width, int64_t vocabulary, float cap,
                          int64_t ignored, int64_t chunk, int with_dw)
{
    op_case c = {.op = LATHE_OP_HEAD_LOGPROB_BWD, .product = 1, .reference = backward, .add = 1};
    c.attrs.softcap = cap;
    c.attrs.chunk_rows = chunk;
    inputs(&c, dtype, n, width, vocabulary, ignored);
    op_input(&c, 3, lathe_desc_1d(LATHE_F32, n), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, n));
    op_output(&c, 1, lathe_desc_2d(dtype, n, width));
    if (with_dw)
        op_output(&c, 2, lathe_desc_2d(LATHE_F32, vocabulary, width));
    else
        op_absent_out(&c, 2);
    op_check(&c);
}

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16};

Test(head_logprob, of_equal_logits_is_minus_log_v)
{
    op_case c = {.op = LATHE_OP_HEAD_LOGPROB, .product = 1, .reference = forward};
    op_input(&c, 0, lathe_desc_2d(LATHE_F32, 2, 3), 0.0, 0.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_F32, 5, 3), 0.0, 1.0);
    op_indices(&c, 2, 2, 0, 1, 5);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, 2));
    double y[2], *const want[1] = {y};
    forward(&c, c.value, want);
    cr_assert_float_eq(y[0], -log(5.0), 1e-15);
    op_check(&c);
}

Test(head_logprob, agrees_at_odd_sizes_with_ignored_rows_and_softcap)
{
    for (int d = 0; d < 2; d++) {
        forward_case(dtypes[d], 1, 9, 3, 0.0f, 0, 0);
        forward_case(dtypes[d], 37, 19, 101, 0.0f, 3, 8);
        forward_case(dtypes[d], 11, 8, 130, 2.0f, 0, 4);
        forward_case(dtypes[d], 3, 16, 20000, 0.0f, 0, 0); /* several blocks */
        forward_case(dtypes[d], 4, 8, 7, 0.0f, 1, 0);      /* every row ignored */
    }
}

Test(head_logprob_bwd, agrees_with_finite_differences)
{
    for (int d = 0; d < 2; d++) {
        backward_case(dtypes[d], 1, 5, 3, 0.0f, 0, 0, 1);
        backward_case(dtypes[d], 13, 7, 33, 0.0f, 3, 4, 1);
        backward_case(dtypes[d], 13, 7, 33, 1.5f, 4, 5, 1);
        backward_case(dtypes[d], 9, 6, 40, 0.0f, 0, 0, 0);
        backward_case(dtypes[d], 4, 5, 7, 0.0f, 1, 0, 1); /* every row ignored */
    }
}

/* Exact derivative, for a vocabulary of several blocks where differences would take too long. */
static void backward_formula(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = c->in[0].dims[0], width = c->in[0].dims[1], vocabulary = c->in[1].dims[0];
    forward(c, in, want);
    for (int64_t r = 0; r < n; r++) {
        const int64_t target = (int64_t)in[2][r];
        const double lse = logit(c, in, r, target) - want[0][r];
        for (int64_t v = 0; v < vocabulary; v++) {
            const double g = in[3][r] * ((v == target) - exp(logit(c, in, r, v) - lse));
            for (int64_t i = 0; i < width; i++) {
                want[1][r * width + i] += g * in[1][v * width + i];
                want[2][v * width + i] += g * in[0][r * width + i];
            }
        }
    }
}

Test(head_logprob_bwd, agrees_over_several_blocks_of_the_vocabulary)
{
    for (int d = 0; d < 2; d++) {
        op_case c = {
            .op = LATHE_OP_HEAD_LOGPROB_BWD, .product = 1, .reference = backward_formula, .add = 1};
        inputs(&c, dtypes[d], 6, 8, 17001, 0);
        op_input(&c, 3, lathe_desc_1d(LATHE_F32, 6), 0.0, 1.0);
        op_output(&c, 0, lathe_desc_1d(LATHE_F32, 6));
        op_output(&c, 1, lathe_desc_2d(dtypes[d], 6, 8));
        op_output(&c, 2, lathe_desc_2d(LATHE_F32, 17001, 8));
        op_check(&c);
    }
}
