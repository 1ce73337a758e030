/* The head over the vocabulary with what an adapter adds to it, u v^T, and the factors s of the
 * logits' columns: HEAD_LOGPROB, HEAD_ENTROPY and their derivatives on the CPU device. HEAD_EVAL
 * and HEAD_SAMPLE are among the cases of `lathe plugin check` (core/graph/ops/head.c). */
#include "kernels/op_harness.h"

/* Number of the input u; v and s are the next ones. */
static int input_u(int32_t op)
{
    return op == LATHE_OP_HEAD_LOGPROB_BWD || op == LATHE_OP_HEAD_ENTROPY_BWD ? 4 : 3;
}

static double logit(const op_case *c, double *const *in, int64_t n, int64_t v)
{
    const int u = input_u(c->op);
    const int64_t width = c->in[1].dims[1], rank = c->in[u].dims[1];
    double sum = 0.0;
    for (int64_t i = 0; i < width; i++)
        sum += in[0][n * width + i] * in[1][v * width + i];
    for (int64_t i = 0; i < rank; i++)
        sum += in[u][n * rank + i] * in[u + 1][v * rank + i];
    if (in[u + 2] != NULL)
        sum *= in[u + 2][v];
    const double cap = (double)c->attrs.softcap;
    return cap > 0.0 ? cap * tanh(sum / cap) : sum;
}

static int is_entropy(int32_t op)
{
    return op == LATHE_OP_HEAD_ENTROPY || op == LATHE_OP_HEAD_ENTROPY_BWD;
}

static void forward(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = lathe_desc_count(&c->in[2]), vocabulary = c->in[1].dims[0];
    for (int64_t r = 0; r < n; r++) {
        double sum = 0.0, entropy = 0.0;
        want[0][r] = 0.0;
        if (in[2][r] < 0.0)
            continue;
        for (int64_t v = 0; v < vocabulary; v++)
            sum += exp(logit(c, in, r, v));
        for (int64_t v = 0; v < vocabulary; v++) {
            const double logp = logit(c, in, r, v) - log(sum);
            entropy -= exp(logp) * logp;
        }
        want[0][r] = is_entropy(c->op) ? entropy : logit(c, in, r, (int64_t)in[2][r]) - log(sum);
    }
}

static double loss(const op_case *c, double *const *in)
{
    const int64_t n = lathe_desc_count(&c->in[2]);
    double *result = calloc((size_t)n, sizeof *result), sum = 0.0;
    double *const want[1] = {result};
    forward(c, in, want);
    for (int64_t r = 0; r < n; r++)
        sum += in[3][r] * result[r];
    free(result);
    return sum;
}

static void backward(const op_case *c, double *const *in, double *const *want)
{
    forward(c, in, want);
    op_differences(loss, c, in, in[0], lathe_desc_count(&c->in[0]), want[1]);
    op_differences(loss, c, in, in[1], lathe_desc_count(&c->in[1]), want[2]);
    op_differences(loss, c, in, in[4], lathe_desc_count(&c->in[4]), want[3]);
    op_differences(loss, c, in, in[5], lathe_desc_count(&c->in[5]), want[5]);
    if (in[6] != NULL)
        op_differences(loss, c, in, in[6], lathe_desc_count(&c->in[6]), want[4]);
}

/* The logits (up to about 3 in these tests) and their gradients are rounded to 8 or 11 bits; the
 * sum of both terms once more. */
static double head_slack(int32_t dtype, int64_t width)
{
    return dtype == LATHE_BF16  ? 0x1p-5
           : dtype == LATHE_F16 ? 0x1p-8
                                : 4.0 * slack_of(width) + 1e-7;
}

typedef struct sizes {
    int64_t n, width, vocabulary, rank, chunk;
    float cap;
    int scales; /* with s */
} sizes;

static void inputs(op_case *c, int32_t dtype, const sizes *s)
{
    const double scale = 1.0 / sqrt((double)s->width);
    const int u = input_u(c->op);
    c->attrs.softcap = s->cap;
    c->attrs.chunk_rows = s->chunk;
    op_input(c, 0, lathe_desc_2d(dtype, s->n, s->width), 0.0, 1.0);
    op_input(c, 1, lathe_desc_2d(dtype, s->vocabulary, s->width), 0.0, scale);
    op_indices(c, 2, s->n, 1, 7, s->vocabulary);
    for (int64_t r = 0; r < s->n; r += 3)
        c->value[2][r] = -1.0;
    op_input(c, u, lathe_desc_2d(dtype, s->n, s->rank), 0.0, 1.0);
    op_input(c, u + 1, lathe_desc_2d(dtype, s->vocabulary, s->rank), 0.0, scale);
    if (s->scales)
        op_input(c, u + 2, lathe_desc_1d(LATHE_F32, s->vocabulary), 1.0, 0.3);
    c->slack = head_slack(dtype, s->width + s->rank);
}

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
/* the vocabulary of the last is cut into two blocks, of which one is narrower */
static const sizes cases[] = {{5, 8, 40, 3, 0, 0.0f, 0},   {13, 9, 37, 4, 4, 2.0f, 0},
                              {4, 6, 70, 1, 2, 0.0f, 0},   {5, 8, 40, 3, 0, 0.0f, 1},
                              {13, 9, 37, 4, 4, 2.0f, 1},  {4, 6, 700, 1, 2, 0.0f, 1},
                              {3, 4, 9000, 2, 0, 0.0f, 0}, {3, 4, 9000, 2, 0, 0.0f, 1}};
enum { CASES = 8, SMALL = 5 }; /* SMALL: those whose gradient is a difference */

Test(head_adapter, log_probabilities_and_entropies_have_both_terms)
{
    static const int32_t ops[] = {LATHE_OP_HEAD_LOGPROB, LATHE_OP_HEAD_ENTROPY};
    for (int k = 0; k < 2 * 3 * CASES; k++) {
        const sizes *s = &cases[k / 3 % CASES];
        op_case c = {.op = ops[k / (3 * CASES)], .product = 1, .reference = forward};
        inputs(&c, dtypes[k % 3], s);
        op_output(&c, 0, lathe_desc_1d(LATHE_F32, s->n));
        op_check(&c);
    }
}

Test(head_adapter, gradients_reach_the_weight_u_v_and_s)
{
    static const int32_t ops[] = {LATHE_OP_HEAD_LOGPROB_BWD, LATHE_OP_HEAD_ENTROPY_BWD};
    for (int k = 0; k < 2 * 3 * SMALL; k++) {
        const sizes *s = &cases[k / 3 % SMALL];
        op_case c = {.op = ops[k / (3 * SMALL)], .product = 1, .reference = backward, .add = 1};
        inputs(&c, dtypes[k % 3], s);
        op_input(&c, 3, lathe_desc_1d(LATHE_F32, s->n), 0.0, 1.0);
        op_output(&c, 0, lathe_desc_1d(LATHE_F32, s->n));
        op_output(&c, 1, lathe_desc_2d(dtypes[k % 3], s->n, s->width));
        op_output(&c, 2, lathe_desc_2d(LATHE_F32, s->vocabulary, s->width));
        op_output(&c, 3, lathe_desc_2d(dtypes[k % 3], s->n, s->rank));
        op_output(&c, 5, lathe_desc_2d(LATHE_F32, s->vocabulary, s->rank));
        op_absent_out(&c, 4);
        if (s->scales)
            op_output(&c, 4, lathe_desc_1d(LATHE_F32, s->vocabulary));
        op_check(&c);
    }
}
