/* Encodes and decodes blocks of 64 floats as 4-bit codes: a portable version, and others for AVX2
 * (decoding) and AVX-512.
 *
 * A code is the number of midpoints between neighbouring map values that are below x/absmax, so a
 * value on a midpoint gets the lower code. As in bitsandbytes' reference, a whole block is
 * multiplied by 1/absmax, but a short last block is divided by absmax, which is then at least
 * 1e-38.
 */
#include <string.h>

#include "nf4.h"

#define FLOOR 1e-38f

static inline __attribute__((always_inline)) float encode_body(const float *w, int64_t count,
                                                               int last, uint8_t *codes)
{
    float scaled[NF4_BLOCK], bounds[15];
    int32_t q[NF4_BLOCK] = {0};
    uint32_t bits[NF4_BLOCK], top = 0;
    memset(scaled, 0, sizeof scaled);
    memset(bits, 0, sizeof bits);
    memcpy(bits, w, (size_t)count * sizeof *w);
    /* Magnitudes have the same order as their bits; infinity and NaN are above all others. */
    for (int i = 0; i < NF4_BLOCK; i++) {
        const uint32_t magnitude = bits[i] & 0x7fffffffu;
        top = magnitude > top ? magnitude : top;
    }
    if (top >= 0x7f800000u)
        return -1.0f;
    float absmax;
    memcpy(&absmax, &top, sizeof absmax);
    const float divisor = absmax < FLOOR ? FLOOR : absmax, inverse = 1.0f / divisor;
    for (int j = 0; j < 15; j++)
        bounds[j] = (nf4_map[j] + nf4_map[j + 1]) / 2.0f;
    memcpy(scaled, w, (size_t)count * sizeof *w);
    if (last)
        for (int i = 0; i < NF4_BLOCK; i++)
            scaled[i] = scaled[i] / divisor;
    else
        for (int i = 0; i < NF4_BLOCK; i++)
            scaled[i] = scaled[i] * inverse;
    for (int j = 0; j < 15; j++)
        for (int i = 0; i < NF4_BLOCK; i++)
            q[i] += scaled[i] > bounds[j];
    for (int i = 0; i < NF4_BLOCK; i++)
        codes[i] = (uint8_t)q[i];
    return last ? divisor : absmax;
}

float nf4_encode_block(const float *w, int64_t count, int last, uint8_t *codes)
{
    return encode_body(w, count, last, codes);
}

void nf4_decode_block(const uint8_t *bytes, const float *map, float scale, void *out, int32_t dtype)
{
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = map[i] * scale;
    if (dtype == LATHE_F32) {
        float *y = out;
        for (int i = 0; i < NF4_BLOCK / 2; i++) {
            y[2 * i] = values[bytes[i] >> 4];
            y[2 * i + 1] = values[bytes[i] & 15];
        }
        return;
    }
    uint16_t halves[16], *y = out;
    for (int i = 0; i < 16; i++)
        halves[i] =
            dtype == LATHE_BF16 ? lathe_f32_to_bf16(values[i]) : lathe_f32_to_f16(values[i]);
    for (int i = 0; i < NF4_BLOCK / 2; i++) {
        y[2 * i] = halves[bytes[i] >> 4];
        y[2 * i + 1] = halves[bytes[i] & 15];
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,f16c")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512")))

AVX512 float nf4_encode_block_avx512(const float *w, int64_t count, int last, uint8_t *codes)
{
    return encode_body(w, count, last, codes);
}

