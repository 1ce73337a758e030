/* Converts rows of numbers to codes of the dynamic map and back: dynamic_map.h for many elements.
 *
 * Three implementations give the same bits: element by element, loops that the compiler vectorises,
 * and AVX-512 (decoding needs VBMI). The choice is made at every call, so one binary runs on all
 * machines.
 */
#ifndef LATHE_OPTIMIZERS_DYNAMIC_CODES_H
#define LATHE_OPTIMIZERS_DYNAMIC_CODES_H

#include "dynamic_codec.h"
#include "dynamic_codes_avx512.h"

/** out[i] = the value of codes[i]. */
static inline void lathe_dynamic_decode(const lathe_dynamic_codec *c, const uint8_t *codes,
                                        float *out, int64_t n)
{
    int64_t at = 0;
#ifdef LATHE__DYNAMIC_AVX512
    if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw"))
        at = lathe__dynamic_decode_avx512(c, codes, out, n);
#endif
    lathe__dynamic_decode_each(c->book.value, codes + at, out + at, n - at);
}

/** codes[i] = the code of the value nearest to x[i]/absmax, the lower one of two equally near.
 *  absmax: the largest magnitude in x; if it is 0 or NaN, every code is that of 0. */
static inline void lathe_dynamic_encode(const lathe_dynamic_codec *c, const float *x, float absmax,
                                        uint8_t *codes, int64_t n)
{
    const float max = absmax > 0.0f ? absmax : 1.0f;
    const float wide = max < 0x1p-64f ? 0x1p64f : 1.0f; /* so that 1/most is finite */
    int64_t at = 0;
#ifdef LATHE__DYNAMIC_AVX512
    if (wide == 1.0f && absmax <= FLT_MAX && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        at = lathe__dynamic_encode_avx512(c, x, max, codes, n);
#endif
    if (at < n && lathe__dynamic_near_each(&c->book.lines, x + at, wide, 1.0f / (max * wide),
                                           codes + at, n - at))
        lathe__dynamic_settle_each(&c->book, x + at, max, codes + at, n - at);
}

#endif
