/* mxfp4: the value of an element, for the GPU kernel; and that kernel. */
#ifndef LATHE_MXFP4_KERNEL_H
#define LATHE_MXFP4_KERNEL_H

#include "shared/codec_cuda.h"
#include "shared/small_float.h"

enum {
    MXFP4_WEIGHT, /* u8 [rows, cols/2]: two E2M1 codes per byte, the first in the low nibble */
    MXFP4_SCALE,  /* u8 [rows, cols/32]: E8M0 exponents */
    MXFP4_N_PLANES
};
enum { MXFP4_GROUP = 32 };

LATHE_HD static inline float mxfp4_element(const lathe_quant_args *a, int64_t row, int64_t col)
{
    const int64_t i = row * a->cols + col; /* cols is a multiple of the group */
    const uint8_t byte = ((const uint8_t *)a->planes[MXFP4_WEIGHT])[i / 2];
    const uint8_t exponent = ((const uint8_t *)a->planes[MXFP4_SCALE])[i / MXFP4_GROUP];
    return small_e2m1(col % 2 ? byte >> 4 : byte & 15u) * small_e8m0(exponent);
}

CODEC_CUDA_DECODER(mxfp4_element)

#endif
