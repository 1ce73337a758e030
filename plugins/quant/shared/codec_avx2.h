/* The inner loops of decoding, for AVX2 with F16C: those for which compilers find no good code.
 * Each has the bits of the portable code that its comment names. */
#ifndef LATHE_CODEC_AVX2_H
#define LATHE_CODEC_AVX2_H

#include "shared/small_float.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define CODEC_EIGHT __attribute__((target("avx2,f16c"), unused))

/* Rounds 8 finite values to bf16, which are then in the lower halves. */
CODEC_EIGHT static inline __attribute__((always_inline)) __m256i eight_bf16(__m256 value)
{
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    return _mm256_srli_epi32(sum, 16);
}

/** lathe_f32_to_bf16 of n values. */
CODEC_EIGHT static void eight_to_bf16(const float *x, int64_t n, uint16_t *out)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        if (_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0) {
            for (int k = 0; k < 16; k++)
                out[i + k] = lathe_f32_to_bf16(x[i + k]);
            continue;
        }
        const __m256i both = _mm256_packus_epi32(eight_bf16(a), eight_bf16(b));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_permute4x64_epi64(both, 0xd8));
    }
    for (; i < n; i++)
        out[i] = lathe_f32_to_bf16(x[i]);
}

/** lathe_f32_to_f16 of n values. */
CODEC_EIGHT static void eight_to_f16(const float *x, int64_t n, uint16_t *out)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 value = _mm256_loadu_ps(x + i);
        if (_mm256_movemask_ps(_mm256_cmp_ps(value, value, _CMP_UNORD_Q)) != 0)
            for (int k = 0; k < 8; k++) /* the instruction keeps more of a NaN */
                out[i + k] = lathe_f32_to_f16(x[i + k]);
        else
            _mm_storeu_si128((__m128i *)(void *)(out + i),
                             _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < n; i++)
        out[i] = lathe_f32_to_f16(x[i]);
}

/** Rounds n finite values to f16 and back. */
CODEC_EIGHT static void eight_round_f16(float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(half));
    }
    for (; i < n; i++)
        x[i] = lathe_f16_to_f32(lathe_f32_to_f16(x[i]));
}

/** out[i] = table[code], where code is `bits` <= 4 bits from `shift` on of bytes[i], or of words[i]
 *  if there are any. */
CODEC_EIGHT static void eight_look_up(const float table[16], const uint8_t *bytes,
                                      const uint32_t *words, int64_t n, int bits, int shift,
                                      float *out)
{
    const __m256 low = _mm256_loadu_ps(table), high = _mm256_loadu_ps(table + 8);
    const __m256i mask = _mm256_set1_epi32((1 << bits) - 1);
    const __m128i by = _mm_cvtsi32_si128(shift);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i raw =
            words != NULL
                ? _mm256_loadu_si256((const __m256i *)(const void *)(words + i))
                : _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(bytes + i)));
        const __m256i code = _mm256_and_si256(_mm256_srl_epi32(raw, by), mask);
        /* the highest bit of a lane chooses the upper half of the table */
        const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28));
        _mm256_storeu_ps(out + i, _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, code),
                                                   _mm256_permutevar8x32_ps(high, code), upper));
    }
    for (; i < n; i++)
        out[i] = table[(words != NULL ? words[i] : bytes[i]) >> shift & ((1u << bits) - 1u)];
}

/** out[i] = table[code] * scale of n codes, a multiple of 8, two per byte; is_high_first: the first
 * is in the high nibble. */
CODEC_EIGHT static void eight_nibbles(const float table[16], float scale, const uint8_t *bytes,
                                      int64_t n, int is_high_first, float *out)
{
    const __m256 by = _mm256_set1_ps(scale);
    const __m256 low = _mm256_mul_ps(_mm256_loadu_ps(table), by);
    const __m256 high = _mm256_mul_ps(_mm256_loadu_ps(table + 8), by);
    const __m256i lane = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i shifts = _mm256_xor_si256(lane, _mm256_set1_epi32(is_high_first ? 4 : 0));
    for (int64_t i = 0; i < n; i += 8) {
        int32_t packed;
        memcpy(&packed, bytes + i / 2, sizeof packed);
        const __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32(packed), shifts);
        /* the highest bit of a lane chooses the upper half of the table */
        const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28));
        _mm256_storeu_ps(out + i, _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, code),
                                                   _mm256_permutevar8x32_ps(high, code), upper));
    }
}

