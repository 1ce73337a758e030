/* fp8: the scale of a code, for the CPU loop and the GPU kernel; and that kernel. */
#ifndef LATHE_FP8_KERNEL_H
#define LATHE_FP8_KERNEL_H

#include "shared/codec_cuda.h"
#include "shared/small_float.h"

enum {
    FP8_WEIGHT, /* e4m3 [rows, cols] */
    FP8_SCALE,  /* [1], [rows, 1] or [ceil(rows/block_rows), ceil(cols/block_cols)]: f32, or bytes
                   with exponents of two */
    FP8_N_PLANES
};
enum { FP8_TENSOR, FP8_ROW, FP8_BLOCK };                             /* the choices of `scaling` */
enum { FP8_SCALING, FP8_BLOCK_ROWS, FP8_BLOCK_COLS, FP8_EXPONENTS }; /* settings */
enum { FP8_USUAL_BLOCK = 128 };

LATHE_HD static inline int64_t fp8_scale_index(const int64_t *settings, int64_t row, int64_t col,
                                               int64_t cols)
{
    const int64_t down = settings[FP8_BLOCK_ROWS], along = settings[FP8_BLOCK_COLS];
    if (settings[FP8_SCALING] != FP8_BLOCK)
        return settings[FP8_SCALING] == FP8_ROW ? row : 0;
    if (down == FP8_USUAL_BLOCK && along == FP8_USUAL_BLOCK) /* without divisions */
        return row / FP8_USUAL_BLOCK * ((cols + FP8_USUAL_BLOCK - 1) / FP8_USUAL_BLOCK) +
               col / FP8_USUAL_BLOCK;
    return row / down * ((cols + along - 1) / along) + col / along;
}

LATHE_HD static inline float fp8_scale(const int64_t *settings, const void *scales, int64_t index)
{
    return settings[FP8_EXPONENTS] ? small_e8m0(((const uint8_t *)scales)[index])
                                   : ((const float *)scales)[index];
}

LATHE_HD static inline float fp8_element(const lathe_quant_args *a, int64_t row, int64_t col)
{
    const uint8_t code = ((const uint8_t *)a->planes[FP8_WEIGHT])[row * a->cols + col];
    return small_e4m3(code) * fp8_scale(a->settings, a->planes[FP8_SCALE],
                                        fp8_scale_index(a->settings, row, col, a->cols));
}

CODEC_CUDA_DECODER(fp8_element)

#endif
