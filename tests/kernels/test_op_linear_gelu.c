/* LINEAR_GELU and LINEAR_DX_GELU: a fused product and GELU give the same bits as the two separate
 * ops. */
#include "kernels/op_harness.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static void forward_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = c->in[0].dims[0], i = c->in[0].dims[1], o = c->in[1].dims[0];
    for (int64_t r = 0; r < n; r++)
        for (int64_t j = 0; j < o; j++) {
            double z = in[2] == NULL ? 0.0 : in[2][j];
            for (int64_t k = 0; k < i; k++)
                z += in[0][r * i + k] * in[1][j * i + k];
            want[0][r * o + j] = gelu(z);
            if (c->out[1].dtype != LATHE_ABSENT)
                want[1][r * o + j] = z;
        }
}

static void backward_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = c->in[0].dims[0], o = c->in[0].dims[1], i = c->in[1].dims[1];
    const double h = 1e-5;
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < i; k++) {
            const double z = in[2][r * i + k];
            double dh = 0.0;
            for (int64_t j = 0; j < o; j++)
                dh += in[0][r * o + j] * in[1][j * i + k];
            want[0][r * i + k] = dh * (gelu(z + h) - gelu(z - h)) / (2.0 * h);
        }
}

/* The harness allows for the rounding of each result. This is the slack for the rounding of the
 * value between the two ops, multiplied by the slope of GELU (at most 1.13) and by the ratio of the
 * largest values of both (at most 1.5), and for the sum. */
static double slack_between(int32_t dtype, int64_t terms)
{
    const double half_unit = dtype == LATHE_BF16 ? 0x1p-8 : dtype == LATHE_F16 ? 0x1p-11 : 0x1p-24;
    return 1.13 * 1.5 * (half_unit + slack_of(terms));
}

static op_case forward_case(int32_t dtype, int64_t n, int64_t i, int64_t o, int bias, int keeps_z)
{
    op_case c = {.op = LATHE_OP_LINEAR_GELU,
                 .product = 1,
                 .reference = forward_reference,
                 .slack = slack_between(dtype, i)};
    op_input(&c, 0, lathe_desc_2d(dtype, n, i), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(dtype, o, i), 0.0, 1.0);
    if (bias)
        op_input(&c, 2, lathe_desc_1d(LATHE_F32, o), 0.0, 1.0);
    else
        op_absent_in(&c, 2);
    op_output(&c, 0, lathe_desc_2d(dtype, n, o));
    if (keeps_z)
        op_output(&c, 1, lathe_desc_2d(dtype, n, o));
    else
        op_absent_out(&c, 1);
    return c;
}

static op_case backward_case(int32_t dtype, int64_t n, int64_t i, int64_t o)
{
    op_case c = {.op = LATHE_OP_LINEAR_DX_GELU,
                 .product = 1,
                 .reference = backward_reference,
                 .slack = slack_between(dtype, o)};
    op_input(&c, 0, lathe_desc_2d(dtype, n, o), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(dtype, o, i), 0.0, 1.0);
    op_input(&c, 2, lathe_desc_2d(dtype, n, i), 0.0, 6.0);
    op_output(&c, 0, lathe_desc_2d(dtype, n, i));
    return c;
}

/* n, i, o: odd sizes, one row, one column, one term, and rows that end within a pack. */
static const int64_t shapes[][3] = {
    {37, 67, 45}, {1, 33, 129}, {300, 64, 1}, {5, 1, 3}, {9, 24, 64}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

Test(linear_gelu, agrees_with_and_without_bias_and_z)
{
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < N_SHAPES; s++)
            for (int with = 0; with < 4; with++) {
                op_case c = forward_case(dtypes[d], shapes[s][0], shapes[s][1], shapes[s][2],
                                         with & 1, with >> 1);
                op_check(&c);
            }
}

Test(linear_dx_gelu, agrees_with_differences)
{
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < N_SHAPES; s++) {
            op_case c = backward_case(dtypes[d], shapes[s][0], shapes[s][1], shapes[s][2]);
            op_check(&c);
        }
}

/* torch 2.15, float64: gelu(x W^T + b, approximate="tanh") */
static void torch_forward(const op_case *c, double *const *in, double *const *want)
{
    static const double z[8] = {-1.75, 2.125, -5.0, -0.875, -5.0, -6.125, 11.25, -8.375};
    static const double y[8] = {-0.070204617658748705,
                                2.0895195995171316,
                                -2.2917961972623857e-07,
                                -0.167047319461545,
                                -2.2917961972623857e-07,
                                -2.639499036005688e-11,
                                11.25,
                                -0.0};
    (void)c, (void)in;
    memcpy(want[0], y, sizeof y);
    memcpy(want[1], z, sizeof z);
}

