/* Codes of two to four bits as indices into a table of 16 values, for AVX-512: the values of a
 * group are computed, and rounded to the dtype of the weight, once per group and not once per code.
 *
 * A table repeats where codes have fewer than four bits, so that neither the bits of the next code
 * nor a mask matter. Values become bf16 and f16 as lathe_f32_to_bf16 and lathe_f32_to_f16 do.
 */
#ifndef LATHE_CODEC_TABLES_H
#define LATHE_CODEC_TABLES_H

#include "shared/codec_avx512.h"

#if defined(__x86_64__)

#define CODEC_WIDE_BODY CODEC_WIDE static inline __attribute__((always_inline))

/** The value of each code in a group. */
typedef struct wide_table {
    __m512 values;  /* [16] as f32 */
    __m512i halves; /* [16] as bf16 or f16, in the upper halves of 32 bits */
} wide_table;

CODEC_WIDE_BODY __m512i wide_upper_bf16(__m512 values)
{
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x00400000));
}

CODEC_WIDE_BODY __m512i wide_upper_f16(__m512 values)
{
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m256i half = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    const __m512i upper = _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
    const __m512i sign =
        _mm512_and_si512(_mm512_castps_si512(values), _mm512_set1_epi32(INT32_MIN));
    return _mm512_mask_or_epi32(upper, nan, sign, _mm512_set1_epi32(0x7e000000));
}

/** 16 values rounded to a dtype, as f32. */
CODEC_WIDE_BODY __m512 wide_rounded_to(__m512 values, int32_t dtype)
{
    if (dtype == LATHE_F32)
        return values;
    if (dtype == LATHE_F16)
        return _mm512_cvtph_ps(_mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
    return _mm512_castsi512_ps(
        _mm512_and_si512(wide_upper_bf16(values), _mm512_set1_epi32(-65536)));
}

/* A local array whose alignment the compiler does not know. Under AddressSanitizer GCC 12 stores
 * whole registers to local arrays by vmovaps, as if they were aligned to 64 bytes, and where uses
 * after return are detected they are not: the store crashes. */
CODEC_WIDE_BODY float *wide_room(float *room)
{
    __asm__("" : "+r"(room));
    return room;
}

/** Factors of wide_products for each of n groups: map[16], minus the group's zero if there are any,
 *  times its scale. is_exact: all products are numbers of the dtype. */
typedef struct wide_factors {
    __m512 map;
    const float *zeros, *scales; /* [n] */
    int is_exact;
} wide_factors;

CODEC_WIDE_BODY __m512 wide_product(const wide_factors *f, int64_t i)
{
    const __m512 map =
        f->zeros != NULL ? _mm512_sub_ps(f->map, _mm512_set1_ps(f->zeros[i])) : f->map;
    return _mm512_mul_ps(map, _mm512_set1_ps(f->scales[i]));
}

/** The values of the codes of n groups, rounded to a dtype, as f32; those of group i at values +
 *  i * stride. */
CODEC_WIDE_BODY void wide_products(const wide_factors *f, int64_t n, float *values, int64_t stride,
                                   int32_t dtype)
{
    for (int64_t first = 0; first < n; first += 16) {
        const int64_t left = n - first, end = left < 16 ? n : first + 16;
        const __m512 some =
            _mm512_maskz_loadu_ps(left < 16 ? wide_lanes(left) : 0xffff, f->scales + first);
        /* a number less itself is NaN if it is not finite */
        const __mmask16 odd = _mm512_cmp_ps_mask(_mm512_sub_ps(some, some),
                                                 _mm512_sub_ps(f->map, f->map), _CMP_UNORD_Q);
        if (f->is_exact || dtype != LATHE_BF16 || odd != 0) {
            for (int64_t i = first; i < end; i++) {
                const __m512 x = wide_product(f, i);
                _mm512_storeu_ps(values + i * stride, f->is_exact ? x : wide_rounded_to(x, dtype));
            }
            continue;
        }
        for (int64_t i = first; i < end; i++) { /* no product is NaN, which this would change */
            _mm512_storeu_si512(
                values + i * stride,
                _mm512_and_si512(wide_bf16_sum(wide_product(f, i)), _mm512_set1_epi32(-65536)));
        }
    }
}

CODEC_WIDE_BODY wide_table wide_table_of(__m512 values, int32_t dtype)
{
    const wide_table t = {values, dtype == LATHE_F32    ? _mm512_setzero_si512()
                                  : dtype == LATHE_BF16 ? wide_upper_bf16(values)
                                                        : wide_upper_f16(values)};
    return t;
}

/* Stores the values of 16 codes, which are the low bits of the lanes, as elements out[i ..]. */
CODEC_WIDE_BODY void wide_store16(const wide_table *t, __m512i codes, void *out, int64_t i,
                                  __mmask16 lanes, int32_t dtype)
{
    if (dtype == LATHE_F32) {
        wide_store_lanes((float *)out + i, lanes, _mm512_permutexvar_ps(codes, t->values));
        return;
    }
    const __m512i upper = _mm512_permutexvar_epi32(codes, t->halves);
    wide_store_halves((uint16_t *)out + i, lanes,
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(upper, 16)));
}

