/* How the CUDA device handles indices outside their range, which the CPU refuses. A GPU kernel
 * cannot refuse them; it must neither touch other memory nor continue silently. Also tests the
 * order of EMBED_BWD's sums. */
#include "kernels/op_harness.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

/* Calls check(output 0 as doubles) for the case on each CUDA device of this machine. */
static void on_cuda(op_case *c, void (*check)(const op_case *c, const double *y))
{
    int n_seen = 0;
    for (int i = 0; i < N_GPUS; i++) {
        op_build b = {0};
        void *out[LATHE_OP_MAX_OUT];
        if (!op_open_file(op_gpus[i], &b))
            continue;
        n_seen++;
        op_run(&b, c, 0, out);
        const int64_t n = lathe_desc_count(&c->out[0]);
        double *y = malloc((size_t)n * sizeof *y);
        for (int64_t j = 0; j < n; j++)
            y[j] = op_load(out[0], c->out[0].dtype, j);
        check(c, y);
        free(y);
        op_free_outputs(c, out);
        op_close(&b);
    }
    op_free(c);
    if (n_seen == 0)
        cr_skip_test("no CUDA toolkit's headers and no GPU: there is no CUDA device here");
}

static int is_bad(double index, int64_t n)
{
    return index < 0.0 || index >= (double)n;
}

static void check_embed(const op_case *c, const double *y)
{
    const int64_t v = c->in[1].dims[0], w = c->in[1].dims[1];
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]) * w; i++) {
        const double token = c->value[0][i / w];
        if (is_bad(token, v))
            cr_assert(isnan(y[i]));
        else
            cr_assert_eq(y[i], c->value[1][(int64_t)token * w + i % w]);
    }
}

Test(embed, of_a_token_outside_the_vocabulary_is_nan)
{
    for (int d = 0; d < 6; d++) {
        const int64_t c = d < 3 ? 24 : 7;
        op_case e = {.op = LATHE_OP_EMBED};
        op_indices(&e, 0, 9, 2, 3, 11);
        e.value[0][2] = -1.0;
        e.value[0][5] = 11.0;
        e.value[0][8] = -2147483648.0;
        op_input(&e, 1, lathe_desc_2d(dtypes[d % 3], 11, c), 0.0, 1.0);
        op_output(&e, 0, lathe_desc_2d(dtypes[d % 3], 9, c));
        on_cuda(&e, check_embed);
    }
}

/* Sums of small whole numbers, which are exact in any order. */
static void check_embed_bwd(const op_case *c, const double *dw)
{
    const int64_t n = lathe_desc_count(&c->in[1]), v = c->out[0].dims[0], w = c->out[0].dims[1];
    double *want = calloc((size_t)(v * w), sizeof *want);
    for (int64_t i = 0; i < n * w; i++)
        if (!is_bad(c->value[1][i / w], v))
            want[(int64_t)c->value[1][i / w] * w + i % w] += c->value[0][i];
    for (int64_t i = 0; i < v * w; i++)
        cr_assert_eq(dw[i], want[i], "dW[%lld] is %g, expected %g", (long long)i, dw[i], want[i]);
    free(want);
}

Test(embed_bwd, adds_nothing_for_tokens_outside_and_all_for_one_that_is_frequent)
{
    /* they need 1, 1, 2, 2 and 3 passes */
    const int64_t vocabularies[] = {5, 511, 512, 40000, 300000};
    for (int s = 0; s < 5; s++) {
        const int64_t v = vocabularies[s], n = 1300, c = s % 2 ? 8 : 3;
        op_case e = {.op = LATHE_OP_EMBED_BWD};
        op_input(&e, 0, lathe_desc_2d(dtypes[s % 3], n, c), 0.0, 1.0);
        op_indices(&e, 1, n, 1, 7919, v);
        for (int64_t i = 0; i < n * c; i++)
            e.value[0][i] = (double)((i * 31) % 13 - 6);
        for (int64_t i = 0; i < n; i++)
            if (i % 3 == 0)
                e.value[1][i] = (double)(v - 1); /* a third of all tokens */
        e.value[1][700] = -5.0;
        e.value[1][701] = (double)v;
        e.value[1][1299] = 2147483647.0;
        op_output(&e, 0, lathe_desc_2d(LATHE_F32, v, c));
        on_cuda(&e, check_embed_bwd);
    }
}

