/* eetq: where an element's code lies and what it is worth, for the CPU loop and the GPU kernel;
 * and that kernel.
 *
 * The bytes of the file are in the order in which EETQ's GPU kernel loads them (its
 * preprocess_weights_for_mixed_gemm, for compute capability 7.5 and later): two output rows at a
 * time, in turn 64 inputs of the one and 64 of the other; within 16 inputs, those of the first and
 * of the second half in turn; 128 is added to every code.
 */
#ifndef LATHE_EETQ_KERNEL_H
#define LATHE_EETQ_KERNEL_H

#include "shared/codec_cuda.h"

enum {
    EETQ_WEIGHT, /* i8 [cols, rows], in the order above */
    EETQ_SCALE,  /* f16 [rows] */
    EETQ_N_PLANES
};
enum { EETQ_TILE = 64, EETQ_MIX = 16 };

/** Where the tile of 64 inputs that begins at `col` lies. */
LATHE_HD static inline int64_t eetq_tile_at(int64_t row, int64_t col, int64_t cols)
{
    return row / 2 * 2 * cols + 2 * col + row % 2 * EETQ_TILE;
}

LATHE_HD static inline float eetq_value(uint8_t byte, float scale)
{
    return (float)((int32_t)byte - 128) * scale;
}

LATHE_HD static inline float eetq_element(const lathe_quant_args *a, int64_t row, int64_t col)
{
    const int64_t in_mix = col % EETQ_MIX, half = EETQ_MIX / 2;
    const int64_t at = eetq_tile_at(row, col / EETQ_TILE * EETQ_TILE, a->cols) +
                       col % EETQ_TILE / EETQ_MIX * EETQ_MIX +
                       (in_mix < half ? 2 * in_mix : 2 * (in_mix - half) + 1);
    const float scale = lathe_f16_to_f32(((const uint16_t *)a->planes[EETQ_SCALE])[row]);
    return eetq_value(((const uint8_t *)a->planes[EETQ_WEIGHT])[at], scale);
}

CODEC_CUDA_DECODER(eetq_element)

#endif