/* 16 codes of `bits` bits that begin with a byte: the first eight in four bytes, the others in the
 * four bytes from `bits` bytes on. */
CODEC_WIDE_BODY __m512i wide_load16(const uint8_t *p, int bits, __m512i shifts)
{
    int32_t low, high;
    memcpy(&low, p, sizeof low);
    memcpy(&high, p + bits, sizeof high);
    const __m512i both = _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xff00, high);
    return _mm512_srlv_epi32(both, shifts);
}

/* Where the codes begin in those bytes; of four bits, the first code of a byte may be the high one.
 */
CODEC_WIDE_BODY __m512i wide_shifts(int bits, int is_high_first)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i order = _mm512_xor_si512(lane, _mm512_set1_epi32(is_high_first));
    return _mm512_mullo_epi32(order, _mm512_set1_epi32(bits));
}

/* 32 codes of four bits to halves: a byte goes to the upper byte of 16 bits, from where a shift
 * makes it 2 * code + 1 in the low five bits, the place of the code's upper half in the table. */
CODEC_WIDE_BODY __m512i wide_halves32(const wide_table *t, const uint8_t *p, __m512i spread,
                                      __m512i shifts)
{
    const __m512i packed =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m512i codes = _mm512_srlv_epi16(_mm512_shuffle_epi8(packed, spread), shifts);
    return _mm512_permutexvar_epi16(_mm512_or_si512(codes, _mm512_set1_epi16(1)), t->halves);
}

/* The shuffle for wide_halves32: 16-bit lane k gets byte k / 2 in its upper byte. */
CODEC_WIDE_BODY __m512i wide_spread(void)
{
    uint8_t at[64];
    for (int i = 0; i < 64; i++)
        at[i] = i % 2 != 0 ? (uint8_t)(i / 4) : 0x80;
    return _mm512_loadu_si512(at);
}

/** The values of n codes of 2, 3 or 4 bits that lie one after another from the lowest bit of
 * bytes[0] on; is_high_first: those of four bits from its highest. With less than four bits, two
 * bytes after the last code's may be read. */
CODEC_WIDE_BODY void wide_bits(const wide_table *t, const uint8_t *bytes, int64_t n, int bits,
                               int is_high_first, void *out, int32_t dtype)
{
    const __m512i shifts = wide_shifts(bits, is_high_first);
    int64_t i = 0;
    if (bits == 4 && dtype != LATHE_F32) {
        const __m512i spread = wide_spread();
        const __m512i low_high = _mm512_set1_epi32(is_high_first ? 7 << 16 | 11 : 11 << 16 | 7);
        for (; i + 32 <= n; i += 32)
            _mm512_storeu_si512((uint16_t *)out + i,
                                wide_halves32(t, bytes + i / 2, spread, low_high));
    }
    for (; i + 16 <= n; i += 16)
        wide_store16(t, wide_load16(bytes + i * bits / 8, bits, shifts), out, i, 0xffff, dtype);
    if (i < n) {
        uint8_t last[16] = {0};
        memcpy(last, bytes + i * bits / 8, (size_t)(((n - i) * bits + 7) / 8));
        wide_store16(t, wide_load16(last, bits, shifts), out, i, wide_lanes(n - i), dtype);
    }
}

/** The values of n codes of up to four bits, which begin at bit `shift` of bytes[i], or of words[i]
 *  if there are any. */
