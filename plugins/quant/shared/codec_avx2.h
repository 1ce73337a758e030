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

#endif

#endif
