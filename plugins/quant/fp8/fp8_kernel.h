/* fp8: the place of a code's scale, for the CPU loop and the GPU kernel; and that kernel. */
#ifndef LATHE_FP8_KERNEL_H
#define LATHE_FP8_KERNEL_H

#include "shared/codec_cuda.h"
#include "shared/small_float.h"

enum {
    FP8_WEIGHT, /* e4m3 [rows, cols] */
    FP8_SCALE,  /* f32 [1], [rows, 1] or [ceil(rows/128), ceil(cols/128)] */
    FP8_N_PLANES
};
enum { FP8_TENSOR, FP8_ROW, FP8_BLOCK }; /* settings[0]; the choices of `scaling` */
enum { FP8_BLOCK_SIZE = 128 };

LATHE_HD static inline int64_t fp8_scale_index(int64_t scaling, int64_t row, int64_t col,
                                               int64_t cols)
{
    const int64_t across = (cols + FP8_BLOCK_SIZE - 1) / FP8_BLOCK_SIZE;
    if (scaling == FP8_BLOCK)
        return row / FP8_BLOCK_SIZE * across + col / FP8_BLOCK_SIZE;
    return scaling == FP8_ROW ? row : 0;
}

LATHE_HD static inline float fp8_element(const lathe_quant_args *a, int64_t row, int64_t col)
{
    const uint8_t code = ((const uint8_t *)a->planes[FP8_WEIGHT])[row * a->cols + col];
    const float *const scales = (const float *)a->planes[FP8_SCALE];
    return small_e4m3(code) * scales[fp8_scale_index(a->settings[0], row, col, a->cols)];
}

CODEC_CUDA_DECODER(fp8_element)

#endif
