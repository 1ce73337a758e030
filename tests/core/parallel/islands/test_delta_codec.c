/* Codecs of the change that islands exchange: numbers by hand, errors within half a step of the
 * scale, sizes, odd counts, numbers that are not finite. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/islands/delta_codec.h"

enum { MAX = 1000 };

static float x[MAX], y[MAX];
static unsigned char bytes[4 * MAX];

static void through(int32_t dtype, int64_t n)
{
    memset(bytes, 0xee, sizeof bytes);
    memset(y, 0xee, sizeof y);
    lathe_delta_encode(dtype, x, n, bytes);
    for (size_t i = (size_t)lathe_delta_bytes(dtype, n); i < sizeof bytes; i++)
        cr_assert_eq(bytes[i], 0xee, "byte %zu after the end of dtype %d", i, dtype);
    lathe_delta_decode(dtype, bytes, n, y);
}

/* Any numbers, as small as changes are. */
static void fill(int64_t n)
{
    unsigned state = 7;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = ((float)(state >> 8) / 8388608.0f - 1.0f) * 1e-3f;
    }
}

Test(delta_codec, bytes_of_n_numbers)
{
    cr_expect_eq(lathe_delta_bytes(LATHE_DELTA_FP32, 1000), 4000);
    cr_expect_eq(lathe_delta_bytes(LATHE_DELTA_BF16, 1000), 2000);
    cr_expect_eq(lathe_delta_bytes(LATHE_DELTA_FP16, 1000), 2000);
    cr_expect_eq(lathe_delta_bytes(LATHE_DELTA_INT8, 1024), 1024 + 4 * 4);
    cr_expect_eq(lathe_delta_bytes(LATHE_DELTA_INT4, 1024), 512 + 16 * 4);
    for (int32_t d = 0; d < LATHE_N_DELTAS; d++)
        cr_expect_eq(lathe_delta_bytes(d, 0), 0);
    /* over f32: 3.94 and 7.1, so that int8 at H = 100 is less than 1/390 of DDP */
    cr_expect_geq(400000000.0 / (double)lathe_delta_bytes(LATHE_DELTA_INT8, 1000000), 390);
}

/* Scale 127 / 127 = 1: numbers are rounded to even. */
Test(delta_codec, int8_by_hand)
{
    const float in[] = {127.0f, -127.0f, 0.5f, 1.5f, -2.4f, 0.0f};
    const float want[] = {127.0f, -127.0f, 0.0f, 2.0f, -2.0f, 0.0f};
    memcpy(x, in, sizeof in);
    through(LATHE_DELTA_INT8, 6);
    for (int i = 0; i < 6; i++)
        cr_expect_eq(y[i], want[i], "%g is read as %g", (double)in[i], (double)y[i]);
    cr_expect_eq((signed char)bytes[4 + 1], -127);
}

/* Scale 14 / 7 = 2; two numbers in a byte, the first in its low half. */
Test(delta_codec, int4_by_hand)
{
    const float in[] = {14.0f, -14.0f, 3.1f, -0.9f, 5.0f};
    const float want[] = {14.0f, -14.0f, 4.0f, 0.0f, 4.0f};
    memcpy(x, in, sizeof in);
    through(LATHE_DELTA_INT4, 5);
    for (int i = 0; i < 5; i++)
        cr_expect_eq(y[i], want[i], "%g is read as %g", (double)in[i], (double)y[i]);
    cr_expect_eq(bytes[4], (7 + 8) | (-7 + 8) << 4);
    cr_expect_eq(bytes[5], (2 + 8) | (0 + 8) << 4);
}

Test(delta_codec, errors_are_within_half_a_step)
{
    static const float step[LATHE_N_DELTAS] = {0.0f, 1.0f / 128, 1.0f / 1024, 1.0f / 127, 1.0f / 7};
    static const int64_t counts[] = {1, 2, 63, 64, 65, 255, 256, 257, 999};
    for (int32_t d = 0; d < LATHE_N_DELTAS; d++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            fill(counts[k]);
            through(d, counts[k]);
            for (int64_t i = 0; i < counts[k]; i++)
                cr_expect_leq(fabsf(y[i] - x[i]), 0.5001f * step[d] * 1e-3f + 1e-8f,
                              "dtype %d, %d of %d: %g is read as %g", d, (int)i, (int)counts[k],
                              (double)x[i], (double)y[i]);
        }
}

Test(delta_codec, numbers_that_are_not_finite_are_seen)
{
    for (int32_t d = 0; d < LATHE_N_DELTAS; d++)
        for (int bad = 0; bad < 2; bad++) {
            fill(300);
            x[270] = bad ? (float)INFINITY : (float)NAN;
            through(d, 300);
            cr_expect(!isfinite(y[270]), "dtype %d reads %g", d, (double)y[270]);
            cr_expect(isfinite(y[0]), "another block of dtype %d", d);
        }
    memset(x, 0, sizeof x);
    for (int32_t d = 0; d < LATHE_N_DELTAS; d++) {
        through(d, 300);
        for (int i = 0; i < 300; i++)
            cr_expect_eq(y[i], 0.0f);
    }
}
