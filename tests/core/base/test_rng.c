/* Philox 4x32-10 against the known answers of its authors (Random123, kat_vectors), and dtype bits.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "lathe/dtype.h"
#include "lathe/kit/normal.h"
#include "lathe/kit/rng_fill.h"

static void check(lathe_u32x4 got, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    cr_assert_eq(got.v[0], a);
    cr_assert_eq(got.v[1], b);
    cr_assert_eq(got.v[2], c);
    cr_assert_eq(got.v[3], d);
}

Test(philox, known_answers)
{
    check(lathe_philox(0, 0, 0, 0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
    check(lathe_philox(0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff),
          0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
    check(lathe_philox(0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344),
          0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

Test(rng, the_key_is_the_seed_and_the_counter_the_rest)
{
    const lathe_u32x4 want = lathe_philox(7, 1, 5, 2, 9, 11);
    check(lathe_rng_block((1ull << 32) | 7, 11, 9, (2ull << 32) | 5), want.v[0], want.v[1],
          want.v[2], want.v[3]);
}

/* Three ranks with 4 elements each. In one part rank 1 has elements 4 to 7 of 12; in two parts it
 * has 2, 3 of the first six and 8, 9, which are the same places of the last six. */
Test(rng, an_element_is_keyed_by_its_index_among_those_of_all_ranks)
{
    static const int64_t want[3][4] = {{4, 5, 6, 7}, {2, 3, 8, 9}, {0, 1, 2, 3}};
    static const int64_t counters[3][LATHE_RNG_COUNTER] = {
        {1, 1, 1, 3, 1}, {1, 1, 1, 3, 2}, {1, 1, 0, 1, 2}};
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < 4; i++)
            cr_expect_eq(lathe_rng_index(counters[k], 4, i), want[k][i], "counter %d, element %lld",
                         k, (long long)i);
    /* 5 elements are one part: rank 1 has 5 to 9. */
    cr_expect_eq(lathe_rng_index(counters[1], 5, 4), 9);
    /* Beyond 2^32 elements. */
    cr_expect_eq(lathe_rng_index(counters[0], INT64_C(1) << 40, 3), (INT64_C(1) << 40) + 3);
}

/* Every index of the elements of all ranks comes once. */
Test(rng, ranks_share_no_index)
{
    for (int64_t ranks = 1; ranks <= 8; ranks++)
        for (int64_t n = 1; n <= 9; n++)
            for (int64_t parts = 1; parts <= 2; parts++) {
                int32_t seen[72] = {0};
                for (int64_t r = 0; r < ranks; r++)
                    for (int64_t i = 0; i < n; i++) {
                        const int64_t counter[LATHE_RNG_COUNTER] = {1, 1, r, ranks, parts};
                        const int64_t e = lathe_rng_index(counter, n, i);
                        cr_assert(e >= 0 && e < n * ranks && seen[e]++ == 0);
                    }
            }
}

/* Fills any number of blocks, beginning just before the index exceeds 2^32. */
Test(rng, filling_gives_the_words_of_the_blocks)
{
    const uint64_t seed = 0xfedcba9876543210u, stream = (uint64_t)0x5301 << 32 | 0x90000003u;
    uint32_t got[4 * 71 + 1];
    for (int64_t n = 0; n <= 70; n++) {
        const uint64_t first = ((uint64_t)7 << 32) - 40 + (uint64_t)n;
        memset(got, 0xa5, sizeof got);
        lathe_rng_fill(got, n, seed, 0x80000001u, stream, first);
        for (int64_t b = 0; b < n; b++) {
            const lathe_u32x4 want =
                lathe_rng_block(seed, 0x80000001u, stream, first + (uint64_t)b);
            cr_assert_arr_eq(got + 4 * b, want.v, sizeof want.v, "block %d of %d", (int)b, (int)n);
        }
        cr_assert_eq(got[4 * n], 0xa5a5a5a5u, "wrote past the end");
    }
}

Test(rng, uniforms_stay_below_one)
{
    cr_assert_eq(lathe_uniform_f32(0), 0.0f);
    cr_assert_eq(lathe_uniform_f32(0xffffffff), 1.0f - 0x1p-24f);
    cr_assert_eq(lathe_uniform_f64(0xffffffff, 0xffffffff), 1.0 - 0x1p-53);
    cr_assert_eq(lathe_uniform_f32(0x80000000), 0.5f);
}

