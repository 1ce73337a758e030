/* The inner loops of decoding, for AVX-512: what compilers do not find by themselves. Each has the
 * bits of the portable code that its comment names. */
#ifndef LATHE_CODEC_AVX512_H
#define LATHE_CODEC_AVX512_H

#include "shared/small_float.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define CODEC_WIDE __attribute__((target("avx512f,avx512bw,avx512vl,f16c"), unused))

/** A mask for the first n < 16 of 16 lanes. */
CODEC_WIDE static inline __mmask16 wide_lanes(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

/** Stores the lanes; whole vectors without a mask, which processors of AMD store several times as
 *  fast and can load from at once. */
CODEC_WIDE static inline __attribute__((always_inline)) void
wide_store_lanes(float *out, __mmask16 lanes, __m512 x)
{
    if (lanes == 0xffff)
        _mm512_storeu_ps(out, x);
    else
        _mm512_mask_storeu_ps(out, lanes, x);
}

/** Like wide_store_lanes, for values of 16 bits. */
CODEC_WIDE static inline __attribute__((always_inline)) void
wide_store_halves(void *out, __mmask16 lanes, __m256i x)
{
    if (lanes == 0xffff)
        _mm256_storeu_si256(out, x);
    else
        _mm256_mask_storeu_epi16(out, lanes, x);
}

/** Loads bytes as lanes of 32 bits; whole vectors without a mask. */
CODEC_WIDE static inline __attribute__((always_inline)) __m512i
wide_load_bytes(const uint8_t *bytes, __mmask16 lanes)
{
    return _mm512_cvtepu8_epi32(lanes == 0xffff
                                    ? _mm_loadu_si128((const __m128i *)(const void *)bytes)
                                    : _mm_maskz_loadu_epi8(lanes, bytes));
}

CODEC_WIDE static inline __attribute__((always_inline)) void
wide_to_bf16_16(const float *x, uint16_t *out, __mmask16 lanes)
{
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff);
    const __m512 value = _mm512_maskz_loadu_ps(lanes, x);
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, half));
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    sum = _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x00400000));
    wide_store_halves(out, lanes, _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16)));
}

/* Rounds 16 finite values to bf16, which are then in the upper halves. */
CODEC_WIDE static inline __m512i wide_bf16_sum(__m512 value)
{
    const __m512i bits = _mm512_castps_si512(value);
    const __mmask16 is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    return _mm512_mask_add_epi32(sum, is_odd, sum, _mm512_set1_epi32(1));
}

/* The odd 16-bit lanes of one register, then those of another. */
CODEC_WIDE static inline __m512i wide_upper_lanes(void)
{
    uint16_t lanes[32];
    for (int k = 0; k < 32; k++)
        lanes[k] = (uint16_t)(2 * k + 1);
    return _mm512_loadu_si512(lanes);
}

/** lathe_f32_to_bf16 of n values. */
CODEC_WIDE static void wide_to_bf16(const float *x, int64_t n, uint16_t *out)
{
    int64_t i = 0;
    const __m512i upper = wide_upper_lanes();
    for (; i + 32 <= n; i += 32) {
        const __m512 a = _mm512_loadu_ps(x + i), b = _mm512_loadu_ps(x + i + 16);
        if (_mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) != 0) {
            wide_to_bf16_16(x + i, out + i, 0xffff);
            wide_to_bf16_16(x + i + 16, out + i + 16, 0xffff);
            continue;
        }
        _mm512_storeu_si512(out + i,
                            _mm512_permutex2var_epi16(wide_bf16_sum(a), upper, wide_bf16_sum(b)));
    }
    for (; i + 16 <= n; i += 16)
        wide_to_bf16_16(x + i, out + i, 0xffff);
    if (i < n)
        wide_to_bf16_16(x + i, out + i, wide_lanes(n - i));
}

CODEC_WIDE static inline __attribute__((always_inline)) void
wide_to_f16_16(const float *x, uint16_t *out, __mmask16 lanes)
{
    const __m512 value = _mm512_maskz_loadu_ps(lanes, x);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(value), 31);
    const __m512i bad = _mm512_or_si512(_mm512_slli_epi32(sign, 15), _mm512_set1_epi32(0x7e00));
    const __m256i rounded = _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    wide_store_halves(out, lanes, _mm256_mask_mov_epi16(rounded, nan, _mm512_cvtepi32_epi16(bad)));
}

/** lathe_f32_to_f16 of n values. */
CODEC_WIDE static void wide_to_f16(const float *x, int64_t n, uint16_t *out)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 value = _mm512_loadu_ps(x + i);
        if (_mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q) != 0)
            wide_to_f16_16(x + i, out + i, 0xffff);
        else
            _mm256_storeu_si256((__m256i *)(void *)(out + i),
                                _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
    if (i < n)
        wide_to_f16_16(x + i, out + i, wide_lanes(n - i));
}

