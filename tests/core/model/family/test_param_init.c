/* Random weights: a double reference from the C library, statistics, and dependence on nothing but
 * (seed, name, element). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/parallel.h"
#include "lathe/rng.h"
#include "model/family/param_init.h"

static lathe_param row_of(const char *name, int64_t rows, int64_t cols, int32_t init, double scale)
{
    const lathe_param row = {.name = name,
                             .desc = lathe_desc_2d(LATHE_F32, rows, cols),
                             .init = init,
                             .init_scale = scale};
    return row;
}

Test(param_init, normals_are_box_muller_of_the_counter_rng)
{
    enum { N = 33 * 1001 }; /* not a multiple of a batch */
    const lathe_param row =
        row_of("model.layers.0.mlp.up_proj.weight", 33, 1001, LATHE_INIT_NORMAL, 0.02);
    float *got = malloc(N * sizeof *got);
    cr_assert_eq(lathe_param_init(&row, 1234, got), LATHE_OK);
    const uint64_t stream = lathe_hash64(row.name, (int64_t)strlen(row.name));
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < N; i++) {
        const lathe_u32x4 w = lathe_rng_block(1234, 0, stream, (uint64_t)i / 4);
        const int pair = i % 4 / 2;
        const double u = ((double)w.v[2 * pair] + 0.5) * 0x1p-32,
                     t = (double)w.v[2 * pair + 1] * 0x1p-32;
        const double r = sqrt(-2.0 * log(u)), a = 2.0 * M_PI * t;
        /* f32: rounding of u changes r^2 by 2^-24 and r by 2^-25 / r; elsewhere a few roundings of
         * 2^-24 of r, with r < 7 */
        const double tolerance = 0.02 * (0x1p-24 / fmax(r, 1e-3) + 7 * 4 * 0x1p-24);
        cr_assert_float_eq((double)got[i], 0.02 * r * (i % 2 ? sin(a) : cos(a)), tolerance, "%d",
                           i);
        const double z = (double)got[i] / 0.02;
        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
    }
    /* five standard errors: 1/sqrt(N), sqrt(2/N), sqrt(96/N) */
    cr_assert_lt(fabs(sum / N), 5 / sqrt(N));
    cr_assert_lt(fabs(squares / N - 1), 5 * sqrt(2.0 / N));
    cr_assert_lt(fabs(fourth / N - 3), 5 * sqrt(96.0 / N));
    free(got);
}

Test(param_init, depends_on_seed_name_and_element_only)
{
    const lathe_param small = row_of("a", 1, 1025, LATHE_INIT_NORMAL, 1.0);
    const lathe_param large = row_of("a", 300, 1025, LATHE_INIT_NORMAL, 1.0);
    const lathe_param other = row_of("b", 1, 1025, LATHE_INIT_NORMAL, 1.0);
    float *x = malloc(300 * 1025 * sizeof *x), y[1025], z[1025];
    cr_assert_eq(lathe_param_init(&large, 7, x), LATHE_OK);
    cr_assert_eq(lathe_param_init(&small, 7, y), LATHE_OK);
    cr_assert_eq(memcmp(x, y, sizeof y), 0);
    cr_assert_eq(lathe_param_init(&other, 7, z), LATHE_OK);
    cr_assert_neq(memcmp(y, z, sizeof y), 0);
    cr_assert_eq(lathe_param_init(&small, 8, z), LATHE_OK);
    cr_assert_neq(memcmp(y, z, sizeof y), 0);
    free(x);
}

Test(param_init, bits_are_pinned)
{
    /* fails if the keys, the polynomials or the order of operations change: then old seeds give new
     * models, which the change log must state */
    const lathe_param row = row_of("pinned", 64, 1024, LATHE_INIT_NORMAL, 1.0);
    float *x = malloc(64 * 1024 * sizeof *x);
    cr_assert_eq(lathe_param_init(&row, 42, x), LATHE_OK);
    cr_assert_eq(lathe_hash64(x, 64 * 1024 * 4), 0xba9ef18c21021c08ULL, "0x%016llxULL",
                 (unsigned long long)lathe_hash64(x, 64 * 1024 * 4));
    free(x);
}

Test(param_init, the_other_rules)
{
    float x[4096];
    lathe_param row = row_of("c", 64, 64, LATHE_INIT_KAIMING_UNIFORM, 0.0);
    cr_assert_eq(lathe_param_init(&row, 1, x), LATHE_OK);
    float low = 0, high = 0;
    for (int i = 0; i < 4096; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    /* U(+-1/sqrt(64)): the extremes of 4,096 numbers are within 1% of the ends, except with
     * probability e^-20 */
    cr_assert(low >= -0.125f && low < -0.12375f && high < 0.125f && high > 0.12375f);
    row.init = LATHE_INIT_UNIFORM;
    row.init_scale = 2.0;
    float y[4096];
    cr_assert_eq(lathe_param_init(&row, 1, y), LATHE_OK);
    for (int i = 0; i < 4096; i++)
        cr_assert_eq(y[i], 16.0f * x[i]);
    row.init = LATHE_INIT_ONE;
    cr_assert_eq(lathe_param_init(&row, 1, y), LATHE_OK);
    cr_assert(y[0] == 1.0f && y[4095] == 1.0f);
    row.init = LATHE_INIT_ZERO;
    cr_assert_eq(lathe_param_init(&row, 1, y), LATHE_OK);
    cr_assert(y[0] == 0.0f && y[4095] == 0.0f);
    row.init = 99;
    cr_assert_eq(lathe_param_init(&row, 1, y), LATHE_E_ARG);
    row = row_of("c", 1, 1, LATHE_INIT_KAIMING_UNIFORM, 0.0);
    row.desc.rank = 1;
    cr_assert_eq(lathe_param_init(&row, 1, y), LATHE_E_ARG);
}