Test(linear_gelu, gives_what_torch_gives)
{
    static const double x[6] = {1.0, -2.0, 0.5, -3.0, 0.25, 4.0};
    static const double w[12] = {0.5, 1.0, -1.0, 2.0, -0.5, 0.25, -1.5, 3.0, 1.0, 0.125, 0.0, -2.0};
    static const double b[4] = {0.25, -1.0, 2.0, 0.0};
    for (int d = 0; d < 3; d++) {
        op_case c = forward_case(dtypes[d], 2, 3, 4, 1, 1);
        memcpy(c.value[0], x, sizeof x);
        memcpy(c.value[1], w, sizeof w);
        memcpy(c.value[2], b, sizeof b);
        c.reference = torch_forward;
        c.slack = 0x1p-26; /* z is exact in each dtype */
        op_check(&c);
    }
}

/* The gradient of z in sum(dy * (gelu(z) W^T)), by torch's autograd in float64. */
static void torch_backward(const op_case *c, double *const *in, double *const *want)
{
    static const double dz[8] = {
        -2.125, 0.0010617438625856179, 3.8923184107974977,  4.8187350080227056e-09,
        6.625,  0.10762407077952287,   -1.5178973311856241, 6.5654697583150572};
    (void)c, (void)in;
    memcpy(want[0], dz, sizeof dz);
}

Test(linear_dx_gelu, gives_what_torch_gives)
{
    static const double dy[6] = {1.0, -0.5, 2.0, 0.25, 3.0, -1.0};
    static const double w[12] = {0.5, -1.0, 2.0, 0.25, 1.5, 0.0, -0.5, 1.0, -2.0, 1.0, 0.75, -3.0};
    static const double z[8] = {0.0, -0.75, 2.5, -6.0, 10.0, -2.0, 0.5, 1.0};
    for (int d = 0; d < 3; d++) {
        op_case c = backward_case(dtypes[d], 2, 4, 3);
        memcpy(c.value[0], dy, sizeof dy);
        memcpy(c.value[1], w, sizeof w);
        memcpy(c.value[2], z, sizeof z);
        c.reference = torch_backward;
        c.slack = 0x1p-24; /* dy W is exact in each dtype */
        op_check(&c);
    }
}

/* Passes output `from` of a case as input `to` of another. */
static void chain(op_case *next, int32_t to, const op_case *c, int32_t from, const void *bits)
{
    const int64_t n = lathe_desc_count(&c->out[from]);
    next->in[to] = c->out[from];
    next->value[to] = malloc((size_t)n * sizeof(double));
    for (int64_t i = 0; i < n; i++)
        next->value[to][i] = op_load(bits, c->out[from].dtype, i);
    next->n_in = to + 1 > next->n_in ? to + 1 : next->n_in;
}

/* A case of another op with the inputs of c, without those that it does not have. */
static op_case of_op(const op_case *c, int32_t op, int32_t n_in)
{
    op_case other = {.op = op, .n_in = n_in};
    memcpy(other.in, c->in, sizeof other.in);
    memcpy(other.value, c->value, sizeof other.value);
    op_output(&other, 0, c->out[0]);
    return other;
}

static void expect_forward_bits(const op_build *b, const op_case *c)
{
    void *joint[LATHE_OP_MAX_OUT], *z[LATHE_OP_MAX_OUT], *y[LATHE_OP_MAX_OUT];
    const size_t bytes = (size_t)lathe_desc_bytes(&c->out[0]);
    op_case first = of_op(c, LATHE_OP_LINEAR, 3), second = {.op = LATHE_OP_GELU_TANH};
    op_run(b, c, 0, joint);
    op_run(b, &first, 0, z);
    chain(&second, 0, &first, 0, z[0]);
    op_output(&second, 0, c->out[0]);
    op_run(b, &second, 0, y);
    cr_expect_eq(memcmp(joint[0], y[0], bytes), 0, "%s: y, dtype %d", b->plugin->name,
                 (int)c->out[0].dtype);
    if (joint[1] != NULL)
        cr_expect_eq(memcmp(joint[1], z[0], bytes), 0, "%s: z, dtype %d", b->plugin->name,
                     (int)c->out[0].dtype);
    free(second.value[0]);
    op_free_outputs(c, joint);
    op_free_outputs(&first, z);
    op_free_outputs(&second, y);
}

static void expect_backward_bits(const op_build *b, const op_case *c)
{
    void *joint[LATHE_OP_MAX_OUT], *dh[LATHE_OP_MAX_OUT], *dz[LATHE_OP_MAX_OUT];
    op_case first = of_op(c, LATHE_OP_LINEAR_DX, 2), second = {.op = LATHE_OP_GELU_TANH_BWD};
    op_run(b, c, 0, joint);
    op_run(b, &first, 0, dh);
    chain(&second, 0, &first, 0, dh[0]);
    second.in[1] = c->in[2];
    second.value[1] = c->value[2];
    second.n_in = 2;
    op_output(&second, 0, c->out[0]);
    op_run(b, &second, 0, dz);
    cr_expect_eq(memcmp(joint[0], dz[0], (size_t)lathe_desc_bytes(&c->out[0])), 0,
                 "%s: dz, dtype %d", b->plugin->name, (int)c->out[0].dtype);
    free(second.value[0]);
    op_free_outputs(c, joint);
    op_free_outputs(&first, dh);
    op_free_outputs(&second, dz);
}

