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
#include "shared/codec_avx2.h"
#include "shared/codec_tables.h"

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

static void decode_block(const uint8_t *bytes, const float *map, float scale, void *out,
                         int32_t dtype)
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

void nf4_decode_blocks(const void *const *planes, int nested, int64_t first, int64_t n, void *out,
                       int32_t dtype)
{
    const uint8_t *const bytes = planes[NF4_WEIGHT];
    const int64_t block_bytes = NF4_BLOCK * lathe_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++)
        decode_block(bytes + (first + i) * (NF4_BLOCK / 2), planes[NF4_MAP],
                     nf4_scale(planes, nested, first + i), (char *)out + i * block_bytes, dtype);
}

static void code_values(const void *const *planes, int nested, int64_t first, int64_t n,
                        float *values, int32_t dtype)
{
    const float *const map = planes[NF4_MAP];
    for (int64_t i = 0; i < n * 16; i++) {
        const float x = map[i % 16] * nf4_scale(planes, nested, first + i / 16);
        values[i] = dtype == LATHE_F32    ? x
                    : dtype == LATHE_BF16 ? lathe_bf16_to_f32(lathe_f32_to_bf16(x))
                                          : lathe_f16_to_f32(lathe_f32_to_f16(x));
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

/* A shuffle selects the bytes of the 16 possible products. */
AVX2 static inline void halves_avx2(const uint8_t *bytes, const float *map, float scale,
                                    uint16_t *y, int32_t dtype)
{
    __m128i table[2];
    tables_of(map, scale, dtype, table);
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

AVX2 void nf4_decode_blocks_avx2(const void *const *planes, int nested, int64_t first, int64_t n,
                                 void *out, int32_t dtype)
{
    const uint8_t *const bytes = planes[NF4_WEIGHT];
    const float *const map = planes[NF4_MAP];
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *const from = bytes + (first + i) * (NF4_BLOCK / 2);
        const float scale = nf4_scale(planes, nested, first + i);
        if (dtype == LATHE_F32)
            eight_nibbles(map, scale, from, NF4_BLOCK, 1, (float *)out + i * NF4_BLOCK);
        else
            halves_avx2(from, map, scale, (uint16_t *)out + i * NF4_BLOCK, dtype);
    }
}

CODEC_WIDE_BODY void wide_blocks(const void *const *planes, int nested, int64_t first, int64_t n,
                                 void *out, int32_t dtype)
{
    const uint8_t *const bytes = (const uint8_t *)planes[NF4_WEIGHT] + first * (NF4_BLOCK / 2);
    const __m512 map = _mm512_loadu_ps((const float *)planes[NF4_MAP]);
    const int64_t width = dtype == LATHE_F32 ? 4 : 2;
    for (int64_t i = 0; i < n; i++) {
        const __m512 scale = _mm512_set1_ps(nf4_scale(planes, nested, first + i));
        const wide_table t = wide_table_of(_mm512_mul_ps(map, scale), dtype);
        wide_bits(&t, bytes + i * (NF4_BLOCK / 2), NF4_BLOCK, 4, 1,
                  (char *)out + i * NF4_BLOCK * width, dtype);
    }
}

CODEC_WIDE void nf4_decode_blocks_avx512(const void *const *planes, int nested, int64_t first,
                                         int64_t n, void *out, int32_t dtype)
{
    if (dtype == LATHE_F32)
        wide_blocks(planes, nested, first, n, out, LATHE_F32);
    else if (dtype == LATHE_BF16)
        wide_blocks(planes, nested, first, n, out, LATHE_BF16);
    else
        wide_blocks(planes, nested, first, n, out, LATHE_F16);
}

/* map[at] of 256 values: faster than a gather. */
CODEC_WIDE_BODY __m512 wide_look_up(const float *map, __m512i at)
{
    const __mmask16 odd = _mm512_test_epi32_mask(at, _mm512_set1_epi32(32));
    const __mmask16 second = _mm512_test_epi32_mask(at, _mm512_set1_epi32(64));
    const __mmask16 upper = _mm512_test_epi32_mask(at, _mm512_set1_epi32(128));
    __m512 of[8]; /* 32 values each */
    for (int i = 0; i < 8; i++)
        of[i] = _mm512_permutex2var_ps(_mm512_loadu_ps(map + 32 * i), at,
                                       _mm512_loadu_ps(map + 32 * i + 16));
    for (int i = 0; i < 8; i += 2)
        of[i] = _mm512_mask_mov_ps(of[i], odd, of[i + 1]);
    return _mm512_mask_mov_ps(_mm512_mask_mov_ps(of[0], second, of[2]), upper,
                              _mm512_mask_mov_ps(of[4], second, of[6]));
}

#define SCALES_AHEAD 2048 /* blocks: the codes of their scales are prefetched */

/* nf4_scale of n blocks from `first` on, with double quantization. */
CODEC_WIDE static void wide_scales(const void *const *planes, int64_t first, int64_t n, float *out)
{
    const uint8_t *const codes = (const uint8_t *)planes[NF4_ABSMAX];
    const float *const tops = planes[NF4_NESTED_ABSMAX];
    const __m512 offset = _mm512_set1_ps(*(const float *)planes[NF4_OFFSET]);
    for (int64_t i = first, each; i < first + n; i += each) {
        const int64_t left = first + n - i, held = NF4_NESTED_BLOCK - i % NF4_NESTED_BLOCK;
        each = left < held ? left : held;
        each = each < 16 ? each : 16;
        const __mmask16 lanes = (__mmask16)((1u << each) - 1u);
        const __m128i bytes = each == 16
                                  ? _mm_loadu_si128((const __m128i *)(const void *)(codes + i))
                                  : _mm_maskz_loadu_epi8(lanes, codes + i);
        const __m512i at = _mm512_cvtepu8_epi32(bytes);
        const __m512 map = wide_look_up(planes[NF4_NESTED_MAP], at);
        _mm_prefetch((const char *)codes + i + SCALES_AHEAD, _MM_HINT_T0);
        const __m512 top = _mm512_set1_ps(tops[i / NF4_NESTED_BLOCK]);
        wide_store_lanes(out + i - first, lanes, _mm512_add_ps(_mm512_mul_ps(map, top), offset));
    }
}

CODEC_WIDE static void wide_code_values(const void *const *planes, int nested, int64_t first,
                                        int64_t n, float *values, int32_t dtype)
{
    float local[64] = {0};
    float *const room = wide_room(local);
    wide_factors f = {_mm512_loadu_ps((const float *)planes[NF4_MAP]), NULL, room, 0};
    for (int64_t i = 0, each; i < n; i += each) {
        each = n - i < 64 ? n - i : 64;
        if (nested)
            wide_scales(planes, first + i, each, room);
        else
            f.scales = (const float *)planes[NF4_ABSMAX] + first + i;
        if (dtype == LATHE_BF16)
            wide_products(&f, each, values + 16 * i, 16, LATHE_BF16);
        else
            wide_products(&f, each, values + 16 * i, 16, dtype);
    }
}

void nf4_scales(int build, const void *const *planes, int nested, int64_t first, int64_t n,
                float *scales)
{
    if (!nested)
        memcpy(scales, (const float *)planes[NF4_ABSMAX] + first, (size_t)n * sizeof *scales);
    else if (build == NF4_AVX512)
        wide_scales(planes, first, n, scales);
    else
        for (int64_t i = 0; i < n; i++)
            scales[i] = nf4_scale(planes, nested, first + i);
}

void nf4_code_values(int build, const void *const *planes, int nested, int64_t first, int64_t n,
                     float *values, int32_t dtype)
{
    if (build == NF4_AVX512)
        wide_code_values(planes, nested, first, n, values, dtype);
    else
        code_values(planes, nested, first, n, values, dtype);
}
#else
void nf4_scales(int build, const void *const *planes, int nested, int64_t first, int64_t n,
                float *scales)
{
    (void)build;
    for (int64_t i = 0; i < n; i++)
        scales[i] = nf4_scale(planes, nested, first + i);
}

void nf4_code_values(int build, const void *const *planes, int nested, int64_t first, int64_t n,
                     float *values, int32_t dtype)
{
    (void)build;
    code_values(planes, nested, first, n, values, dtype);
}

float nf4_encode_block_avx512(const float *w, int64_t count, int last, uint8_t *codes)
{
    return nf4_encode_block(w, count, last, codes);
}

void nf4_decode_blocks_avx2(const void *const *planes, int nested, int64_t first, int64_t n,
                            void *out, int32_t dtype)
{
    nf4_decode_blocks(planes, nested, first, n, out, dtype);
}

void nf4_decode_blocks_avx512(const void *const *planes, int nested, int64_t first, int64_t n,
                              void *out, int32_t dtype)
{
    nf4_decode_blocks(planes, nested, first, n, out, dtype);
}
#endif
