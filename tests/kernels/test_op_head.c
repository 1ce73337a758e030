/* HEAD_LOGPROB, its derivative, HEAD_EVAL and HEAD_SAMPLE on the CPU device. */
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

/* The logits (up to about 3 in these tests) and their gradients are rounded to 8 or 11 bits. */
static double head_slack(int32_t dtype, int64_t width)
{
    return dtype == LATHE_BF16  ? 0x1p-6
           : dtype == LATHE_F16 ? 0x1p-9
                                : 4.0 * slack_of(width) + 1e-7;
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

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

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
    for (int d = 0; d < 3; d++) {
        forward_case(dtypes[d], 1, 9, 3, 0.0f, 0, 0);
        forward_case(dtypes[d], 37, 19, 101, 0.0f, 3, 8);
        forward_case(dtypes[d], 11, 8, 130, 2.0f, 0, 4);
        forward_case(dtypes[d], 3, 16, 20000, 0.0f, 0, 0); /* several blocks */
        forward_case(dtypes[d], 4, 8, 7, 0.0f, 1, 0);      /* all rows skipped */
    }
}

Test(head_logprob_bwd, agrees_with_finite_differences)
{
    for (int d = 0; d < 3; d++) {
        backward_case(dtypes[d], 1, 5, 3, 0.0f, 0, 0, 1);
        backward_case(dtypes[d], 13, 7, 33, 0.0f, 3, 4, 1);
        backward_case(dtypes[d], 13, 7, 33, 1.5f, 4, 5, 1);
        backward_case(dtypes[d], 9, 6, 40, 0.0f, 0, 0, 0);
        backward_case(dtypes[d], 4, 5, 7, 0.0f, 1, 0, 1); /* all rows skipped */
    }
}

/* The exact derivative, for a vocabulary of several blocks, for which differences would take too
 * long. */
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
    for (int d = 0; d < 3; d++) {
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

/* Small whole numbers: logits are exact in every dtype, and equal logits are common. */
static void whole_numbers(op_case *c, int32_t i, lathe_desc d, double scale)
{
    op_input(c, i, d, 0.0, 1.0);
    for (int64_t j = 0; j < lathe_desc_count(&d); j++)
        c->value[i][j] = rint(scale * c->value[i][j]);
}

static void evaluate(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = lathe_desc_count(&c->in[2]), vocabulary = c->in[1].dims[0];
    forward(c, in, want);
    for (int64_t r = 0; r < n; r++) {
        const int64_t target = (int64_t)in[2][r];
        want[1][r] = 0.0;
        want[2][r] = -1.0;
        if (target < 0)
            continue;
        int64_t top = 0;
        for (int64_t v = 1; v < vocabulary; v++)
            if (logit(c, in, r, v) > logit(c, in, r, top))
                top = v;
        want[1][r] = want[0][r] + logit(c, in, r, top) - logit(c, in, r, target);
        want[2][r] = (double)top;
    }
}

static void eval_case(int32_t dtype, int64_t n, int64_t width, int64_t vocabulary, float cap,
                      int64_t ignored, int64_t chunk)
{
    op_case c = {.op = LATHE_OP_HEAD_EVAL, .product = 1, .reference = evaluate};
    c.attrs.softcap = cap;
    c.attrs.chunk_rows = chunk;
    inputs(&c, dtype, n, width, vocabulary, ignored);
    whole_numbers(&c, 0, lathe_desc_2d(dtype, n, width), 2.0);
    whole_numbers(&c, 1, lathe_desc_2d(dtype, vocabulary, width), 2.0);
    c.slack = head_slack(LATHE_F32, width); /* less than 0.5 of an id at 20000 */
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, n));
    op_output(&c, 1, lathe_desc_1d(LATHE_F32, n));
    op_output(&c, 2, lathe_desc_1d(LATHE_I32, n));
    op_check(&c);
}

Test(head_eval, finds_the_first_of_the_likeliest_tokens)
{
    for (int d = 0; d < 2; d++) {
        eval_case(dtypes[d], 1, 9, 3, 0.0f, 0, 0);
        eval_case(dtypes[d], 37, 5, 101, 0.0f, 3, 8);
        eval_case(dtypes[d], 11, 8, 130, 30.0f, 0, 4);
        eval_case(dtypes[d], 3, 16, 20000, 0.0f, 0, 0); /* several blocks */
        eval_case(dtypes[d], 4, 8, 7, 0.0f, 1, 0);      /* all rows skipped */
    }
}

/* By hand: logits 1 3 3 2 for x = 1. */
Test(head_eval, takes_the_smaller_id_among_equals)
{
    op_case c = {.op = LATHE_OP_HEAD_EVAL, .product = 1, .reference = evaluate};
    static const double w[4] = {1, 3, 3, 2};
    op_input(&c, 0, lathe_desc_2d(LATHE_F32, 2, 1), 1.0, 0.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_F32, 4, 1), 0.0, 1.0);
    memcpy(c.value[1], w, sizeof w);
    op_indices(&c, 2, 2, 2, 1, 4);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, 2));
    op_output(&c, 1, lathe_desc_1d(LATHE_F32, 2));
    op_output(&c, 2, lathe_desc_1d(LATHE_I32, 2));
    c.slack = 1e-6;
    double y[3][2], *const want[3] = {y[0], y[1], y[2]};
    evaluate(&c, c.value, want);
    cr_assert_eq(y[2][0], 1.0);
    cr_assert_float_eq(y[1][0], 3.0 - log(exp(1) + 2.0 * exp(3) + exp(2)), 1e-14);
    op_check(&c);
}

