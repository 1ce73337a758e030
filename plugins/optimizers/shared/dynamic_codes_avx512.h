/* dynamic_codes.h with AVX-512: 64 elements at a time. */
#ifndef LATHE_OPTIMIZERS_DYNAMIC_CODES_AVX512_H
#define LATHE_OPTIMIZERS_DYNAMIC_CODES_AVX512_H

#include "dynamic_codec.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define LATHE__DYNAMIC_AVX512 "avx512f,avx512bw,avx512dq"

/* Packing and unpacking work within 128 bits; this restores the order of their 32-bit elements, or
 * prepares it. */
__attribute__((target(LATHE__DYNAMIC_AVX512))) static inline __m512i
lathe__dynamic_across(__m512i x)
{
    const __m512i from = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(from, x);
}

/* Decodes whole registers of codes; returns the number of codes decoded. Looks up each byte of the
 * values for 64 codes at once. */
__attribute__((target(LATHE__DYNAMIC_AVX512 ",avx512vbmi"))) static int64_t
lathe__dynamic_decode_avx512(const lathe_dynamic_codec *c, const uint8_t *codes, float *out,
                             int64_t n)
{
    int64_t at = 0;
    __m512i table[4][4];
    for (int k = 0; k < 4; k++)
        for (int part = 0; part < 4; part++)
            table[k][part] = _mm512_loadu_si512(&c->plane[k][64 * part]);
    for (; at + 64 <= n; at += 64) {
        const __m512i code = lathe__dynamic_across(_mm512_loadu_si512(codes + at));
        const __mmask64 is_upper = _mm512_movepi8_mask(code);
        __m512i byte[4];
        for (int k = 0; k < 4; k++) {
            const __m512i lower = _mm512_permutex2var_epi8(table[k][0], code, table[k][1]);
            const __m512i upper = _mm512_permutex2var_epi8(table[k][2], code, table[k][3]);
            byte[k] = _mm512_mask_blend_epi8(is_upper, lower, upper);
        }
        const __m512i low01 = _mm512_unpacklo_epi8(byte[0], byte[1]);
        const __m512i low23 = _mm512_unpacklo_epi8(byte[2], byte[3]);
        const __m512i high01 = _mm512_unpackhi_epi8(byte[0], byte[1]);
        const __m512i high23 = _mm512_unpackhi_epi8(byte[2], byte[3]);
        _mm512_storeu_si512(out + at, _mm512_unpacklo_epi16(low01, low23));
        _mm512_storeu_si512(out + at + 16, _mm512_unpackhi_epi16(low01, low23));
        _mm512_storeu_si512(out + at + 32, _mm512_unpacklo_epi16(high01, high23));
        _mm512_storeu_si512(out + at + 48, _mm512_unpackhi_epi16(high01, high23));
    }
    return at;
}

/* 32 numbers, one for each octave. */
typedef struct lathe__dynamic_table {
    __m512 low, high;
} lathe__dynamic_table;

__attribute__((target(LATHE__DYNAMIC_AVX512), always_inline)) static inline lathe__dynamic_table
lathe__dynamic_table_of(const float *x)
{
    return (lathe__dynamic_table){_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
}

/* Looks up the number of each element's octave. */
__attribute__((target(LATHE__DYNAMIC_AVX512), always_inline)) static inline __m512
lathe__dynamic_take(lathe__dynamic_table t, __m512i octave)
{
    return _mm512_permutex2var_ps(t.low, octave, t.high);
}

/* Encodes whole groups of 64; returns the number of elements encoded. most is finite and at least
 * 2^-64. */
__attribute__((target(LATHE__DYNAMIC_AVX512), always_inline)) static inline int64_t
lathe__dynamic_encode_groups(const lathe_dynamic_codec *c, const float *x, float max,
                             uint8_t *codes, int64_t n, int is_signed)
{
    const __m512 factor = _mm512_set1_ps(c->stretch / max), least = _mm512_set1_ps(0x1p-30f);
    const lathe__dynamic_table low_slope = lathe__dynamic_table_of(c->low_slope);
    const lathe__dynamic_table low_offset = lathe__dynamic_table_of(c->low_offset);
    const lathe__dynamic_table high_slope = lathe__dynamic_table_of(c->high_slope);
    const lathe__dynamic_table high_offset = lathe__dynamic_table_of(c->high_offset);
    const lathe__dynamic_table late = lathe__dynamic_table_of(c->late);
    const __m512i one = _mm512_set1_epi16(1), sign = _mm512_set1_epi32(INT32_MIN);
    const __m512i middle = _mm512_set1_epi8(INT8_MIN);
    int64_t at = 0;
    for (; at + 64 <= n; at += 64) {
        __m512 apart[4];
        __m512i place[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            const __m512 y = _mm512_mul_ps(_mm512_loadu_ps(x + at + 16 * k), factor);
            /* 0xb: the greater magnitude, without its sign */
            const __m512 a = is_signed ? _mm512_range_ps(y, least, 0xb) : _mm512_max_ps(y, least);
            const __m512i octave = _mm512_srli_epi32(_mm512_castps_si512(a), 23);
            const __m512 low = _mm512_fmadd_ps(a, lathe__dynamic_take(low_slope, octave),
                                               lathe__dynamic_take(low_offset, octave));
            const __m512 high = _mm512_fmadd_ps(a, lathe__dynamic_take(high_slope, octave),
                                                lathe__dynamic_take(high_offset, octave));
            const __m512 first =
                _mm512_fmadd_ps(high, _mm512_set1_ps(1.25f), lathe__dynamic_take(late, octave));
            const __m512 p = _mm512_min_ps(_mm512_min_ps(low, high), first);
            const __m512i with_sign = _mm512_ternarylogic_epi32(
                _mm512_castps_si512(p), _mm512_castps_si512(y), sign, 0xd8); /* sign ? y : p */
            apart[k] = _mm512_reduce_ps(p, 0);                               /* p - rint(p) */
            place[k] = _mm512_cvttps_epi32(is_signed ? _mm512_castsi512_ps(with_sign) : p);
        }
        /* A code is 127 + place, or place - 1 without signs; saturation keeps it in 0 .. 255. */
        const __m512i low = _mm512_sub_epi16(_mm512_packs_epi32(place[0], place[1]), one);
        const __m512i high = _mm512_sub_epi16(_mm512_packs_epi32(place[2], place[3]), one);
        const __m512i code = is_signed ? _mm512_xor_si512(_mm512_packs_epi16(low, high), middle)
                                       : _mm512_packus_epi16(low, high);
        _mm512_storeu_si512(codes + at, lathe__dynamic_across(code));
        /* 0xa: the lesser magnitude, without its sign */
        const __m512 nearest = _mm512_range_ps(_mm512_range_ps(apart[0], apart[1], 0xa),
                                               _mm512_range_ps(apart[2], apart[3], 0xa), 0xa);
        if (_mm512_cmp_ps_mask(nearest, _mm512_set1_ps(LATHE_DYNAMIC_DOUBT), _CMP_LT_OQ) != 0)
            lathe__dynamic_settle_each(&c->book, x + at, max, codes + at, 64);
    }
    return at;
}

__attribute__((target(LATHE__DYNAMIC_AVX512))) static int64_t
lathe__dynamic_encode_avx512(const lathe_dynamic_codec *c, const float *x, float max,
                             uint8_t *codes, int64_t n)
{
    return c->book.lines.zero != 0 ? lathe__dynamic_encode_groups(c, x, max, codes, n, 1)
                                   : lathe__dynamic_encode_groups(c, x, max, codes, n, 0);
}

#endif

#endif