/** small_e2m1(code) * scale + zero of n codes, a multiple of 16, two per byte with the first in the
 *  low nibble; one scale for each `group`, a multiple of 16. */
CODEC_EIGHT static void eight_e2m1(const uint8_t *bytes, int64_t n, int64_t group,
                                   const float *scales, float zero, float *out)
{
    const __m256 low = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256 plus = _mm256_set1_ps(zero);
    for (int64_t i = 0; i < n; i += 8) {
        int32_t packed;
        memcpy(&packed, bytes + i / 2, sizeof packed);
        const __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32(packed), shifts);
        const __m256i sign =
            _mm256_and_si256(_mm256_slli_epi32(code, 28), _mm256_set1_epi32(INT32_MIN));
        const __m256 value =
            _mm256_xor_ps(_mm256_permutevar8x32_ps(low, code), _mm256_castsi256_ps(sign));
        const __m256 scaled = _mm256_mul_ps(value, _mm256_set1_ps(scales[i / group]));
        _mm256_storeu_ps(out + i, _mm256_add_ps(scaled, plus));
    }
}

/** small_e4m3(code) * scale of n codes: through f16, whose exponent has one bit more. */
CODEC_EIGHT static void eight_e4m3(const uint8_t *codes, int64_t n, float scale, float *out)
{
    const __m128i all = _mm_set1_epi8(0x7f);
    const int is_small = scale > -0x1p119f && scale < 0x1p119f; /* else 256 * scale overflows */
    const __m256 by = _mm256_set1_ps(scale * 256.0f);
    int64_t i = 0;
    for (; is_small && i + 16 <= n; i += 16) {
        const __m128i code = _mm_loadu_si128((const __m128i *)(const void *)(codes + i));
        if (_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(code, all), all)) != 0) {
            for (int64_t k = i; k < i + 16; k++) /* NaN */
                out[k] = small_e4m3(codes[k]) * scale;
            continue;
        }
        const __m256i upper = _mm256_slli_epi16(_mm256_cvtepu8_epi16(code), 8);
        const __m256i half =
            _mm256_and_si256(_mm256_srai_epi16(upper, 1), _mm256_set1_epi16((short)0xbfff));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), by));
        _mm256_storeu_ps(out + i + 8,
                         _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), by));
    }
    for (; i < n; i++)
        out[i] = small_e4m3(codes[i]) * scale;
}

#else /* the build for AVX2 is never chosen */

static inline void eight_to_bf16(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = lathe_f32_to_bf16(x[i]);
}

static inline void eight_to_f16(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = lathe_f32_to_f16(x[i]);
}

static inline void eight_round_f16(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = lathe_f16_to_f32(lathe_f32_to_f16(x[i]));
}

static inline void eight_look_up(const float table[16], const uint8_t *bytes, const uint32_t *words,
                                 int64_t n, int bits, int shift, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = table[(words != NULL ? words[i] : bytes[i]) >> shift & ((1u << bits) - 1u)];
}

static inline void eight_nibbles(const float table[16], float scale, const uint8_t *bytes,
                                 int64_t n, int is_high_first, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = table[bytes[i / 2] >> ((i % 2 != 0) != (is_high_first != 0) ? 4 : 0) & 15] * scale;
}

static inline void eight_e2m1(const uint8_t *bytes, int64_t n, int64_t group, const float *scales,
                              float zero, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] =
            small_e2m1(i % 2 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15u) * scales[i / group] + zero;
}

static inline void eight_e4m3(const uint8_t *codes, int64_t n, float scale, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = small_e4m3(codes[i]) * scale;
}

#endif

#endif