/* The 16 possible products of a block as f16 or bf16, their lower and upper bytes apart. */
AVX2 static inline void tables_of(const float *map, float scale, int32_t dtype, __m128i out[2])
{
    const __m256 by = _mm256_set1_ps(scale);
    __m128i eight[2];
    for (int i = 0; i < 2; i++) {
        const __m256 value = _mm256_mul_ps(_mm256_loadu_ps(map + 8 * i), by);
        if (dtype == LATHE_F16) {
            eight[i] = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
            continue;
        } /* bf16 is computed on the bits, as lathe_f32_to_bf16; values are finite */
        const __m256i raw = _mm256_castps_si256(value);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(raw, 16), _mm256_set1_epi32(1));
        const __m256i sum = _mm256_srli_epi32(
            _mm256_add_epi32(raw, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
        eight[i] = _mm_packus_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    }
    const __m128i byte = _mm_set1_epi16(255);
    out[0] = _mm_packus_epi16(_mm_and_si128(eight[0], byte), _mm_and_si128(eight[1], byte));
    out[1] = _mm_packus_epi16(_mm_srli_epi16(eight[0], 8), _mm_srli_epi16(eight[1], 8));
}

/* As the version below; a shuffle selects the bytes. f32 would need four of them, and is bound by
 * its writes. */
AVX2 void nf4_decode_block_avx2(const uint8_t *bytes, const float *map, float scale, void *out,
                                int32_t dtype)
{
    __m128i table[2];
    if (dtype == LATHE_F32) {
        nf4_decode_block(bytes, map, scale, out, dtype);
        return;
    }
    tables_of(map, scale, dtype, table);
    uint16_t *y = out;
    for (int i = 0; i < NF4_BLOCK / 2; i += 16) {
        const __m128i packed = _mm_loadu_si128((const __m128i *)(const void *)(bytes + i));
        const __m128i low = _mm_and_si128(packed, _mm_set1_epi8(15));
        const __m128i high = _mm_and_si128(_mm_srli_epi16(packed, 4), _mm_set1_epi8(15));
        const __m128i codes[2] = {_mm_unpacklo_epi8(high, low), _mm_unpackhi_epi8(high, low)};
        for (int k = 0; k < 2; k++) {
            const __m128i a = _mm_shuffle_epi8(table[0], codes[k]);
            const __m128i b = _mm_shuffle_epi8(table[1], codes[k]);
            __m128i *const to = (__m128i *)(void *)(y + 2 * i + 16 * k);
            _mm_storeu_si128(to, _mm_unpacklo_epi8(a, b));
            _mm_storeu_si128(to + 1, _mm_unpackhi_epi8(a, b));
        }
    }
}

/* Computes the 16 possible products of a block once; a permute then selects one per code. */
AVX512 void nf4_decode_block_avx512(const uint8_t *bytes, const float *map, float scale, void *out,
                                    int32_t dtype)
{
    const __m512 values = _mm512_mul_ps(_mm512_loadu_ps(map), _mm512_set1_ps(scale));
    const __m256i packed = _mm256_loadu_si256((const __m256i *)(const void *)bytes);
    const __m256i low = _mm256_and_si256(packed, _mm256_set1_epi8(15));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(packed, 4), _mm256_set1_epi8(15));
    /* within each 128-bit half: codes 0-15 and 16-31, 32-47 and 48-63 */
    const __m256i a = _mm256_unpacklo_epi8(high, low), b = _mm256_unpackhi_epi8(high, low);
    const __m128i quarter[4] = {_mm256_castsi256_si128(a), _mm256_castsi256_si128(b),
                                _mm256_extracti128_si256(a, 1), _mm256_extracti128_si256(b, 1)};
    if (dtype == LATHE_F32) {
        float *y = out;
        for (int i = 0; i < 4; i++)
            _mm512_storeu_ps(y + 16 * i,
                             _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(quarter[i]), values));
        return;
    }
    __m512i table;
    if (dtype == LATHE_F16) {
        table = _mm512_castsi256_si512(_mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
    } else { /* computed on the bits, as lathe_f32_to_bf16; values are finite */
        const __m512i raw = _mm512_castps_si512(values);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(raw, 16), _mm512_set1_epi32(1));
        const __m512i sum = _mm512_add_epi32(raw, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        table = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16)));
    }
    uint16_t *y = out;
    for (int i = 0; i < 4; i += 2) {
        const __m256i pair = _mm256_set_m128i(quarter[i + 1], quarter[i]);
        _mm512_storeu_si512(y + 16 * i,
                            _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(pair), table));
    }
}
#else
float nf4_encode_block_avx512(const float *w, int64_t count, int last, uint8_t *codes)
{
    return nf4_encode_block(w, count, last, codes);
}

void nf4_decode_block_avx2(const uint8_t *bytes, const float *map, float scale, void *out,
                           int32_t dtype)
{
    nf4_decode_block(bytes, map, scale, out, dtype);
}

void nf4_decode_block_avx512(const uint8_t *bytes, const float *map, float scale, void *out,
                             int32_t dtype)
{
    nf4_decode_block(bytes, map, scale, out, dtype);
}
#endif
