/* Vectors of integers for the instruction set of this build: VL lanes of 32 bits, VB bytes. */
#ifndef LATHE_CPU_INT8_SIMD_H
#define LATHE_CPU_INT8_SIMD_H

#include "base/simd.h"

#define VB (4 * VL)
#if VL == 16
typedef __m512i vi;
#else
typedef __m256i vi;
#endif

CPU_INLINE vi i_zero(void)
{
#if VL == 16
    return _mm512_setzero_si512();
#else
    return _mm256_setzero_si256();
#endif
}

CPU_INLINE vi i_set(int32_t x)
{
#if VL == 16
    return _mm512_set1_epi32(x);
#else
    return _mm256_set1_epi32(x);
#endif
}

CPU_INLINE vi i_load(const void *p)
{
#if VL == 16
    return _mm512_loadu_si512(p);
#else
    return _mm256_loadu_si256((const __m256i *)p);
#endif
}

/* The first n < VB bytes, and zeros. */
CPU_INLINE vi i_load_first(const void *p, int64_t n)
{
#if VL == 16
    return _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, p);
#else
    uint8_t bytes[VB] = {0};
    memcpy(bytes, p, (size_t)n);
    return i_load(bytes);
#endif
}

CPU_INLINE void i_store(void *p, vi x)
{
#if VL == 16
    _mm512_storeu_si512(p, x);
#else
    _mm256_storeu_si256((__m256i *)p, x);
#endif
}

/* Four bytes in every lane. */
CPU_INLINE vi i_four_bytes(const void *p)
{
    int32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return i_set(bytes);
}

CPU_INLINE vi i_add(vi a, vi b)
{
#if VL == 16
    return _mm512_add_epi32(a, b);
#else
    return _mm256_add_epi32(a, b);
#endif
}

CPU_INLINE vi i_subtract(vi a, vi b)
{
#if VL == 16
    return _mm512_sub_epi32(a, b);
#else
    return _mm256_sub_epi32(a, b);
#endif
}

CPU_INLINE vi i_max(vi a, vi b)
{
#if VL == 16
    return _mm512_max_epi32(a, b);
#else
    return _mm256_max_epi32(a, b);
#endif
}

CPU_INLINE vi i_and(vi a, vi b)
{
#if VL == 16
    return _mm512_and_si512(a, b);
#else
    return _mm256_and_si256(a, b);
#endif
}

CPU_INLINE vi i_xor(vi a, vi b)
{
#if VL == 16
    return _mm512_xor_si512(a, b);
#else
    return _mm256_xor_si256(a, b);
#endif
}

/* Each lane without sign, n bits to the right. */
CPU_INLINE vi i_shift_right(vi a, int32_t n)
{
#if VL == 16
    return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n));
#else
    return _mm256_srl_epi32(a, _mm_cvtsi32_si128(n));
#endif
}

CPU_INLINE vi i_bits_of(vf x)
{
#if VL == 16
    return _mm512_castps_si512(x);
#else
    return _mm256_castps_si256(x);
#endif
}

CPU_INLINE vf i_to_float(vi x)
{
#if VL == 16
    return _mm512_cvtepi32_ps(x);
#else
    return _mm256_cvtepi32_ps(x);
#endif
}

/* The sum of the lanes, modulo 2^32. */
CPU_INLINE int32_t i_sum(vi x)
{
#if VL == 16
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
#else
    const __m256i half = x;
#endif
    const __m128i four =
        _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

#endif
