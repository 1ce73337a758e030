/* hqq's decode of one group for AVX-512, with the bits of the portable loop in hqq.c. */
#ifndef LATHE_HQQ_AVX512_H
#define LATHE_HQQ_AVX512_H

#include "hqq_kernel.h"
#include "shared/codec_avx512.h"

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

/* 16 codes, from bytes or from words if there are any. */
CODEC_WIDE static inline __attribute__((always_inline)) __m512i
wide_codes(const uint8_t *bytes, const uint32_t *words, int64_t i, __mmask16 lanes, __m128i shift,
           __m512i mask)
{
    const __m512i raw = words != NULL
                            ? _mm512_maskz_loadu_epi32(lanes, words + i)
                            : _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lanes, bytes + i));
    return _mm512_and_si512(_mm512_srl_epi32(raw, shift), mask);
}

/* The values of 16 codes. */
CODEC_WIDE static inline __attribute__((always_inline)) __m512
wide_values(__m512i codes, float zero, float scale, int32_t dtype)
{
    const __m512 moved = _mm512_sub_ps(_mm512_cvtepi32_ps(codes), _mm512_set1_ps(zero));
    return wide_rounded(_mm512_mul_ps(wide_rounded(moved, dtype), _mm512_set1_ps(scale)), dtype);
}

/* Up to 4 bits, the values of all codes are computed once, and then looked up. */
CODEC_WIDE static inline __attribute__((always_inline)) void
wide_group_as(const uint8_t *bytes, const uint32_t *words, int64_t n, int bits, int shift,
              float zero, float scale, float *out, int32_t dtype)
{
    const __m512i mask = _mm512_set1_epi32((1 << bits) - 1);
    const __m128i by = _mm_cvtsi32_si128(shift);
    const __m512i all = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 table = wide_values(all, zero, scale, dtype);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = n - i < 16 ? wide_lanes(n - i) : 0xffff;
        const __m512i codes = wide_codes(bytes, words, i, lanes, by, mask);
        const __m512 value = bits <= 4 ? _mm512_permutexvar_ps(codes, table)
                                       : wide_values(codes, zero, scale, dtype);
        _mm512_mask_storeu_ps(out + i, lanes, value);
    }
}

/** Decodes n codes that lie in bytes, or in words if there are any. */
CODEC_WIDE static void wide_group(const uint8_t *bytes, const uint32_t *words, int64_t n, int bits,
                                  int shift, float zero, float scale, float *out, int32_t dtype)
{
    if (dtype == LATHE_F32)
        wide_group_as(bytes, words, n, bits, shift, zero, scale, out, LATHE_F32);
    else if (dtype == LATHE_F16)
        wide_group_as(bytes, words, n, bits, shift, zero, scale, out, LATHE_F16);
    else
        wide_group_as(bytes, words, n, bits, shift, zero, scale, out, LATHE_BF16);
}

#else /* the build for AVX-512 is never chosen */

static inline void wide_group(const uint8_t *bytes, const uint32_t *words, int64_t n, int bits,
                              int shift, float zero, float scale, float *out, int32_t dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t code = (words != NULL ? words[i] : bytes[i]) >> shift & ((1u << bits) - 1u);
        const float moved = hqq_rounded((float)(int32_t)code - zero, dtype);
        out[i] = hqq_rounded(moved * scale, dtype);
    }
}

#endif

#endif
