/* Codes of 2, 3, 4 or 8 bits in 32-bit words, as GPTQ and AWQ store them, and where one lies.
 *
 * W [O,I] is stored transposed, input by input: `codes` for the weights, `zeros` for the zero
 * points of the groups of inputs, `scales` f16 or bf16 [G,O].
 *
 *   GPTQ  codes [I*bits/32, O]: the bits of the inputs of one output lie one after another, down a
 *         column of words. zeros [G, O*bits/32]: those of the outputs, along a row of words.
 *   AWQ   codes [I, O/8], zeros [G, O/8]: the codes of eight outputs in a word, in the order
 *         0 2 4 6 1 3 5 7.
 */
#ifndef LATHE_QUANT_PACKED_WORDS_H
#define LATHE_QUANT_PACKED_WORDS_H

#include "shared/codec_cuda.h"

enum { PACKED_CODES, PACKED_ZEROS, PACKED_SCALES, PACKED_GROUPS }; /* planes; AWQ has no GROUPS */
enum { PACKED_BITS, PACKED_GROUP_SIZE, PACKED_ZERO_OFFSET, PACKED_DTYPE }; /* settings */

/** Bits [at, at + bits) of a row of words that are `stride` words apart. */
LATHE_HD static inline uint32_t packed_bits(const uint32_t *words, int64_t stride, int64_t at,
                                            int64_t bits)
{
    const int64_t word = at >> 5, shift = at & 31;
    uint32_t code = words[word * stride] >> shift;
    if (shift + bits > 32)
        code |= words[(word + 1) * stride] << (32 - shift);
    return code & ((1u << bits) - 1u);
}

/* Words that lie in one cache line are decoded together, because the lines of a column are far
 * apart.
 */
enum { PACKED_LINE = 16 };

/** Copies n <= PACKED_LINE words of each of `rows` rows that are `stride` words apart. */
static inline void packed_copy(const uint32_t *words, int64_t stride, int64_t rows, int64_t n,
                               uint32_t (*out)[PACKED_LINE])
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(out[i], words + i * stride, (size_t)n * sizeof *words);
}

/** Place of output o in the word of AWQ that holds it. */
LATHE_HD static inline int64_t awq_shift(int64_t o)
{
    return 4 * ((o & 1) << 2 | (o & 7) >> 1);
}

/** A scale of this dtype, F16 or BF16. */
LATHE_HD static inline float packed_scale(uint16_t scale, int64_t dtype)
{
    return dtype == LATHE_BF16 ? lathe_bf16_to_f32(scale) : lathe_f16_to_f32(scale);
}

/** (q - z) * scale: exact in f32, because q - z has at most 9 bits and the scale 11. */
LATHE_HD static inline float packed_value(uint32_t code, uint32_t zero, float scale)
{
    return (float)((int32_t)code - (int32_t)zero) * scale;
}

LATHE_HD static inline float gptq_element(const lathe_quant_args *a, int64_t row, int64_t col)
{
    const int64_t bits = a->settings[PACKED_BITS], n_out = a->rows;
    const int64_t group = ((const int32_t *)a->planes[PACKED_GROUPS])[col];
    const uint32_t *const zeros =
        (const uint32_t *)a->planes[PACKED_ZEROS] + group * (n_out * bits / 32);
    const uint32_t code =
        packed_bits((const uint32_t *)a->planes[PACKED_CODES] + row, n_out, col * bits, bits);
    const uint32_t zero =
        packed_bits(zeros, 1, row * bits, bits) + (uint32_t)a->settings[PACKED_ZERO_OFFSET];
    const uint16_t scale = ((const uint16_t *)a->planes[PACKED_SCALES])[group * n_out + row];
    return packed_value(code, zero, packed_scale(scale, a->settings[PACKED_DTYPE]));
}

LATHE_HD static inline float awq_element(const lathe_quant_args *a, int64_t row, int64_t col)
{
    const int64_t size = a->settings[PACKED_GROUP_SIZE]; /* 0: all inputs */
    const int64_t n_out = a->rows, group = size > 0 ? col / size : 0;
    const int64_t word = row / 8, shift = awq_shift(row);
    const uint32_t code = ((const uint32_t *)a->planes[PACKED_CODES])[col * (n_out / 8) + word];
    const uint32_t zero = ((const uint32_t *)a->planes[PACKED_ZEROS])[group * (n_out / 8) + word];
    const uint16_t scale = ((const uint16_t *)a->planes[PACKED_SCALES])[group * n_out + row];
    return packed_value(code >> shift & 15u, zero >> shift & 15u,
                        packed_scale(scale, a->settings[PACKED_DTYPE]));
}

#endif