CODEC_WIDE_BODY void wide_picks(const wide_table *t, const uint8_t *bytes, const uint32_t *words,
                                int64_t n, int shift, void *out, int32_t dtype)
{
    const __m128i by = _mm_cvtsi32_si128(shift);
    int64_t i = 0;
    if (words == NULL && dtype != LATHE_F32) {
        const __m128i up = _mm_cvtsi32_si128(shift + 7);
        for (; i + 32 <= n; i += 32) { /* as wide_halves32 */
            const __m256i raw = _mm256_loadu_si256((const __m256i *)(const void *)(bytes + i));
            const __m512i high = _mm512_slli_epi16(_mm512_cvtepu8_epi16(raw), 8);
            const __m512i codes = _mm512_or_si512(_mm512_srl_epi16(high, up), _mm512_set1_epi16(1));
            _mm512_storeu_si512((uint16_t *)out + i, _mm512_permutexvar_epi16(codes, t->halves));
        }
    }
    if (words != NULL && dtype != LATHE_F32) {
        uint16_t upper[32]; /* the odd 16-bit lanes of the first 16 values, then of the others */
        for (int k = 0; k < 32; k++)
            upper[k] = (uint16_t)(2 * k + 1);
        const __m512i pack = _mm512_loadu_si512(upper);
        for (; i + 32 <= n; i += 32) {
            const __m512i a = _mm512_srl_epi32(_mm512_loadu_si512(words + i), by);
            const __m512i b = _mm512_srl_epi32(_mm512_loadu_si512(words + i + 16), by);
            _mm512_storeu_si512((uint16_t *)out + i,
                                _mm512_permutex2var_epi16(_mm512_permutexvar_epi32(a, t->halves),
                                                          pack,
                                                          _mm512_permutexvar_epi32(b, t->halves)));
        }
    }
    for (; i < n; i += 16) {
        const __mmask16 lanes = n - i < 16 ? wide_lanes(n - i) : 0xffff;
        const __m512i raw = words != NULL ? _mm512_maskz_loadu_epi32(lanes, words + i)
                                          : wide_load_bytes(bytes + i, lanes);
        wide_store16(t, _mm512_srl_epi32(raw, by), out, i, lanes, dtype);
    }
}

/** Stores 16 values as elements out[i ..] of a dtype. */
CODEC_WIDE_BODY void wide_store_values(__m512 values, void *out, int64_t i, __mmask16 lanes,
                                       int32_t dtype)
{
    __m256i half;
    if (dtype == LATHE_F32) {
        wide_store_lanes((float *)out + i, lanes, values);
        return;
    }
    if (dtype == LATHE_BF16)
        half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(wide_upper_bf16(values), 16));
    else if (_mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q) == 0)
        half = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    else
        half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(wide_upper_f16(values), 16));
    wide_store_halves((uint16_t *)out + i, lanes, half);
}

/** (code - zero) * scale of n codes of eight bits, to a dtype. */
CODEC_WIDE_BODY void wide_moved(const uint8_t *codes, int64_t n, int32_t zero, float scale,
                                void *out, int32_t dtype)
{
    const __m512i by = _mm512_set1_epi32(zero);
    const __m512 factor = _mm512_set1_ps(scale);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = n - i < 16 ? wide_lanes(n - i) : 0xffff;
        const __m512i code = wide_load_bytes(codes + i, lanes);
        const __m512 moved = _mm512_cvtepi32_ps(_mm512_sub_epi32(code, by));
        wide_store_values(_mm512_mul_ps(moved, factor), out, i, lanes, dtype);
    }
}

/** Turns 16 rows of 16 words, which are `stride` words apart, into out[column][.. + row], whose
 * rows are `out_stride` words apart. */
CODEC_WIDE static __attribute__((noinline)) void wide_turn16(const uint32_t *words, int64_t stride,
                                                             uint32_t *out, int64_t out_stride)
{
    __m512i r[16], t[16];
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_loadu_si512(words + i * stride);
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int k = 0; k < 2; k++) {
            r[i + 2 * k] = _mm512_unpacklo_epi64(t[i + k], t[i + 2 + k]);
            r[i + 2 * k + 1] = _mm512_unpackhi_epi64(t[i + k], t[i + 2 + k]);
        }
    /* r[4 q + c]: quarter L has column 4 L + c of rows 4 q .. 4 q + 3 */
    for (int c = 0; c < 4; c++) {
        const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
        const __m512i e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        _mm512_storeu_si512(out + c * out_stride, _mm512_shuffle_i32x4(a, b, 0x88));
        _mm512_storeu_si512(out + (c + 8) * out_stride, _mm512_shuffle_i32x4(a, b, 0xdd));
        _mm512_storeu_si512(out + (c + 4) * out_stride, _mm512_shuffle_i32x4(d, e, 0x88));
        _mm512_storeu_si512(out + (c + 12) * out_stride, _mm512_shuffle_i32x4(d, e, 0xdd));
    }
}

/** Like wide_turn16, and prefetches what the hardware does not predict: the rows after the next 16,
 *  and the cache lines after these. */
CODEC_WIDE static inline void wide_transpose16(const uint32_t *words, int64_t stride, uint32_t *out,
                                               int64_t out_stride)
{
    for (int i = 0; i < 16; i++) {
        _mm_prefetch((const char *)(words + (i + 32) * stride), _MM_HINT_T0);
        _mm_prefetch((const char *)(words + i * stride + 16), _MM_HINT_T1);
    }
    wide_turn16(words, stride, out, out_stride);
}

#endif

#endif
