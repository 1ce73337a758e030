/* hqq's decode of one group for AVX-512, with the bits of the portable loop in hqq.c. */
#ifndef LATHE_HQQ_AVX512_H
#define LATHE_HQQ_AVX512_H

#include "hqq.h"
#include "shared/codec_tables.h"

#if defined(__x86_64__)

/* hqq_rounded of 16 finite values. */
CODEC_WIDE static inline __attribute__((always_inline)) __m512 wide_rounded(__m512 x, int32_t dtype)
{
    if (dtype == LATHE_F32)
        return x;
    if (dtype == LATHE_F16)
        return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32(-65536)));
}

/* The values of 16 codes. */
CODEC_WIDE static inline __attribute__((always_inline)) __m512
wide_values(__m512i codes, float zero, float scale, int32_t dtype)
{
    const __m512 moved = _mm512_sub_ps(_mm512_cvtepi32_ps(codes), _mm512_set1_ps(zero));
    return wide_rounded(_mm512_mul_ps(wide_rounded(moved, dtype), _mm512_set1_ps(scale)), dtype);
}

/** Decodes n codes of eight bits to `dtype`. */
CODEC_WIDE_BODY void wide_group_bytes(const uint8_t *bytes, int64_t n, float zero, float scale,
                                      int32_t compute_dtype, void *out, int32_t dtype)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = n - i < 16 ? wide_lanes(n - i) : 0xffff;
        const __m512i codes = wide_load_bytes(bytes + i, lanes);
        wide_store_values(wide_values(codes, zero, scale, compute_dtype), out, i, lanes, dtype);
    }
}

/** Decodes n codes of up to four bits, in bytes or in words if there are any, to `dtype`: the
 * values of all codes are computed once, and then looked up. */
CODEC_WIDE_BODY void wide_group_table(const uint8_t *bytes, const uint32_t *words, int64_t n,
                                      int bits, int shift, float zero, float scale,
                                      int32_t compute_dtype, void *out, int32_t dtype)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i code = _mm512_and_si512(lane, _mm512_set1_epi32((1 << bits) - 1));
    const __m512 values = compute_dtype == LATHE_F16   ? wide_values(code, zero, scale, LATHE_F16)
                          : compute_dtype == LATHE_F32 ? wide_values(code, zero, scale, LATHE_F32)
                                                       : wide_values(code, zero, scale, LATHE_BF16);
    const wide_table t = wide_table_of(values, dtype);
    if (dtype == LATHE_F32)
        wide_picks(&t, bytes, words, n, shift, out, LATHE_F32);
    else
        wide_picks(&t, bytes, words, n, shift, out, dtype);
}

/* Scales or zero points of up to 16 groups from `group` on. */
CODEC_WIDE_BODY __m512 wide_parameters(const void *plane, int64_t group, __mmask16 lanes,
                                       int32_t dtype)
{
    if (dtype == LATHE_F32)
        return _mm512_maskz_loadu_ps(lanes, (const float *)plane + group);
    const uint16_t *const from = (const uint16_t *)plane + group;
    /* loads with a mask are slow on processors of AMD */
    const __m256i halves = lanes == 0xffff ? _mm256_loadu_si256((const __m256i *)(const void *)from)
                                           : _mm256_maskz_loadu_epi16(lanes, from);
    if (dtype == LATHE_F16)
        return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/** values [n][16]: those of the codes of n groups from `first` on, rounded to dtype. */
CODEC_WIDE_BODY void wide_group_values(const hqq *q, const void *const *planes, int64_t first,
                                       int64_t n, float *values, int32_t compute_dtype,
                                       int32_t dtype)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i code = _mm512_and_si512(lane, _mm512_set1_epi32((1 << q->bits) - 1));
    for (int64_t i = 0; i < n; i += 16) {
        const int64_t each = n - i < 16 ? n - i : 16;
        const __mmask16 lanes = each < 16 ? wide_lanes(each) : 0xffff;
        const __m512 zero = wide_parameters(planes[HQQ_ZERO], first + i, lanes, compute_dtype);
        const __m512 scale = wide_parameters(planes[HQQ_SCALE], first + i, lanes, compute_dtype);
        /* a number less itself is NaN if it is not finite */
        const __mmask16 odd = _mm512_cmp_ps_mask(_mm512_sub_ps(zero, zero),
                                                 _mm512_sub_ps(scale, scale), _CMP_UNORD_Q);
        for (int32_t k = 0; k < each; k++) {
            const __m512i at = _mm512_set1_epi32(k);
            const float one_zero = _mm512_cvtss_f32(_mm512_permutexvar_ps(at, zero));
            const float one_scale = _mm512_cvtss_f32(_mm512_permutexvar_ps(at, scale));
            const __m512 made = wide_values(code, one_zero, one_scale, compute_dtype);
            const __m512 rounded = dtype == LATHE_BF16 && odd == 0
                                       ? _mm512_castsi512_ps(_mm512_and_si512(
                                             wide_bf16_sum(made), _mm512_set1_epi32(-65536)))
                                       : wide_rounded_to(made, dtype);
            _mm512_storeu_ps(values + (i + k) * 16, rounded);
        }
    }
}

#endif

#endif