/* ---- HEAD_SAMPLE ---- */

#define STREAM 9u

static double uniform_of(const op_case *c, double *const *in, int64_t row)
{
    const int64_t index = row + (int64_t)in[3][2] * lathe_desc_count(&c->in[2]);
    const lathe_u32x4 w = lathe_rng_block((uint64_t)in[3][0], (uint64_t)in[3][1],
                                          c->attrs.rng_stream, (uint64_t)index);
    return lathe_uniform_f64(w.v[0], w.v[1]);
}

/* Inverse distribution function of the whole row. The kernel's exp is within 2 ulp and its cap of 4
 * within 3 ulp of 4, together 2^-20 of the sum. If a level were closer to a boundary, rounding
 * would decide the draw; the cases have no such level. */
static void sample(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = lathe_desc_count(&c->in[2]), vocabulary = c->in[1].dims[0];
    double *e = malloc((size_t)vocabulary * sizeof *e);
    for (int64_t r = 0; r < n; r++) {
        double total = 0.0, upto = 0.0;
        want[0][r] = -1.0;
        if (in[2][r] < 0.0)
            continue;
        for (int64_t v = 0; v < vocabulary; v++)
            total += e[v] = exp(logit(c, in, r, v));
        const double level = uniform_of(c, in, r) * total;
        for (int64_t v = 0; v < vocabulary; v++) {
            cr_assert(fabs(upto - level) > 0x1p-20 * total || v == 0,
                      "row %lld: level %.9g of %.9g is on a boundary", (long long)r, level, total);
            if (upto <= level)
                want[0][r] = (double)v;
            upto += e[v];
        }
    }
    free(e);
}

static void sample_inputs(op_case *c, int32_t dtype, int64_t n, int64_t width, int64_t vocabulary,
                          int64_t ignored, double step)
{
    inputs(c, dtype, n, width, vocabulary, ignored);
    whole_numbers(c, 0, lathe_desc_2d(dtype, n, width), 2.0);
    whole_numbers(c, 1, lathe_desc_2d(dtype, vocabulary, width), 2.0);
    op_input(c, 3, lathe_desc_1d(LATHE_I64, LATHE_RNG_COUNTER), 0.0, 0.0);
    c->value[3][0] = 1234567.0;
    c->value[3][1] = step;
    c->value[3][2] = (double)(n % 3); /* rank n % 3 of 3 */
    c->value[3][3] = 3.0;
    c->value[3][4] = 1.0;
    op_output(c, 0, lathe_desc_1d(LATHE_I32, n));
    c->attrs.rng_stream = STREAM;
    c->slack = 0.0; /* ids agree or not */
}

static void sample_case(int32_t dtype, int64_t n, int64_t width, int64_t vocabulary, float cap,
                        int64_t ignored, int64_t chunk)
{
    op_case c = {.op = LATHE_OP_HEAD_SAMPLE, .product = 1, .reference = sample};
    c.attrs.softcap = cap;
    c.attrs.chunk_rows = chunk;
    sample_inputs(&c, dtype, n, width, vocabulary, ignored, 5.0);
    op_check(&c);
}

Test(head_sample, is_the_inverse_of_the_rows_distribution_function)
{
    for (int d = 0; d < 3; d++) {
        sample_case(dtypes[d], 1, 9, 3, 0.0f, 0, 0);
        sample_case(dtypes[d], 1, 1, 1, 0.0f, 0, 0); /* one token is certain */
        sample_case(dtypes[d], 37, 5, 101, 0.0f, 3, 8);
        sample_case(dtypes[d], 11, 8, 130, 4.0f, 0, 4);
        sample_case(dtypes[d], 5, 4, 20000, 0.0f, 2, 0); /* several blocks, the last narrower */
        sample_case(dtypes[d], 4, 8, 7, 0.0f, 1, 0);     /* all rows skipped */
    }
}

/* Each block of the vocabulary has a different maximum. */
Test(head_sample, weighs_blocks_of_unlike_maxima)
{
    enum { N = 16, V = 20000 };
    int late = 0;
    for (int step = 7; step <= 8; step++) {
        op_case c = {.op = LATHE_OP_HEAD_SAMPLE, .product = 1, .reference = sample};
        sample_inputs(&c, LATHE_F32, N, 1, V, 0, (double)step);
        for (int r = 0; r < N; r++)
            c.value[0][r] = 1.0;
        for (int v = 0; v < V; v++)
            c.value[1][v] = (double)(v * 7 % 5) - (v < 8000 ? 1.0 : v < 15000 ? 2.5 : 3.0);
        double token[N], *const want[1] = {token};
        sample(&c, c.value, want);
        for (int r = 0; r < N; r++)
            late += token[r] >= 15000.0;
        op_check(&c);
    }
    cr_assert_gt(late, 0, "none of the last block");
}