CODEC_WIDE static inline __attribute__((always_inline)) void
wide_e4m3_16(const uint8_t *codes, float scale, float *out, __mmask16 lanes)
{
    const __m512 by = _mm512_set1_ps(scale), up = _mm512_set1_ps(256.0f);
    const __m256i code = _mm256_cvtepu8_epi16(_mm_maskz_loadu_epi8(lanes, codes));
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x80)), 8);
    const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi16(0x7f));
    __m256i half = _mm256_or_si256(sign, _mm256_slli_epi16(magnitude, 7));
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
    half = _mm256_mask_mov_epi16(half, nan, _mm256_or_si256(sign, _mm256_set1_epi16(0x7e00)));
    const __m512 value = _mm512_mul_ps(_mm512_cvtph_ps(half), up);
    wide_store_lanes(out, lanes, _mm512_mul_ps(value, by));
}

/* 16 codes in the upper bytes of 16 bits to f16, of which they are 2^-8 times the value; NaN codes
 * are not seen. */
CODEC_WIDE static inline __m256i wide_e4m3_half(__m256i upper)
{
    return _mm256_and_si256(_mm256_srai_epi16(upper, 1), _mm256_set1_epi16((short)0xbfff));
}

/** small_e4m3(code) * scale of n codes: through f16, whose exponent has one bit more. */
CODEC_WIDE static void wide_e4m3(const uint8_t *codes, int64_t n, float scale, float *out)
{
    const __m512i all = _mm512_set1_epi8(0x7f);
    /* the values times 256 and then times the scale are the same, unless 256 * scale overflows */
    const int is_small = scale > -0x1p119f && scale < 0x1p119f;
    const __m512 by = _mm512_set1_ps(scale * 256.0f);
    int64_t i = 0;
    for (; is_small && i + 64 <= n; i += 64) {
        const __m512i code = _mm512_loadu_si512(codes + i);
        if (_mm512_cmpeq_epi8_mask(_mm512_and_si512(code, all), all) != 0) {
            for (int64_t k = i; k < i + 64; k += 16)
                wide_e4m3_16(codes + k, scale, out + k, 0xffff);
            continue;
        }
        for (int k = 0; k < 64; k += 16) {
            const __m128i part = _mm_loadu_si128((const __m128i *)(const void *)(codes + i + k));
            const __m256i upper = _mm256_slli_epi16(_mm256_cvtepu8_epi16(part), 8);
            _mm512_storeu_ps(out + i + k,
                             _mm512_mul_ps(_mm512_cvtph_ps(wide_e4m3_half(upper)), by));
        }
    }
    for (; i + 16 <= n; i += 16)
        wide_e4m3_16(codes + i, scale, out + i, 0xffff);
    if (i < n)
        wide_e4m3_16(codes + i, scale, out + i, wide_lanes(n - i));
}

/** small_e2m1(code) * scale + zero of n codes, a multiple of 16, two per byte with the first in
 *  the low nibble; one scale for each `group`, a multiple of 16. */
CODEC_WIDE static void wide_e2m1(const uint8_t *bytes, int64_t n, int64_t group,
                                 const float *scales, float zero, float *out)
{
    const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f,
                                         -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    const __m512 plus = _mm512_set1_ps(zero);
    const __m512i shifts =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    for (int64_t i = 0; i < n; i += 16) {
        int32_t low, high;
        memcpy(&low, bytes + i / 2, sizeof low);
        memcpy(&high, bytes + i / 2 + 4, sizeof high);
        const __m512i both = _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xff00, high);
        const __m512i codes = _mm512_srlv_epi32(both, shifts);
        const __m512 scale = _mm512_set1_ps(scales[i / group]);
        const __m512 value = _mm512_mul_ps(_mm512_permutexvar_ps(codes, values), scale);
        _mm512_storeu_ps(out + i, _mm512_add_ps(value, plus));
    }
}

#else /* the build for AVX-512 is never chosen */

static inline void wide_to_bf16(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = lathe_f32_to_bf16(x[i]);
}

static inline void wide_to_f16(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = lathe_f32_to_f16(x[i]);
}

static inline void wide_e4m3(const uint8_t *codes, int64_t n, float scale, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = small_e4m3(codes[i]) * scale;
}

static inline void wide_e2m1(const uint8_t *bytes, int64_t n, int64_t group, const float *scales,
                             float zero, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] =
            small_e2m1(i % 2 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15u) * scales[i / group] + zero;
}

#endif

#endif
