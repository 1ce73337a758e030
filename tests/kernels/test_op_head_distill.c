/* HEAD_PICK, HEAD_DIVERGENCE and their derivatives with what adapters change at the heads: u v^T,
 * and the factors s of the logits' columns; of HEAD_DIVERGENCE at one model's head or at both. The
 * references are written apart from those of core/graph/ops. */
#include "kernels/op_harness.h"

static int is_backward(int32_t op)
{
    return op == LATHE_OP_HEAD_PICK_BWD || op == LATHE_OP_HEAD_DIVERGENCE_BWD;
}

static int is_pick(int32_t op)
{
    return op == LATHE_OP_HEAD_PICK || op == LATHE_OP_HEAD_PICK_BWD;
}

/* Numbers of a model's inputs x and u. */
typedef struct head_at {
    int x, u;
} head_at;

static head_at own_of(int32_t op)
{
    const head_at out = {0, (is_pick(op) ? 3 : 5) + is_backward(op)};
    return out;
}

static head_at other_of(int32_t op)
{
    const head_at out = {2, 8 + is_backward(op)};
    return out;
}

static double scaled_logit(const op_case *c, double *const *in, head_at h, int64_t n, int64_t v)
{
    const double cap = (double)(h.x == 0 ? c->attrs.softcap : c->attrs.scale);
    const int64_t width = c->in[h.x + 1].dims[1], rank = c->in[h.u].dims[1];
    double sum = 0.0;
    for (int64_t i = 0; i < width; i++)
        sum += in[h.x][n * width + i] * in[h.x + 1][v * width + i];
    for (int64_t i = 0; in[h.u] != NULL && i < rank; i++)
        sum += in[h.u][n * rank + i] * in[h.u + 1][v * rank + i];
    if (in[h.u + 2] != NULL)
        sum *= in[h.u + 2][v];
    return (cap > 0.0 ? cap * tanh(sum / cap) : sum) / c->attrs.alpha;
}

static void probabilities(const op_case *c, double *const *in, head_at h, int64_t n, double *p)
{
    const int64_t vocabulary = c->in[1].dims[0];
    double sum = 0.0;
    for (int64_t v = 0; v < vocabulary; v++)
        sum += p[v] = exp(scaled_logit(c, in, h, n, v));
    for (int64_t v = 0; v < vocabulary; v++)
        p[v] /= sum;
}

static double kl(const double *p, const double *q, int64_t n)
{
    double sum = 0.0;
    for (int64_t v = 0; v < n; v++)
        sum += p[v] * log(p[v] / q[v]);
    return sum;
}

static double divergence(double beta, const double *p, const double *q, double *m, int64_t n)
{
    if (beta <= 0.0)
        return kl(q, p, n);
    if (beta >= 1.0)
        return kl(p, q, n);
    for (int64_t v = 0; v < n; v++)
        m[v] = beta * q[v] + (1.0 - beta) * p[v];
    return beta * kl(q, m, n) + (1.0 - beta) * kl(p, m, n);
}

/* Row n of HEAD_PICK, whose ids are different. */
static void pick(const op_case *c, double *const *in, int64_t n, double *p, double *y)
{
    const int64_t k = c->in[2].dims[1];
    double picked = 0.0;
    probabilities(c, in, own_of(c->op), n, p);
    for (int64_t j = 0; j < k; j++)
        picked += p[(int64_t)in[2][n * k + j]];
    for (int64_t j = 0; j < k; j++)
        y[j] = log(p[(int64_t)in[2][n * k + j]] / (c->attrs.beta > 0.0 ? picked : 1.0));
    if (c->attrs.beta <= 0.0)
        y[k] = log(1.0 - picked);
}

static void forward(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = c->in[0].dims[0], vocabulary = c->in[1].dims[0];
    const int64_t columns = lathe_desc_count(&c->out[0]) / n;
    double *memory = calloc(3 * (size_t)vocabulary, sizeof *memory);
    double *p = memory, *q = memory + vocabulary, *m = memory + 2 * vocabulary;
    for (int64_t r = 0; r < n; r++) {
        double *y = want[0] + r * columns;
        const int skipped = is_pick(c->op) ? in[2][r * c->in[2].dims[1]] < 0.0 : in[4][r] < 0.0;
        for (int64_t j = 0; j < columns; j++)
            y[j] = 0.0;
        if (!skipped && is_pick(c->op))
            pick(c, in, r, p, y);
        if (skipped || is_pick(c->op))
            continue;
        probabilities(c, in, own_of(c->op), r, p);
        probabilities(c, in, other_of(c->op), r, q);
        y[0] = divergence(c->attrs.beta, p, q, m, vocabulary);
    }
    free(memory);
}

