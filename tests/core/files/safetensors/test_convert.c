/* Conversions: all values of the half format; the other formats through it; odd sizes and unaligned
 * memory. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "files/safetensors/convert.h"

/* Value of a half from its definition, in double. */
static double half_value(uint32_t bits)
{
    const int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == 31)
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent != 0 ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

Test(convert, every_half_is_read_exactly_and_comes_back)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float x = lathe_f16_to_f32((uint16_t)bits);
        const double want = half_value(bits);
        if (isnan(want)) {
            cr_assert(isnan(x));
            cr_assert(isnan(half_value(lathe_f32_to_f16(x))));
        } else {
            cr_assert_eq((double)x, want);
            cr_assert_eq(lathe_f32_to_f16(x), bits);
        }
    }
}

Test(convert, halves_are_rounded_to_nearest_even)
{
    for (uint32_t bits = 0; bits < 0x7c00;
         bits++) { /* the midpoint of each finite positive half and the next */
        const double low = half_value(bits), high = bits == 0x7bff ? 65536.0 : half_value(bits + 1);
        const float middle = (float)((low + high) / 2); /* exact: 12 bits */
        cr_assert_eq(lathe_f32_to_f16(middle), bits + (bits & 1));
        cr_assert_eq(lathe_f32_to_f16(nextafterf(middle, 0.0f)), bits);
        cr_assert_eq(lathe_f32_to_f16(nextafterf(middle, INFINITY)), bits + 1);
        cr_assert_eq(lathe_f32_to_f16(-middle), 0x8000 + bits + (bits & 1));
    }
}

Test(convert, odd_sizes_and_unaligned_sources)
{
    enum { N = 70001 }; /* more than one task */
    float *want = malloc(N * sizeof *want), *got = malloc(N * sizeof *got);
    uint8_t *stored = malloc(N * 8 + 1);
    for (int i = 0; i < N; i++)
        want[i] = (float)(i % 251 - 125) * 0.5f; /* exact in every float dtype here: 8 bits */
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16, LATHE_F64};
    for (int k = 0; k < 4; k++) {
        cr_assert_eq(lathe_convert(stored + 1, dtypes[k], want, LATHE_F32, N), LATHE_OK);
        memset(got, 0xff, N * sizeof *got);
        cr_assert_eq(lathe_convert(got, LATHE_F32, stored + 1, dtypes[k], N), LATHE_OK);
        cr_assert_eq(memcmp(got, want, N * sizeof *got), 0);
        /* 101 x 693 transposed, using the same numbers */
        cr_assert_eq(lathe_convert_transposed(got, LATHE_F32, stored + 1, dtypes[k], 101, 693),
                     LATHE_OK);
        for (int r = 0; r < 101; r++)
            for (int c = 0; c < 693; c++)
                cr_assert_eq(got[c * 101 + r], want[r * 693 + c]);
    }
    cr_assert_eq(lathe_convert(got, LATHE_F32, stored, LATHE_BF16, 0), LATHE_OK);
    cr_assert_eq(lathe_convert(got, LATHE_F32, stored, LATHE_I8, 1), LATHE_E_DTYPE);
    free(want);
    free(got);
    free(stored);
}