/* Skips the real GPU, where all rows and parts of them may use different algorithms. */
static void on_every_build(op_case *c, void (*check)(const op_build *, const op_case *))
{
    for (int i = 0; i < N_ISAS + 1; i++) {
        op_build b = {0};
        if (i < N_ISAS ? op_open(op_isas[i], &b) : op_open_file(op_gpus[i - N_ISAS], &b)) {
            check(&b, c);
            op_close(&b);
        }
    }
    op_free(c);
}

Test(linear_gelu, has_the_bits_of_linear_and_gelu_tanh)
{
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < N_SHAPES; s++)
            for (int with = 0; with < 4; with++) {
                op_case c = forward_case(dtypes[d], shapes[s][0], shapes[s][1], shapes[s][2],
                                         with & 1, with >> 1);
                on_every_build(&c, expect_forward_bits);
            }
}

Test(linear_dx_gelu, has_the_bits_of_linear_dx_and_gelu_tanh_bwd)
{
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < N_SHAPES; s++) {
            op_case c = backward_case(dtypes[d], shapes[s][0], shapes[s][1], shapes[s][2]);
            on_every_build(&c, expect_backward_bits);
        }
}

/* Several of the CUDA device's blocks of 16 MiB, the last one shorter. */
Test(linear_gelu, has_the_bits_of_two_ops_over_several_blocks_of_rows)
{
    op_case y = forward_case(LATHE_BF16, 150, 1, 65541, 1, 1);
    op_case dz = backward_case(LATHE_BF16, 150, 65541, 1);
    on_every_build(&y, expect_forward_bits);
    on_every_build(&dz, expect_backward_bits);
}

/* NaN, infinities and values with GELU(x) = 0 or x: the result is that of the two ops, and NaN
 * stays NaN. */
Test(linear_gelu, keeps_what_is_no_number)
{
    static const double odd[6] = {NAN, INFINITY, -INFINITY, 1e4, -1e4, -0.0};
    for (int d = 0; d < 3; d++) {
        op_case forward = forward_case(dtypes[d], 6, 1, 5, 1, 1);
        op_case backward = backward_case(dtypes[d], 6, 1, 5);
        memcpy(forward.value[0], odd, sizeof odd);
        memcpy(backward.value[2], odd, sizeof odd);
        for (int i = 0; i < N_ISAS; i++) {
            void *y[LATHE_OP_MAX_OUT], *dz[LATHE_OP_MAX_OUT];
            op_build b = {0};
            if (!op_open(op_isas[i], &b))
                continue;
            op_run(&b, &forward, 0, y);
            op_run(&b, &backward, 0, dz);
            cr_expect(isnan(op_load(y[0], dtypes[d], 0)) && isnan(op_load(y[1], dtypes[d], 0)));
            cr_expect(isnan(op_load(dz[0], dtypes[d], 0)));
            op_free_outputs(&forward, y);
            op_free_outputs(&backward, dz);
            op_close(&b);
        }
        on_every_build(&forward, expect_forward_bits);
        on_every_build(&backward, expect_backward_bits);
    }
}

Test(linear_gelu, refuses_what_it_cannot_do)
{
    op_case c = forward_case(LATHE_BF16, 16, 16, 16, 1, 1);
    c.attrs.fp8 = 1;
    cr_expect_eq(op_refusal(&c), LATHE_E_UNSUPPORTED);
    c.attrs.fp8 = 0;
    c.add = 1;
    cr_expect_eq(op_refusal(&c), LATHE_E_UNSUPPORTED);
    c.add = 0;
    c.out[1] = lathe_desc_2d(LATHE_BF16, 16, 15);
    cr_expect_eq(op_refusal(&c), LATHE_E_SHAPE);
    c.out[1] = lathe_desc_2d(LATHE_F32, 16, 16);
    cr_expect_eq(op_refusal(&c), LATHE_E_DTYPE);
    c.out[1] = c.out[0];
    c.in[0] = lathe_desc_2d(LATHE_BF16, 16, 15);
    cr_expect_eq(op_refusal(&c), LATHE_E_SHAPE);
    op_free(&c);
}

Test(linear_dx_gelu, refuses_what_it_cannot_do)
{
    op_case c = backward_case(LATHE_BF16, 16, 16, 16);
    c.attrs.fp8 = 1;
    cr_expect_eq(op_refusal(&c), LATHE_E_UNSUPPORTED);
    c.attrs.fp8 = 0;
    c.add = 1;
    cr_expect_eq(op_refusal(&c), LATHE_E_UNSUPPORTED);
    c.add = 0;
    c.in[2] = lathe_desc_2d(LATHE_BF16, 15, 16);
    cr_expect_eq(op_refusal(&c), LATHE_E_SHAPE);
    c.in[2] = lathe_desc_2d(LATHE_F16, 16, 16);
    cr_expect_eq(op_refusal(&c), LATHE_E_DTYPE);
    op_free(&c);
}