static double loss(const op_case *c, double *const *in)
{
    const int64_t n = lathe_desc_count(&c->out[0]);
    const double *dy = in[is_pick(c->op) ? 3 : 5];
    double *result = calloc((size_t)n, sizeof *result), sum = 0.0;
    double *const want[1] = {result};
    forward(c, in, want);
    for (int64_t r = 0; r < n; r++)
        sum += dy[r] * result[r];
    free(result);
    return sum;
}

static void backward(const op_case *c, double *const *in, double *const *want)
{
    const head_at h = own_of(c->op);
    forward(c, in, want);
    op_differences(loss, c, in, in[0], lathe_desc_count(&c->in[0]), want[1]);
    op_differences(loss, c, in, in[h.x + 1], lathe_desc_count(&c->in[h.x + 1]), want[2]);
    op_differences(loss, c, in, in[h.u], lathe_desc_count(&c->in[h.u]), want[3]);
    op_differences(loss, c, in, in[h.u + 1], lathe_desc_count(&c->in[h.u + 1]), want[5]);
    if (in[h.u + 2] != NULL)
        op_differences(loss, c, in, in[h.u + 2], lathe_desc_count(&c->in[h.u + 2]), want[4]);
}

typedef struct sizes {
    int64_t n, width, vocabulary, rank, chunk, k;
    float cap;
    double alpha, beta;
    int scales, both; /* with s; HEAD_DIVERGENCE: the other head has u and v, too */
} sizes;

/* x, W, u, v and s of a model. */
static void head(op_case *c, head_at h, int32_t dtype, const sizes *s, int64_t width, int adapted)
{
    const double scale = (h.x == 0 ? 1.0 : 3.0) / sqrt((double)width); /* to be far apart */
    op_input(c, h.x, lathe_desc_2d(dtype, s->n, width), 0.0, 1.0);
    op_input(c, h.x + 1, lathe_desc_2d(dtype, s->vocabulary, width), 0.0, scale);
    for (int i = 0; i < 3; i++)
        op_absent_in(c, h.u + i);
    if (!adapted)
        return;
    op_input(c, h.u, lathe_desc_2d(dtype, s->n, s->rank), 0.0, 1.0);
    op_input(c, h.u + 1, lathe_desc_2d(dtype, s->vocabulary, s->rank), 0.0, scale);
    if (s->scales)
        op_input(c, h.u + 2, lathe_desc_1d(LATHE_F32, s->vocabulary), 1.0, 0.3);
}

/* Like test_op_head_adapter.c: the logits and their gradients are rounded to 8 or 11 bits, the sum
 * of both terms once more. In f32, log-probabilities of 4 to 8 are rounded to 2^-22, and a
 * divergence of about 1 is a mean of their differences. */
static double head_slack(int32_t dtype, int64_t width)
{
    return dtype == LATHE_BF16  ? 0x1p-5
           : dtype == LATHE_F16 ? 0x1p-8
                                : 4.0 * slack_of(width) + 0x1p-20;
}

static void inputs(op_case *c, int32_t dtype, const sizes *s)
{
    c->attrs.softcap = s->cap;
    c->attrs.chunk_rows = s->chunk;
    c->attrs.alpha = s->alpha;
    c->attrs.beta = s->beta;
    head(c, own_of(c->op), dtype, s, s->width, 1);
    c->slack = head_slack(dtype, s->width + s->rank);
    if (!is_pick(c->op)) {
        head(c, other_of(c->op), LATHE_F32, s, s->width - 1, s->both);
        op_indices(c, 4, s->n, 1, 7, s->vocabulary);
        for (int64_t r = 0; r < s->n; r += 3)
            c->value[4][r] = -1.0;
        return;
    }
    op_input(c, 2, lathe_desc_2d(LATHE_I32, s->n, s->k), 0.0, 0.0);
    for (int64_t r = 0; r < s->n; r++)
        for (int64_t j = 0; j < s->k; j++)
            c->value[2][r * s->k + j] =
                r % 3 == 0 ? -1.0 : (double)((5 * r + 11 * (j + 1)) % s->vocabulary);
}

