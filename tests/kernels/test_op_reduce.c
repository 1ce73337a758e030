/* SUM, ROW_SUM, BROADCAST, L2_NORMALIZE and DROPOUT on the CPU device. */
#include "kernels/op_harness.h"

static void sum_reference(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][0] += in[0][i];
}

static void row_sum_reference(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i / c->attrs.count] += in[0][i];
}

static void broadcast_reference(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->out[0]); i++)
        want[0][i] = in[0][i / c->attrs.count];
}

static void normalize_reference(const op_case *c, double *const *in, double *const *want)
{
    double sum = 0.0;
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        sum += in[0][i] * in[0][i];
    const double norm = fmax(sqrt(sum), (double)c->attrs.eps);
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i] = in[0][i] / norm;
}

Test(sum, of_rows_and_of_everything_agrees)
{
    const int64_t sizes[] = {1, 33, 40001};
    for (int s = 0; s < 3; s++) {
        op_case c = {.op = LATHE_OP_SUM, .reference = sum_reference, .add = 1};
        op_input(&c, 0, lathe_desc_1d(LATHE_F32, sizes[s]), 0.5, 1.0);
        op_output(&c, 0, (lathe_desc){LATHE_F32, 0, {1, 1, 1, 1}});
        op_check(&c);
        op_case rows = {.op = LATHE_OP_ROW_SUM, .reference = row_sum_reference, .slack = 1e-9};
        rows.attrs.count = sizes[s] % 40 + 1;
        op_input(&rows, 0, lathe_desc_1d(LATHE_F32, 700 * rows.attrs.count), 0.5, 1.0);
        op_output(&rows, 0, lathe_desc_1d(LATHE_F32, 700));
        op_check(&rows);
    }
}

Test(broadcast, repeats_each_element_count_times)
{
    const int64_t counts[] = {1, 7, 30011};
    for (int s = 0; s < 3; s++)
        for (int64_t rows = 1; rows < 9; rows += 4) {
            op_case c = {.op = LATHE_OP_BROADCAST, .reference = broadcast_reference, .add = 1};
            c.attrs.count = counts[s];
            op_input(&c, 0, lathe_desc_1d(LATHE_F32, rows), 0.0, 1.0);
            op_output(&c, 0, lathe_desc_1d(LATHE_F32, rows * counts[s]));
            op_check(&c);
        }
}

Test(l2_normalize, divides_by_the_norm_but_not_by_less_than_eps)
{
    const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int d = 0; d < 3; d++)
        for (int64_t n = 1; n < 90000; n = 200 * n + 33) {
            op_case c = {.op = LATHE_OP_L2_NORMALIZE, .reference = normalize_reference};
            c.attrs.eps = 1e-3f;
            op_input(&c, 0, lathe_desc_1d(LATHE_F32, n), 0.0, n == 1 ? 1e-6 : 1.0);
            op_output(&c, 0, lathe_desc_1d(dtypes[d], n));
            op_check(&c);
        }
}

/* Index of element i of n among those of all ranks, by the shape [parts, ranks, size]. */
static int64_t index_of_all(const double *counter, int64_t n, int64_t i)
{
    const int64_t rank = (int64_t)counter[2], ranks = (int64_t)counter[3];
    const int64_t parts = n % (int64_t)counter[4] == 0 ? (int64_t)counter[4] : 1, size = n / parts;
    return (i / size * ranks + rank) * size + i % size;
}

/* Rank 1 of 1; rank 2 of 3; the same with pairs, whose halves of 35002 elements do not begin at a
 * block of four words. */
static void set_counter(op_case *c, int32_t k)
{
    static const double ranks[3][3] = {{0, 1, 1}, {2, 3, 1}, {1, 3, 2}};
    op_input(c, 1, lathe_desc_1d(LATHE_I64, LATHE_RNG_COUNTER), 0.0, 0.0);
    c->value[1][0] = 1234567.0;
    c->value[1][1] = 17.0;
    for (int i = 0; i < 3; i++)
        c->value[1][2 + i] = ranks[k][i];
}

