/* Vectors of VL floats for the instruction set of this build, and loads that widen 16-bit elements
 * in registers. */
#ifndef LATHE_CPU_SIMD_H
#define LATHE_CPU_SIMD_H

#include <immintrin.h>

#include "base/element.h"

#if defined(__AVX512F__)
#define VL 16
typedef __m512 vf;
#else
#define VL 8
typedef __m256 vf;
#endif

CPU_INLINE vf v_zero(void)
{
#if VL == 16
    return _mm512_setzero_ps();
#else
    return _mm256_setzero_ps();
#endif
}

CPU_INLINE vf v_load(const float *p)
{
#if VL == 16
    return _mm512_loadu_ps(p);
#else
    return _mm256_loadu_ps(p);
#endif
}

CPU_INLINE void v_store(float *p, vf x)
{
#if VL == 16
    _mm512_storeu_ps(p, x);
#else
    _mm256_storeu_ps(p, x);
#endif
}

CPU_INLINE vf v_set(float x)
{
#if VL == 16
    return _mm512_set1_ps(x);
#else
    return _mm256_set1_ps(x);
#endif
}

CPU_INLINE vf v_add(vf a, vf b)
{
#if VL == 16
    return _mm512_add_ps(a, b);
#else
    return _mm256_add_ps(a, b);
#endif
}

CPU_INLINE vf v_mul(vf a, vf b)
{
#if VL == 16
    return _mm512_mul_ps(a, b);
#else
    return _mm256_mul_ps(a, b);
#endif
}

/* a * b + c, rounded once. */
CPU_INLINE vf v_fma(vf a, vf b, vf c)
{
#if VL == 16
    return _mm512_fmadd_ps(a, b, c);
#else
    return _mm256_fmadd_ps(a, b, c);
#endif
}

/* VL elements of a 16-bit dtype, in their order. */
CPU_INLINE vf v_widen(const uint16_t *p, int32_t dtype)
{
#if VL == 16
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (dtype == LATHE_F16)
        return _mm512_cvtph_ps(x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
#else
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    if (dtype == LATHE_F16)
        return _mm256_cvtph_ps(x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
#endif
}

/* Elements i .. i+VL-1 of any compute dtype. */
CPU_INLINE vf v_load_as(const void *p, int64_t i, int32_t dtype)
{
    if (dtype == LATHE_F32)
        return v_load((const float *)p + i);
    return v_widen((const uint16_t *)p + i, dtype);
}

/* The low 16 bits of each of the VL lanes, in order. */
#if VL == 16
CPU_INLINE __m256i v_low_halves(__m512i x)
{
    return _mm512_cvtepi32_epi16(x);
}
#else
CPU_INLINE __m128i v_low_halves(__m256i x)
{
    return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}
#endif

/* Rounds the lanes to bf16 as lathe_f32_to_bf16 does, and stores them. */
CPU_INLINE void v_store_bf16(uint16_t *p, vf x)
{
#if VL == 16
    const __m512i bits = _mm512_castps_si512(x), odd = _mm512_set1_epi32(1);
    const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), odd);
    const __m512i near = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), last);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i out = _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, near, quiet), 16);
    _mm256_storeu_si256((__m256i *)(void *)p, v_low_halves(out));
#else
    const __m256i bits = _mm256_castps_si256(x), odd = _mm256_set1_epi32(1);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), odd);
    const __m256i near = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), last);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i out = _mm256_srli_epi32(_mm256_blendv_epi8(near, quiet, nan), 16);
    _mm_storeu_si128((__m128i *)(void *)p, v_low_halves(out));
#endif
}

/* Stores the lanes as elements i .. i+VL-1, rounded to nearest. */
CPU_INLINE void v_store_as(void *p, int64_t i, int32_t dtype, vf x)
{
    uint16_t *const to = (uint16_t *)p + i;
    if (dtype == LATHE_F32)
        v_store((float *)p + i, x);
    else if (dtype == LATHE_BF16)
        v_store_bf16(to, x);
    else
#if VL == 16
        _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#else
        _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#endif
}

/* Loads eight elements from i on, for any VL. */
CPU_INLINE __m256 v8_load_as(const void *p, int64_t i, int32_t dtype)
{
    if (dtype == LATHE_F32)
        return _mm256_loadu_ps((const float *)p + i);
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)p + i));
    if (dtype == LATHE_F16)
        return _mm256_cvtph_ps(x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* Transposes the 8 x 8 matrix. */
CPU_INLINE void v8_transpose(__m256 r[8])
{
    __m256 t[8], u[8];
    for (int i = 0; i < 4; i++) { /* interleave pairs of rows */
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) /* interleave groups of four */
        for (int j = 0; j < 2; j++) {
            const __m256 low = t[4 * i + j], high = t[4 * i + 2 + j];
            u[4 * i + 2 * j] = _mm256_shuffle_ps(low, high, 0x44);
            u[4 * i + 2 * j + 1] = _mm256_shuffle_ps(low, high, 0xee);
        }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* Loads 2 VL bf16 elements: even ones to *even, odd ones to *odd. Takes two register operations;
 * widening in order takes four. */
CPU_INLINE void v_widen_pairs(const uint16_t *p, vf *even, vf *odd)
{
#if VL == 16
    const __m512i x = _mm512_loadu_si512((const void *)p);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u)));
#else
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000u)));
#endif
}

/* The sum of the lanes: halves are added, then quarters, and so on. */
CPU_INLINE float v_sum(vf x)
{
#if VL == 16
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
#else
    const __m256 half = x;
#endif
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* The sum of the lanes of four vectors, each as v_sum adds them. */
CPU_INLINE void v_sum4(vf a, vf b, vf c, vf d, float *out)
{
#if VL == 16
    const vf ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    const vf cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    const vf fours = /* a, b, c, d: four lanes of each */
        _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    const __m256 low = _mm512_castps512_ps256(fours), high = _mm512_extractf32x8_ps(fours, 1);
#else
    const __m256 low =
        _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    const __m256 high =
        _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
#endif
    const __m128 fa = _mm256_castps256_ps128(low), fb = _mm256_extractf128_ps(low, 1);
    const __m128 fc = _mm256_castps256_ps128(high), fd = _mm256_extractf128_ps(high, 1);
    const __m128 two_ab = _mm_add_ps(_mm_movelh_ps(fa, fb), _mm_movehl_ps(fb, fa));
    const __m128 two_cd = _mm_add_ps(_mm_movelh_ps(fc, fd), _mm_movehl_ps(fd, fc));
    _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(two_ab, two_cd, 0x88),
                                  _mm_shuffle_ps(two_ab, two_cd, 0xdd)));
}

#endif