static lathe_desc result_of(int32_t op, const sizes *s)
{
    return is_pick(op) ? lathe_desc_2d(LATHE_F32, s->n, s->k + (s->beta <= 0.0))
                       : lathe_desc_1d(LATHE_F32, s->n);
}

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
/* rows of the last two are longer than a tile of the CPU's kernels */
static const sizes cases[] = {
    {5, 8, 41, 3, 0, 4, 0.0f, 1.0, 0.0, 0, 0},  {13, 9, 37, 4, 4, 3, 2.0f, 2.0, 1.0, 0, 1},
    {5, 8, 41, 3, 0, 4, 0.0f, 1.0, 0.0, 1, 0},  {13, 9, 37, 4, 4, 3, 2.0f, 2.0, 1.0, 1, 1},
    {4, 6, 70, 1, 2, 1, 0.0f, 0.7, 0.0, 1, 1},  {4, 6, 700, 2, 2, 5, 3.0f, 1.5, 0.0, 1, 1},
    {3, 4, 1100, 2, 0, 2, 0.0f, 1.0, 1.0, 0, 0}};
enum { CASES = 7, SMALL = 5 }; /* SMALL: those whose gradient is a difference */

Test(head_distill, both_terms_and_the_factors_count)
{
    static const int32_t ops[] = {LATHE_OP_HEAD_PICK, LATHE_OP_HEAD_DIVERGENCE};
    for (int i = 0; i < 2 * 3 * CASES; i++) {
        const sizes *s = &cases[i / 3 % CASES];
        op_case c = {.op = ops[i / (3 * CASES)], .product = 1, .reference = forward};
        inputs(&c, dtypes[i % 3], s);
        op_output(&c, 0, result_of(c.op, s));
        op_check(&c);
    }
}

Test(head_distill, gradients_reach_u_v_and_s)
{
    static const int32_t ops[] = {LATHE_OP_HEAD_PICK_BWD, LATHE_OP_HEAD_DIVERGENCE_BWD};
    for (int i = 0; i < 2 * 3 * SMALL; i++) {
        const sizes *s = &cases[i / 3 % SMALL];
        op_case c = {.op = ops[i / (3 * SMALL)], .product = 1, .reference = backward, .add = 1};
        inputs(&c, dtypes[i % 3], s);
        op_input(&c, is_pick(c.op) ? 3 : 5, result_of(c.op, s), 0.0, 1.0);
        op_output(&c, 0, result_of(c.op, s));
        op_output(&c, 1, lathe_desc_2d(dtypes[i % 3], s->n, s->width));
        op_output(&c, 5, lathe_desc_2d(LATHE_F32, s->vocabulary, s->rank));
        op_output(&c, 2, lathe_desc_2d(LATHE_F32, s->vocabulary, s->width));
        op_output(&c, 3, lathe_desc_2d(dtypes[i % 3], s->n, s->rank));
        op_absent_out(&c, 4);
        if (s->scales)
            op_output(&c, 4, lathe_desc_1d(LATHE_F32, s->vocabulary));
        op_check(&c);
    }
}

/* The jensen-shannon divergence has another path than those of beta 0 and 1. */
Test(head_distill, the_mixture_of_both_models_has_the_terms_of_both)
{
    for (int i = 0; i < 3 * SMALL; i++) {
        sizes s = cases[i / 3];
        s.beta = 0.3;
        op_case c = {
            .op = LATHE_OP_HEAD_DIVERGENCE_BWD, .product = 1, .reference = backward, .add = 1};
        inputs(&c, dtypes[i % 3], &s);
        op_input(&c, 5, result_of(c.op, &s), 0.0, 1.0);
        op_output(&c, 0, result_of(c.op, &s));
        op_output(&c, 1, lathe_desc_2d(dtypes[i % 3], s.n, s.width));
        op_output(&c, 5, lathe_desc_2d(LATHE_F32, s.vocabulary, s.rank));
        op_output(&c, 2, lathe_desc_2d(LATHE_F32, s.vocabulary, s.width));
        op_output(&c, 3, lathe_desc_2d(dtypes[i % 3], s.n, s.rank));
        op_absent_out(&c, 4);
        if (s.scales)
            op_output(&c, 4, lathe_desc_1d(LATHE_F32, s.vocabulary));
        op_check(&c);
    }
}

Test(head_distill, a_factor_without_u_and_v_is_refused)
{
    for (int k = 0; k < 2; k++) {
        const sizes *s = &cases[2];
        op_case c = {.op = k ? LATHE_OP_HEAD_DIVERGENCE : LATHE_OP_HEAD_PICK};
        inputs(&c, LATHE_F32, s);
        c.in[own_of(c.op).u].dtype = LATHE_ABSENT;
        op_output(&c, 0, result_of(c.op, s));
        cr_expect_neq(op_refusal(&c), LATHE_OK, "%d", k);
        op_free(&c);
    }
}
