/* The values of four-bit codes that GPTQ and AWQ store in words, for PACKED_LINE outputs at a time,
 * with AVX-512. */
#ifndef LATHE_QUANT_PACKED_CODES_H
#define LATHE_QUANT_PACKED_CODES_H

#include "shared/codec_tables.h"
#include "shared/packed_words.h"

#if defined(__x86_64__)

/** What PACKED_LINE outputs have in a group of inputs. */
typedef struct wide_line {
    const uint32_t *zeros;  /* [2] words of eight outputs each */
    const uint16_t *scales; /* [PACKED_LINE] f16 */
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
    _mm512_storeu_ps(
        scales, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)line->scales)));
    if (dtype == LATHE_BF16)
        wide_products(&f, PACKED_LINE, values, stride, LATHE_BF16);
    else
        wide_products(&f, PACKED_LINE, values, stride, dtype);
}

#endif

#endif
