/* The vector math of the CPU device, against libm in double. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "../../kernels/cpu/base/vecmath.h"

/* Difference in units in the last place of the float nearest to `want`. */
static double ulps(float got, double want)
{
    const float w = (float)want;
    const float next = nextafterf(fabsf(w), INFINITY);
    return fabs((double)got - want) / ((double)next - (double)fabsf(w));
}

/* The largest error of f over `steps` points of [lo, hi]. */
static double worst(float (*f)(float), double (*exact)(double), double lo, double hi)
{
    const int steps = 400000;
    double w = 0.0;
    for (int i = 0; i <= steps; i++) {
        const float x = (float)(lo + (hi - lo) * i / steps);
        const double e = ulps(f(x), exact((double)x));
        w = e > w ? e : w;
    }
    return w;
}

static float f_exp(float x)
{
    return cpu_exp(x);
}

static float f_exp_clamped(float x)
{
    return cpu_exp_clamped(x);
}

static float f_tanh(float x)
{
    return cpu_tanh(x);
}

static float f_sigmoid(float x)
{
    return cpu_sigmoid(x);
}

static float f_normal(float x)
{
    float e;
    return cpu_normal(x, &e);
}

static double normal(double x)
{
    return 0.5 * erfc(-x / sqrt(2.0));
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

Test(vecmath, exp_is_within_2_ulp)
{
    cr_expect_leq(worst(f_exp, exp, -87.33, 88.72), 2.0);
    cr_expect_leq(worst(f_exp, exp, -1.0, 1.0), 2.0);
    cr_expect_eq(cpu_exp(0.0f), 1.0f);
}

Test(vecmath, exp_ends_in_zero_and_infinity)
{
    cr_expect_eq(cpu_exp(-88.0f), 0.0f);
    cr_expect_eq(cpu_exp(-INFINITY), 0.0f);
    cr_expect_eq(cpu_exp(89.0f), INFINITY);
    cr_expect_eq(cpu_exp(INFINITY), INFINITY);
    cr_expect(isnan(cpu_exp(NAN)));
}

Test(vecmath, clamped_exp_is_exp_between_its_ends)
{
    cr_assert_leq(worst(f_exp_clamped, exp, -87.0, 88.0), 2.0);
    cr_assert_eq(cpu_exp_clamped(-1000.0f), cpu_exp_clamped(-87.0f));
    cr_assert_eq(cpu_exp_clamped(-INFINITY), cpu_exp_clamped(-87.0f));
    cr_assert_eq(cpu_exp_clamped(1000.0f), cpu_exp_clamped(88.0f));
    cr_assert_eq(cpu_exp_clamped(INFINITY), cpu_exp_clamped(88.0f));
}

Test(vecmath, tanh_is_within_3_ulp)
{
    cr_expect_leq(worst(f_tanh, tanh, -10.0, 10.0), 3.0);
    cr_expect_leq(worst(f_tanh, tanh, -0.7, 0.7), 3.0);
    cr_expect_eq(cpu_tanh(1e30f), 1.0f);
    cr_expect_eq(cpu_tanh(-1e30f), -1.0f);
    cr_expect(isnan(cpu_tanh(NAN)));
}

Test(vecmath, sigmoid_is_within_4_ulp)
{
    cr_expect_leq(worst(f_sigmoid, sigmoid, -87.3, 87.3), 4.0);
    cr_expect_eq(cpu_sigmoid(1e30f), 1.0f);
    cr_expect_eq(cpu_sigmoid(-1e30f), 0.0f);
    cr_expect(isnan(cpu_sigmoid(NAN)));
}

Test(vecmath, normal_is_within_6_ulp_above_minus_1_and_12_ulp_above_minus_5)
{
    float e;
    cr_expect_leq(worst(f_normal, normal, -1.0, 10.0), 6.0);
    cr_expect_leq(worst(f_normal, normal, -5.0, -1.0), 12.0);
    cr_expect_leq(worst(f_normal, normal, -12.9, -5.0), 70.0);
    for (float x = -1e30f; x < -7.0f; x *= 0.9f)
        cr_assert(cpu_normal(x, &e) >= 0.0f &&
                  (double)cpu_normal(x, &e) < normal((double)x) + 1e-16);
    cr_expect_eq(cpu_normal(0.0f, &e), 0.5f);
    cr_expect_eq(cpu_normal(INFINITY, &e), 1.0f);
    cr_expect_eq(e, 0.0f);
    cr_expect_eq(cpu_normal(-INFINITY, &e), 0.0f);
    cr_expect(isnan(cpu_normal(NAN, &e)));
}
