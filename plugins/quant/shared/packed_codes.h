/* Scales, offsets and values of four-bit codes of the outputs in a group of inputs, which GPTQ and
 * AWQ store in words. */
#ifndef LATHE_QUANT_PACKED_CODES_H
#define LATHE_QUANT_PACKED_CODES_H

#include "shared/codec_tables.h"
#include "shared/packed_words.h"

/** Where the scales and zero points of outputs are in a group, from an output on that is a multiple
 *  of PACKED_LINE. */
typedef struct packed_group {
    const uint32_t *zeros;
    const uint16_t *scales;
    int32_t dtype; /* of the scales: F16 or BF16 */
    int64_t bits;
    int32_t zero_offset; /* is added to the zero points */
    int32_t is_awq;      /* the order of the zero points in their words */
} packed_group;

static inline uint32_t packed_zero(const packed_group *g, int64_t output)
{
    const uint32_t zero = g->is_awq ? g->zeros[output / 8] >> awq_shift(output) & 15u
                                    : packed_bits(g->zeros, 1, output * g->bits, g->bits);
    return zero + (uint32_t)g->zero_offset;
}

#if defined(__x86_64__)
/* Sixteen scales of this dtype as f32. */
CODEC_WIDE_BODY __m512 wide_scales16(const uint16_t *from, int32_t dtype)
{
    const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)from);
    return dtype == LATHE_BF16
               ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))
               : _mm512_cvtph_ps(bits);
}

/* packed_scales of whole lines; returns the outputs that are done. */
CODEC_WIDE static int64_t wide_group_scales(const packed_group *g, int64_t n, float *scales,
                                            float *offsets)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i at = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int32_t)g->bits));
    const __m512i word = _mm512_srli_epi32(at, 5);
    const __m512i mixed =
        _mm512_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28, 0, 16, 4, 20, 8, 24, 12, 28);
    const __m512i shift = g->is_awq ? mixed : _mm512_and_si512(at, _mm512_set1_epi32(31));
    const __m512i mask = _mm512_set1_epi32((1 << g->bits) - 1);
    const __mmask16 words = wide_lanes(PACKED_LINE * g->bits / 32);
    int64_t i = 0;
    for (; i + PACKED_LINE <= n; i += PACKED_LINE) {
        const __m512i from = _mm512_maskz_loadu_epi32(words, g->zeros + i * g->bits / 32);
        const __m512i raw = _mm512_srlv_epi32(_mm512_permutexvar_epi32(word, from), shift);
        const __m512i zero =
            _mm512_add_epi32(_mm512_and_si512(raw, mask), _mm512_set1_epi32(g->zero_offset));
        const __m512 scale = wide_scales16(g->scales + i, g->dtype);
        _mm512_storeu_ps(scales + i, scale);
        _mm512_storeu_ps(
            offsets + i,
            _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), zero)),
                          scale));
    }
    return i;
}
#else /* the build for AVX-512 is never chosen */
static inline int64_t wide_group_scales(const packed_group *g, int64_t n, float *scales,
                                        float *offsets)
{
    (void)g, (void)n, (void)scales, (void)offsets;
    return 0;
}
#endif

/** The scales and offsets (lathe_quant_v1.part_scales) of n outputs; build: of the codecs. */
static inline void packed_scales(const packed_group *g, int64_t n, float *scales, float *offsets,
                                 int32_t build)
{
    int64_t i = build == CODEC_AVX512 ? wide_group_scales(g, n, scales, offsets) : 0;
    for (; i < n; i++) {
        scales[i] = packed_scale(g->scales[i], g->dtype);
        offsets[i] = -(float)packed_zero(g, i) * scales[i];
    }
}

/** lathe_quant_v1.codes of codes in words. */
static inline lathe_weight_codes packed_weight_codes(int32_t order, int64_t bits, int64_t group)
{
    lathe_weight_codes codes = {.order = order,
                                .bits = (int32_t)bits,
                                .values = bits == 8 ? LATHE_VALUES_U8 : LATHE_VALUES_TABLE,
                                .plane = PACKED_CODES,
                                .has_offsets = 1,
                                .group = group};
    for (int32_t i = 0; bits < 8 && i < 1 << bits; i++)
        codes.table[i] = (float)i;
    return codes;
}

#if defined(__x86_64__)

/** Parameters of PACKED_LINE outputs in a group of inputs. */
typedef struct wide_line {
    const uint32_t *zeros;  /* [2] words of eight outputs each */
    const uint16_t *scales; /* [PACKED_LINE] */
    int32_t dtype;          /* of the scales: F16 or BF16 */
    int32_t zero_offset;    /* is added to the zero points */
    int32_t is_awq;         /* the order of the zero points in their words: of AWQ or of GPTQ */
} wide_line;

/** values[output * stride + code] = (code - zero) * scale, rounded to dtype. */
CODEC_WIDE static void wide_line_values(const wide_line *line, float *values, int64_t stride,
                                        int32_t dtype)
{
    const __m512 codes = _mm512_setr_ps(0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f, 9.0f,
                                        10.0f, 11.0f, 12.0f, 13.0f, 14.0f, 15.0f);
    const __m512i of_gptq =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i of_awq =
        _mm512_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28, 0, 16, 4, 20, 8, 24, 12, 28);
    const __m512i words = _mm512_mask_set1_epi32(_mm512_set1_epi32((int32_t)line->zeros[0]), 0xff00,
                                                 (int32_t)line->zeros[1]);
    const __m512i raw = _mm512_srlv_epi32(words, line->is_awq ? of_awq : of_gptq);
    const __m512i zero = _mm512_add_epi32(_mm512_and_si512(raw, _mm512_set1_epi32(15)),
                                          _mm512_set1_epi32(line->zero_offset));
    float zeros_room[PACKED_LINE], scales_room[PACKED_LINE];
    float *const zeros = wide_room(zeros_room), *const scales = wide_room(scales_room);
    const wide_factors f = {codes, zeros, scales, 0};
    _mm512_storeu_ps(zeros, _mm512_cvtepi32_ps(zero));
    _mm512_storeu_ps(scales, wide_scales16(line->scales, line->dtype));
    if (dtype == LATHE_BF16)
        wide_products(&f, PACKED_LINE, values, stride, LATHE_BF16);
    else
        wide_products(&f, PACKED_LINE, values, stride, dtype);
}

#endif

#endif