/* Runs the case on the best build of this machine; the caller frees the tokens. */
static int32_t *draw(const op_build *b, const op_case *c)
{
    void *out[LATHE_OP_MAX_OUT];
    op_run(b, c, 0, out);
    return out[0];
}

static void best_build(op_build *b)
{
    for (int i = N_ISAS - 1; i >= 0; i--)
        if (op_open(op_isas[i], b))
            return;
    cr_assert_fail("no build of the CPU device runs on this machine");
}

/* The rows are equal, so their tokens are independent draws from one distribution. */
Test(head_sample, draws_as_often_as_the_probabilities_say)
{
    enum { N = 40000, V = 6 };
    static const double w[V] = {0.0, 1.0, -2.0, 0.5, 2.0, -0.5};
    static const float caps[2] = {0.0f, 1.0f};
    op_build b = {0};
    best_build(&b);
    for (int k = 0; k < 2; k++) {
        op_case c = {.op = LATHE_OP_HEAD_SAMPLE};
        double p[V], total = 0.0, chi2 = 0.0;
        int64_t counts[V] = {0};
        c.attrs.softcap = caps[k];
        sample_inputs(&c, LATHE_F32, N, 1, V, 0, (double)k);
        for (int64_t r = 0; r < N; r++)
            c.value[0][r] = 1.0;
        memcpy(c.value[1], w, sizeof w);
        for (int v = 0; v < V; v++)
            total += p[v] = exp(logit(&c, c.value, 0, v));
        int32_t *token = draw(&b, &c);
        for (int64_t r = 0; r < N; r++) {
            cr_assert(token[r] >= 0 && token[r] < V, "row %lld: %d", (long long)r, token[r]);
            counts[token[r]]++;
        }
        for (int v = 0; v < V; v++) {
            const double expected = N * p[v] / total;
            cr_assert_gt(expected, 100.0);
            chi2 += ((double)counts[v] - expected) * ((double)counts[v] - expected) / expected;
        }
        /* 5 degrees of freedom: chi-square exceeds 20.515 once in a thousand times */
        cr_expect_lt(chi2, 20.515, "softcap %g: chi-square %g", (double)caps[k], chi2);
        free(token);
        op_free(&c);
    }
    op_close(&b);
}

Test(head_sample, differs_by_step_and_not_by_chunk)
{
    enum { N = 64, V = 50 };
    op_build b = {0};
    int32_t *token[3];
    best_build(&b);
    for (int k = 0; k < 3; k++) {
        op_case c = {.op = LATHE_OP_HEAD_SAMPLE};
        sample_inputs(&c, LATHE_F32, N, 3, V, k == 1 ? 4 : 0, k == 2 ? 8.0 : 7.0);
        c.attrs.chunk_rows = k == 1 ? 5 : 0;
        token[k] = draw(&b, &c);
        op_free(&c);
    }
    int differ = 0;
    for (int r = 0; r < N; r++) {
        cr_expect_eq(token[1][r], r % 4 == 0 ? -1 : token[0][r], "row %d", r);
        differ += token[0][r] != token[2][r];
    }
    cr_expect_gt(differ, N / 2);
    for (int k = 0; k < 3; k++)
        free(token[k]);
    op_close(&b);
}

/* Logits of the rows: first 0 -inf -1e30, then NaN, then for 1e30: 0 inf 1e30. */
Test(head_sample, gives_no_token_where_probabilities_are_no_numbers)
{
    static const double x[3] = {-1e30, (double)NAN, 1e30}, w[3] = {0.0, 1e30, 1.0};
    static const int32_t want[3] = {0, -1, -1};
    op_build b = {0};
    best_build(&b);
    op_case c = {.op = LATHE_OP_HEAD_SAMPLE};
    sample_inputs(&c, LATHE_F32, 3, 1, 3, 0, 1.0);
    memcpy(c.value[0], x, sizeof x);
    memcpy(c.value[1], w, sizeof w);
    int32_t *token = draw(&b, &c);
    for (int r = 0; r < 3; r++)
        cr_expect_eq(token[r], want[r], "row %d: %d", r, token[r]);
    free(token);
    op_free(&c);
    op_close(&b);
}

Test(head_sample, refuses_an_rng_that_is_none)
{
    op_case c = {.op = LATHE_OP_HEAD_SAMPLE};
    sample_inputs(&c, LATHE_F32, 4, 3, 5, 0, 1.0);
    c.in[3] = lathe_desc_1d(LATHE_I64, 1);
    cr_expect_neq(op_refusal(&c), LATHE_OK);
    c.in[3] = lathe_desc_1d(LATHE_I32, 2);
    cr_expect_neq(op_refusal(&c), LATHE_OK);
    op_free(&c);
}