Test(dtype, bf16_rounds_to_nearest_even)
{
    cr_assert_eq(lathe_f32_to_bf16(1.0f), 0x3f80);
    cr_assert_eq(lathe_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80); /* tie, to even */
    cr_assert_eq(lathe_f32_to_bf16(1.0f + 0x3p-8f), 0x3f82); /* tie, to even */
    cr_assert_eq(lathe_f32_to_bf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
    cr_assert_eq(lathe_f32_to_bf16(3.4e38f), 0x7f80); /* overflows */
    cr_assert(isnan(lathe_bf16_to_f32(lathe_f32_to_bf16(NAN))));
    const uint32_t worst[2] = {0x7fffffffu, 0x7f800001u}; /* rounding would give -0 and infinity */
    for (int k = 0; k < 2; k++) {
        float x;
        memcpy(&x, &worst[k], sizeof x);
        cr_assert(isnan(lathe_bf16_to_f32(lathe_f32_to_bf16(x))));
    }
    for (uint32_t bits = 0; bits < 0x7f80; bits++)
        cr_assert_eq(lathe_f32_to_bf16(lathe_bf16_to_f32((uint16_t)bits)), bits);
}

Test(dtype, f16_rounds_to_nearest_even)
{
    cr_assert_eq(lathe_f32_to_f16(1.0f), 0x3c00);
    cr_assert_eq(lathe_f32_to_f16(1.0f + 0x1p-11f), 0x3c00); /* tie, to even */
    cr_assert_eq(lathe_f32_to_f16(1.0f + 0x3p-11f), 0x3c02); /* tie, to even */
    cr_assert_eq(lathe_f32_to_f16(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);
    cr_assert_eq(lathe_f32_to_f16(-65504.0f), 0xfbff);
    cr_assert_eq(lathe_f32_to_f16(65519.9f), 0x7bff);
    cr_assert_eq(lathe_f32_to_f16(65520.0f), 0x7c00); /* overflows */
    cr_assert_eq(lathe_f32_to_f16(-INFINITY), 0xfc00);
    cr_assert_eq(lathe_f32_to_f16(0x1p-24f), 1);         /* the smallest positive */
    cr_assert_eq(lathe_f32_to_f16(0x1p-25f), 0);         /* tie, to even */
    cr_assert_eq(lathe_f32_to_f16(0x1.8p-24f), 2);       /* tie, to even */
    cr_assert_eq(lathe_f32_to_f16(0x1.ffcp-15f), 0x400); /* a subnormal rounds up to a normal */
    cr_assert_eq(lathe_f32_to_f16(-0.0f), 0x8000);
    cr_assert(isnan(lathe_f16_to_f32(lathe_f32_to_f16(NAN))));
    cr_assert_eq(lathe_f16_to_f32(0x3555), 0x1.554p-2f);
    cr_assert_eq(lathe_f16_to_f32(0xfc00), -INFINITY);
    for (uint32_t bits = 0; bits < 0x10000; bits++)
        if ((bits & 0x7fff) <= 0x7c00) /* all but NaN */
            cr_assert_eq(lathe_f32_to_f16(lathe_f16_to_f32((uint16_t)bits)), bits);
}

/* The distance in units in the last place of `want`. */
static double units_apart(double got, long double want)
{
    return (double)(fabsl((long double)got - want) / ldexpl(1.0L, ilogbl(want) - 52));
}

Test(rng, series_are_within_two_units_of_the_functions)
{
    for (uint32_t i = 0; i < 200000; i++) {
        const lathe_u32x4 b = lathe_rng_block(7, 0, 0, i);
        const double u = 1.0 - lathe_uniform_f64(b.v[0], b.v[1]);
        const double x = 6.283185307179586 * lathe_uniform_f64(b.v[2], b.v[3]);
        double s, c;
        lathe__sin_cos(x, &s, &c);
        cr_assert_leq(units_apart(lathe__log(u), logl((long double)u)), 2.0, "log %a", u);
        cr_assert_leq(units_apart(s, sinl((long double)x)), 2.0, "sin %a", x);
        cr_assert_leq(units_apart(c, cosl((long double)x)), 2.0, "cos %a", x);
    }
}
