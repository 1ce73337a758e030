/* SWIGLU, GELU_TANH, GELU, their derivatives, SIGMOID and LOGSIGMOID on the CPU device. */
#include "kernels/op_harness.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double swiglu(double gate, double up)
{
    return gate * sigmoid(gate) * up;
}

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static double exact_gelu(double x)
{
    return 0.5 * x * erfc(-x / sqrt(2.0));
}

static void swiglu_reference(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i] = swiglu(in[0][i], in[1][i]);
}

static void swiglu_bwd_reference(const op_case *c, double *const *in, double *const *want)
{
    const double h = 1e-5;
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++) {
        const double dy = in[0][i], g = in[1][i], u = in[2][i];
        want[0][i] = dy * (swiglu(g + h, u) - swiglu(g - h, u)) / (2.0 * h);
        want[1][i] = dy * (swiglu(g, u + h) - swiglu(g, u - h)) / (2.0 * h);
    }
}

static void gelu_reference(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i] = gelu(in[0][i]);
}

static void gelu_bwd_reference(const op_case *c, double *const *in, double *const *want)
{
    const double h = 1e-5;
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i] = in[0][i] * (gelu(in[1][i] + h) - gelu(in[1][i] - h)) / (2.0 * h);
}

static void exact_gelu_reference(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i] = exact_gelu(in[0][i]);
}

static void exact_gelu_bwd_reference(const op_case *c, double *const *in, double *const *want)
{
    const double h = 1e-5;
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i] = in[0][i] * (exact_gelu(in[1][i] + h) - exact_gelu(in[1][i] - h)) / (2.0 * h);
}

static void sigmoid_reference(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i] = sigmoid(in[0][i]);
}

static void logsigmoid_reference(const op_case *c, double *const *in, double *const *want)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        want[0][i] = in[0][i] < -700.0 ? in[0][i] : -log1p(exp(-in[0][i]));
}

/* n_in inputs and n_out outputs of n elements. */
static void flat_case(int32_t op, op_reference reference, int32_t dtype, int64_t n, int32_t n_in,
                      int32_t n_out, double scale, int add)
{
    op_case c = {.op = op, .reference = reference, .slack = 1e-6, .add = add};
    for (int32_t i = 0; i < n_in; i++)
        op_input(&c, i, lathe_desc_1d(dtype, n), 0.0, scale);
    for (int32_t i = 0; i < n_out; i++)
        op_output(&c, i, lathe_desc_1d(dtype, n));
    op_check(&c);
}

Test(swiglu, agrees_and_its_derivative_with_differences)
{
    for (int d = 0; d < 3; d++)
        for (int64_t n = 1; n < 60000; n = n * 37 + 4) {
            flat_case(LATHE_OP_SWIGLU, swiglu_reference, dtypes[d], n, 2, 1, 6.0, 0);
            flat_case(LATHE_OP_SWIGLU_BWD, swiglu_bwd_reference, dtypes[d], n, 3, 2, 6.0, 1);
        }
}

Test(gelu, agrees_and_its_derivative_with_differences)
{
    for (int d = 0; d < 3; d++)
        for (int64_t n = 1; n < 60000; n = n * 37 + 4) {
            flat_case(LATHE_OP_GELU_TANH, gelu_reference, dtypes[d], n, 1, 1, 6.0, 0);
            flat_case(LATHE_OP_GELU_TANH_BWD, gelu_bwd_reference, dtypes[d], n, 2, 1, 6.0, 1);
        }
}

Test(gelu, of_the_exact_form_agrees_and_its_derivative_with_differences)
{
    for (int d = 0; d < 3; d++)
        for (int64_t n = 1; n < 60000; n = n * 37 + 4) {
            flat_case(LATHE_OP_GELU, exact_gelu_reference, dtypes[d], n, 1, 1, 6.0, 0);
            flat_case(LATHE_OP_GELU_BWD, exact_gelu_bwd_reference, dtypes[d], n, 2, 1, 6.0, 1);
        }
}

/* Values of torch 2.15: torch.nn.functional.gelu in float64. */
Test(gelu, of_the_exact_form_has_the_values_of_torch)
{
    static const double x[6] = {0.0, 1.0, -1.0, 3.0, -3.0, 100.0};
    static const double want[6] = {
        0.0,  0.841344746068543, -0.15865525393145702, 2.99595030590511, -0.00404969409489031,
        100.0};
    op_case c = {.op = LATHE_OP_GELU, .reference = exact_gelu_reference, .slack = 1e-6};
    op_input(&c, 0, lathe_desc_1d(LATHE_F32, 6), 0.0, 0.0);
    memcpy(c.value[0], x, sizeof x);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, 6));
    double y[6], *const out[1] = {y};
    exact_gelu_reference(&c, c.value, out);
    for (int i = 0; i < 6; i++)
        cr_assert_float_eq(y[i], want[i], 1e-14);
    op_check(&c);
}

Test(gelu, is_zero_at_zero_and_identity_far_right)
{
    op_case c = {.op = LATHE_OP_GELU_TANH, .reference = gelu_reference};
    op_input(&c, 0, lathe_desc_1d(LATHE_F32, 4), 0.0, 0.0);
    const double x[4] = {0.0, 100.0, -100.0, 1e4};
    memcpy(c.value[0], x, sizeof x);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, 4));
    double y[4], *const want[1] = {y};
    gelu_reference(&c, c.value, want);
    cr_assert_eq(y[0], 0.0);
    cr_assert_eq(y[1], 100.0);
    op_check(&c);
}

Test(sigmoid, and_its_logarithm_are_stable_at_both_ends)
{
    flat_case(LATHE_OP_SIGMOID, sigmoid_reference, LATHE_F32, 1001, 1, 1, 30.0, 1);
    flat_case(LATHE_OP_LOGSIGMOID, logsigmoid_reference, LATHE_F32, 1001, 1, 1, 30.0, 1);
    flat_case(LATHE_OP_LOGSIGMOID, logsigmoid_reference, LATHE_F32, 101, 1, 1, 1e4, 0);
}
