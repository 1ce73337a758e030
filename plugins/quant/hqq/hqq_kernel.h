/* hqq: where a code lies and what it is worth, for the CPU loop and the GPU kernel; and that
 * kernel.
 *
 * The weight is a flat array cut into groups. The groups are cut into as many equal runs as codes
 * fit in a word, and a word holds the codes of the same place in each run, the first run's in the
 * highest bits. So the codes of one group are neighbours and need one shift.
 */
#ifndef LATHE_HQQ_KERNEL_H
#define LATHE_HQQ_KERNEL_H

#include "shared/codec_cuda.h"

enum {
    HQQ_CODES, /* u8 [groups * bits / 8, group], for 3 bits i32 [ceil(groups / 10), group] */
    HQQ_SCALE, /* [groups, 1] of the compute dtype */
    HQQ_ZERO,  /* the same */
    HQQ_N_PLANES
};
enum { HQQ_BITS, HQQ_GROUP, HQQ_DTYPE }; /* settings */

/** Codes in a word: ten of 3 bits in 32, else as many as fit in a byte. */
LATHE_HD static inline int64_t hqq_per_word(int64_t bits)
{
    return bits == 3 ? 10 : bits == 4 ? 2 : bits == 2 ? 4 : bits == 1 ? 8 : 1;
}

/** Words for each place in a group. */
LATHE_HD static inline int64_t hqq_word_rows(int64_t groups, int64_t bits)
{
    return (groups + hqq_per_word(bits) - 1) / hqq_per_word(bits);
}

/** x rounded to the compute dtype. */
LATHE_HD static inline float hqq_rounded(float x, int32_t dtype)
{
    if (dtype == LATHE_F32)
        return x;
    return dtype == LATHE_F16 ? lathe_f16_to_f32(lathe_f32_to_f16(x))
                              : lathe_bf16_to_f32(lathe_f32_to_bf16(x));
}

/** Element `group` of a plane of scales or zeros. */
LATHE_HD static inline float hqq_parameter(const void *plane, int64_t group, int32_t dtype)
{
    if (dtype == LATHE_F32)
        return ((const float *)plane)[group];
    const uint16_t bits = ((const uint16_t *)plane)[group];
    return dtype == LATHE_F16 ? lathe_f16_to_f32(bits) : lathe_bf16_to_f32(bits);
}

LATHE_HD static inline float hqq_element(const lathe_quant_args *a, int64_t row, int64_t col)
{
    const int64_t bits = a->settings[HQQ_BITS], size = a->settings[HQQ_GROUP];
    const int32_t dtype = (int32_t)a->settings[HQQ_DTYPE];
    const int64_t i = row * a->cols + col, group = i / size;
    const int64_t word_rows = hqq_word_rows(a->rows * a->cols / size, bits);
    const int64_t at = group % word_rows * size + i % size;
    const int64_t shift = bits * (hqq_per_word(bits) - 1 - group / word_rows);
    const uint32_t word = bits == 3 ? ((const uint32_t *)a->planes[HQQ_CODES])[at]
                                    : ((const uint8_t *)a->planes[HQQ_CODES])[at];
    const float code = (float)(int32_t)(word >> shift & ((1u << bits) - 1u));
    const float moved = hqq_rounded(code - hqq_parameter(a->planes[HQQ_ZERO], group, dtype), dtype);
    return hqq_rounded(moved * hqq_parameter(a->planes[HQQ_SCALE], group, dtype), dtype);
}

CODEC_CUDA_DECODER(hqq_element)

#endif
