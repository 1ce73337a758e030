/* SUM_SQUARES, UPDATE_SQUARES and CLAMP on the CPU device. */
#include "kernels/op_harness.h"

/* Segments that begin at any offset, overlap, are empty, or end with the tensor. */
static const int64_t segments[][2] = {{0, 65536}, {65536, 5003}, {17, 15},
                                      {17, 16},   {70539, 0},    {1, 70538}};
#define N_SEGMENTS ((int64_t)(sizeof segments / sizeof segments[0]))
#define N_X 70539

static void sums(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t s = 0; s < lathe_desc_count(&c->out[0]); s++)
        for (int64_t e = 0; e < (int64_t)in[1][2 * s + 1]; e++) {
            const double x = in[0][(int64_t)in[1][2 * s] + e];
            want[0][s] += x * x;
        }
}

static op_case make_sums_of(int32_t dtype)
{
    op_case c = {.op = LATHE_OP_SUM_SQUARES, .reference = sums, .slack = N_X * 0x1p-52};
    op_input(&c, 0, lathe_desc_1d(dtype, N_X), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_I64, N_SEGMENTS, 2), 0.0, 1.0);
    for (int64_t s = 0; s < 2 * N_SEGMENTS; s++)
        c.value[1][s] = (double)segments[s / 2][s % 2];
    op_output(&c, 0, lathe_desc_1d(LATHE_F64, N_SEGMENTS));
    return c;
}

static op_case make_sums(void)
{
    return make_sums_of(LATHE_F32);
}

Test(sum_squares, adds_each_segment_in_double)
{
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int d = 0; d < 3; d++) {
        op_case c = make_sums_of(dtypes[d]);
        op_check(&c);
    }
}

Test(sum_squares, carries_what_is_not_finite_into_its_segment_alone)
{
    op_case c = make_sums();
    c.value[0][20] = INFINITY; /* in segments 0, 2, 3 and the last */
    op_check(&c);
}

Test(sum_squares, refuses_a_segment_outside_the_tensor)
{
    static const double bad[][2] = {{-1, 4}, {0, -4}, {N_X, 1}, {N_X - 3, 4}, {N_X + 1, 0}};
    op_build b = {0};
    cr_assert(op_open("cpu_avx2", &b));
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        op_case c = make_sums();
        float x = 0.0f;
        int64_t at[2 * N_SEGMENTS] = {0};
        double y[N_SEGMENTS];
        at[4] = (int64_t)bad[k][0];
        at[5] = (int64_t)bad[k][1];
        const lathe_kernel_problem p = op_problem(&c);
        lathe_kernel *kernel;
        int64_t scratch;
        cr_assert_eq(b.device->kernel_create(b.self, &p, &kernel, &scratch), LATHE_OK);
        const void *in[2] = {&x, at};
        void *out[1] = {y};
        const lathe_kernel_args args = {.size = sizeof args, .in = in, .out = out};
        cr_assert_eq(b.device->kernel_run(b.self, kernel, &args), LATHE_E_ARG, "segment %zu", k);
        b.device->kernel_destroy(b.self, kernel);
        op_free(&c);
    }
    op_close(&b);
}

static void updates(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++) {
        const double d =
            in[2][c->attrs.start] * (c->attrs.alpha * in[1][i] + c->attrs.beta * in[0][i]);
        want[0][i / 16384] += d * d;
    }
}

Test(update_squares, is_the_square_of_what_apply_update_takes_off)
{
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    static const int64_t sizes[] = {1, 16384, 16385, 50001};
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 4; s++) {
            op_case c = {
                .op = LATHE_OP_UPDATE_SQUARES, .reference = updates, .slack = 16384 * 0x1p-52};
            op_input(&c, 0, lathe_desc_1d(LATHE_F32, sizes[s]), 0.0, 1.0);
            op_input(&c, 1, lathe_desc_1d(dtypes[d], sizes[s]), 0.0, 1.0);
            op_input(&c, 2, lathe_desc_1d(LATHE_F32, 4), 0.0, 1.0);
            op_output(&c, 0, lathe_desc_1d(LATHE_F64, (sizes[s] + 16383) / 16384));
            c.attrs.alpha = 0.75;
            c.attrs.beta = -1.25;
            c.attrs.start = 2;
            op_check(&c);
        }
}

static void clamped(const op_case *c, double *const *in, double *const *want)
{
    const double limit = in[1][c->attrs.start];
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i] = in[0][i] > limit ? limit : in[0][i] < -limit ? -limit : in[0][i];
}

static op_case make_clamp_of(int32_t dtype, int64_t n)
{
    op_case c = {.op = LATHE_OP_CLAMP, .reference = clamped};
    op_input(&c, 0, lathe_desc_1d(dtype, n), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_1d(LATHE_F32, 2), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_1d(dtype, n));
    c.value[1][0] = -1.0;            /* not the limit at `start` */
    c.value[1][1] = (double)0.2503f; /* not representable in 16 bits */
    c.attrs.start = 1;
    return c;
}

static op_case make_clamp(int64_t n)
{
    return make_clamp_of(LATHE_F32, n);
}

Test(clamp, keeps_elements_within_the_limit_at_start)
{
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int d = 0; d < 3; d++) {
        op_case c = make_clamp_of(dtypes[d], 40003);
        c.value[0][0] = INFINITY;
        c.value[0][1] = -INFINITY;
        op_check(&c);
        op_case in_place = make_clamp_of(dtypes[d], 1025);
        in_place.in_place = 1;
        op_check(&in_place);
    }
}

Test(clamp, keeps_nan_and_refuses_a_missing_limit)
{
    op_build b = {0};
    void *out[1];
    cr_assert(op_open("cpu_avx2", &b));
    op_case c = make_clamp(5);
    c.value[0][3] = NAN;
    op_run(&b, &c, 0, out);
    cr_assert(isnan(op_load(out[0], LATHE_F32, 3)));
    cr_assert(!isnan(op_load(out[0], LATHE_F32, 2)));
    op_free_outputs(&c, out);
    c.attrs.start = 2;
    cr_assert_eq(op_refusal(&c), LATHE_E_SHAPE);
    op_free(&c);
    op_close(&b);
}