static void dropout_reference(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++) {
        const int64_t e = index_of_all(in[1], lathe_desc_count(&c->in[0]), i);
        const lathe_u32x4 r = lathe_rng_block((uint64_t)in[1][0], (uint64_t)in[1][1],
                                              c->attrs.rng_stream, (uint64_t)(e / 4));
        const float u = lathe_uniform_f32(r.v[e % 4]);
        want[0][i] = u >= c->attrs.p ? in[0][i] / (1.0 - (double)c->attrs.p) : 0.0;
    }
}

/* Element i of the noise in [-alpha, alpha). */
static double noise_of(uint64_t seed, uint64_t step, uint64_t stream, int64_t i, double alpha)
{
    const lathe_u32x4 r = lathe_rng_block(seed, step, stream, (uint64_t)(i / 4));
    return alpha * (2.0 * (double)lathe_uniform_f32(r.v[i % 4]) - 1.0);
}

static void noise_reference(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i] = in[0][i] +
                     noise_of((uint64_t)in[1][0], (uint64_t)in[1][1], c->attrs.rng_stream,
                              index_of_all(in[1], lathe_desc_count(&c->in[0]), i), c->attrs.alpha);
}

Test(dropout, keeps_what_the_counter_says_forward_and_backward)
{
    const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int variant = 0; variant < 36; variant++) {
        const int backward = variant & 1;
        const int64_t n = variant >= 24 ? 35002 : 35003;
        op_case c = {.op = backward ? LATHE_OP_DROPOUT_BWD : LATHE_OP_DROPOUT,
                     .reference = dropout_reference,
                     .slack = 1e-6,
                     .add = backward};
        c.attrs.p = variant & 2 ? 0.0f : 0.3f;
        c.attrs.rng_stream = ((uint64_t)5 << 33) + 9;
        op_input(&c, 0, lathe_desc_1d(dtypes[variant / 4 % 3], n), 0.0, 1.0);
        set_counter(&c, variant / 12);
        op_output(&c, 0, lathe_desc_1d(dtypes[variant / 4 % 3], n));
        op_check(&c);
    }
}

/* The counter's numbers, within the bounds, around 0, with the variance a^2/3. */
Test(uniform_noise, is_what_the_counter_says_within_its_bounds)
{
    const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int variant = 0; variant < 9; variant++) {
        const int64_t n = variant >= 6 ? 35002 : 35003;
        op_case c = {.op = LATHE_OP_UNIFORM_NOISE, .reference = noise_reference, .slack = 1e-6};
        c.attrs.alpha = 0.25;
        c.attrs.rng_stream = ((uint64_t)5 << 33) + 9;
        op_input(&c, 0, lathe_desc_1d(dtypes[variant % 3], n), 0.0, 1.0);
        set_counter(&c, variant / 3);
        op_output(&c, 0, lathe_desc_1d(dtypes[variant % 3], n));
        op_check(&c);
    }
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < 40000; i++) {
        const double x = noise_of(1234567, 17, 9, i, 0.25);
        cr_assert(x >= -0.25 && x < 0.25);
        sum += x;
        squares += x * x;
    }
    cr_expect_float_eq(sum / 40000, 0.0, 4 * 0.25 / sqrt(3.0 * 40000));
    cr_expect_float_eq(squares / 40000, 0.25 * 0.25 / 3.0, 3e-4);
}

Test(uniform_noise, refuses_a_magnitude_below_0)
{
    op_case c = {.op = LATHE_OP_UNIFORM_NOISE};
    c.attrs.alpha = -1.0;
    op_input(&c, 0, lathe_desc_1d(LATHE_F32, 8), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_1d(LATHE_I64, LATHE_RNG_COUNTER), 0.0, 0.0);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, 8));
    cr_assert_eq(op_refusal(&c), LATHE_E_ARG);
    op_free(&c);
}

Test(dropout, refuses_to_drop_everything)
{
    op_case c = {.op = LATHE_OP_DROPOUT};
    c.attrs.p = 1.0f;
    op_input(&c, 0, lathe_desc_1d(LATHE_F32, 8), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_1d(LATHE_I64, LATHE_RNG_COUNTER), 0.0, 0.0);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, 8));
    cr_assert_eq(op_refusal(&c), LATHE_E_ARG);
    op_free(&c);
}
