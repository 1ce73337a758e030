/* nvfp4: the scale of a group and the value of an element, for the CPU loop and the GPU kernel;
 * and that kernel. */
#ifndef LATHE_NVFP4_KERNEL_H
#define LATHE_NVFP4_KERNEL_H

#include "shared/codec_cuda.h"
#include "shared/small_float.h"

enum {
    NVFP4_WEIGHT, /* u8 [rows, cols/2]: two E2M1 codes per byte, the first in the low nibble */
    NVFP4_SCALE,  /* e4m3 [rows, cols/16] */
    NVFP4_GLOBAL, /* f32: divides the scales (compressed-tensors) or multiplies them (modelopt) */
    NVFP4_N_PLANES
};
enum { NVFP4_COMPRESSED_TENSORS, NVFP4_MODELOPT }; /* settings[0]; the choices of `layout` */
enum { NVFP4_GROUP = 16 };

LATHE_HD static inline float nvfp4_scale(uint8_t code, float global, int64_t layout)
{
    const float scale = small_e4m3(code);
    return layout == NVFP4_MODELOPT ? scale * global : scale / global;
}

/** A zero to add to each value: ModelOpt has no -0, and compressed-tensors has. */
LATHE_HD static inline float nvfp4_zero(int64_t layout)
{
    return layout == NVFP4_MODELOPT ? 0.0f : -0.0f;
}

LATHE_HD static inline float nvfp4_element(const lathe_quant_args *a, int64_t row, int64_t col)
{
    const int64_t i = row * a->cols + col; /* cols is a multiple of the group */
    const uint8_t byte = ((const uint8_t *)a->planes[NVFP4_WEIGHT])[i / 2];
    const uint8_t scale = ((const uint8_t *)a->planes[NVFP4_SCALE])[i / NVFP4_GROUP];
    const float global = *(const float *)a->planes[NVFP4_GLOBAL];
    return small_e2m1(col % 2 ? byte >> 4 : byte & 15u) *
               nvfp4_scale(scale, global, a->settings[0]) +
           nvfp4_zero(a->settings[0]);
}

CODEC_CUDA_DECODER(nvfp4_element)

#endif