/* The sum of a row rounds at every step, so another order would give other bits. */
static void check_order(const op_case *c, const double *dw)
{
    const int64_t n = lathe_desc_count(&c->in[1]);
    float sum[2] = {0.0f, 0.0f};
    for (int64_t i = 0; i < n; i++)
        sum[(int)c->value[1][i]] += (float)c->value[0][i];
    cr_assert_eq(dw[0], (double)sum[0]);
    cr_assert_eq(dw[1], (double)sum[1]);
}

Test(embed_bwd, adds_the_rows_of_a_token_in_order)
{
    op_case e = {.op = LATHE_OP_EMBED_BWD};
    op_input(&e, 0, lathe_desc_2d(LATHE_F32, 1500, 1), 0.3, 1.0);
    op_indices(&e, 1, 1500, 0, 1, 2);
    op_output(&e, 0, lathe_desc_2d(LATHE_F32, 2, 1));
    on_cuda(&e, check_order);
}

static void check_rope(const op_case *c, const double *y)
{
    const int64_t rows = lathe_desc_count(&c->in[1]), width = c->out[0].dims[1];
    for (int64_t i = 0; i < rows * width; i++)
        cr_assert_eq(isnan(y[i]) != 0, is_bad(c->value[1][i / width], c->in[2].dims[0]));
}

Test(rope, at_a_position_outside_the_table_is_nan)
{
    for (int d = 0; d < 6; d++) {
        const int32_t head = d < 3 ? 16 : 6;
        op_case r = {.op = LATHE_OP_ROPE};
        r.attrs.head_dim = head;
        op_input(&r, 0, lathe_desc_2d(dtypes[d % 3], 5, 2 * head), 0.0, 1.0);
        op_indices(&r, 1, 5, 0, 1, 9);
        r.value[1][1] = -1.0;
        r.value[1][3] = 9.0;
        op_input(&r, 2, (lathe_desc){LATHE_F32, 3, {9, 2, head / 2, 1}}, 0.0, 1.0);
        op_output(&r, 0, lathe_desc_2d(dtypes[d % 3], 5, 2 * head));
        on_cuda(&r, check_rope);
    }
}

/* Row b = 0 is too short for the new tokens, b = 1 too long for the cache, b = 2 fits. */
static void check_append(const op_case *c, const double *cache)
{
    const int64_t p = c->in[0].dims[1], w = c->in[0].dims[2], tq = 3;
    for (int64_t i = 0; i < 3 * p * w; i++) {
        const int64_t b = i / (p * w), row = i / w % p;
        if (b < 2 && row < tq)
            cr_assert(isnan(cache[i]));
        else if (b == 2 && row >= 4 && row < 7)
            cr_assert_eq(cache[i], c->value[1][(2 * tq + row - 4) * w + i % w]);
        else
            cr_assert_eq(cache[i], c->value[0][i]);
    }
}

Test(kv_append, of_a_length_that_does_not_fit_leaves_nan)
{
    for (int d = 0; d < 6; d++) {
        const int64_t w = d < 3 ? 16 : 5;
        op_case a = {.op = LATHE_OP_KV_APPEND, .in_place = d % 2};
        op_input(&a, 0, (lathe_desc){dtypes[d % 3], 3, {3, 9, w, 1}}, 0.0, 1.0);
        op_input(&a, 1, lathe_desc_2d(dtypes[d % 3], 9, w), 0.0, 1.0);
        op_indices(&a, 2, 3, 2, 1, 100);
        a.value[2][1] = 10.0;
        a.value[2][2] = 7.0;
        op_output(&a, 0, (lathe_desc){dtypes[d % 3], 3, {3, 9, w, 1}});
        on_cuda(&a, check_append);
    }
}

static void check_segments(const op_case *c, const double *y)
{
    for (int s = 0; s < 6; s++)
        cr_assert_eq(isnan(y[s]) != 0, s < 5, "segment %d", s);
    cr_assert_float_eq(y[5], c->value[0][8] * c->value[0][8] + c->value[0][9] * c->value[0][9],
                       1e-15);
}

Test(sum_squares, of_a_segment_outside_the_tensor_is_nan)
{
    static const double segments[6][2] = {{-1, 4}, {0, -4}, {10, 1}, {7, 4}, {11, 0}, {8, 2}};
    op_case c = {.op = LATHE_OP_SUM_SQUARES};
    op_input(&c, 0, lathe_desc_1d(LATHE_F32, 10), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_I64, 6, 2), 0.0, 1.0);
    memcpy(c.value[1], segments, sizeof segments);
    op_output(&c, 0, lathe_desc_1d(LATHE_F64, 6));
    on_cuda(&c, check_segments);
}
