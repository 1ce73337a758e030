/* NF4: planes, scale of a block and value of an element, for the CPU loop and the GPU kernel; and
 * that kernel. */
#ifndef LATHE_NF4_KERNEL_H
#define LATHE_NF4_KERNEL_H

#include "lathe/kit/code_image.h"
#include "lathe/quant.h"

#define NF4_BLOCK 64
#define NF4_NESTED_BLOCK 256

enum {
    NF4_WEIGHT,        /* u8 [(n+1)/2, 1]: two codes per byte, the first in the high nibble */
    NF4_ABSMAX,        /* u8 [blocks] when nested, else f32 [blocks] */
    NF4_MAP,           /* f32 [16]: values of the codes */
    NF4_NESTED_ABSMAX, /* f32 [nested blocks]; this and the next two only when nested */
    NF4_NESTED_MAP,    /* f32 [256] */
    NF4_OFFSET,        /* f32 [1]: mean of the scales */
    NF4_N_PLANES
};

/** The scale of a block. nested: the planes are those of double quantization. */
LATHE_HD static inline float nf4_scale(const void *const *planes, int nested, int64_t block)
{
    if (!nested)
        return ((const float *)planes[NF4_ABSMAX])[block];
    const uint8_t code = ((const uint8_t *)planes[NF4_ABSMAX])[block];
    const float *const map = (const float *)planes[NF4_NESTED_MAP];
    const float *const scales = (const float *)planes[NF4_NESTED_ABSMAX];
    return map[code] * scales[block / NF4_NESTED_BLOCK] + *(const float *)planes[NF4_OFFSET];
}

#ifdef __CUDACC__

/* One byte, two elements, per thread: neighbouring threads read neighbouring bytes and write
 * neighbouring pairs. The scales of a chunk's blocks are computed once. Bound by the writes. */
LATHE_CUDA_KERNEL(lathe_quant_decode, LATHE_QUANT_THREADS, lathe_quant_args)
{
    __shared__ float map[16], scales[LATHE_QUANT_CHUNK / NF4_BLOCK];
    const uint8_t *__restrict__ const bytes = (const uint8_t *)a.planes[NF4_WEIGHT];
    const int64_t n = a.rows * a.cols, n_blocks = (n + NF4_BLOCK - 1) / NF4_BLOCK;
    const int nested = (int)a.settings[0];
    if (threadIdx.x < 16)
        map[threadIdx.x] = ((const float *)a.planes[NF4_MAP])[threadIdx.x];
    for (int64_t chunk = blockIdx.x; chunk < a.n_chunks; chunk += gridDim.x) {
        const int64_t begin = chunk * LATHE_QUANT_CHUNK, block = begin / NF4_BLOCK + threadIdx.x;
        const int64_t end = begin + LATHE_QUANT_CHUNK < n ? begin + LATHE_QUANT_CHUNK : n;
        if (threadIdx.x < LATHE_QUANT_CHUNK / NF4_BLOCK && block < n_blocks)
            scales[threadIdx.x] = nf4_scale(a.planes, nested, block);
        __syncthreads();
        for (int64_t i = begin + 2 * threadIdx.x; i < end; i += 2 * LATHE_QUANT_THREADS) {
            const uint8_t byte = bytes[i / 2];
            const float scale = scales[(i - begin) / NF4_BLOCK];
            lathe_quant_store(a.out, a.dtype, i, map[byte >> 4] * scale);
            if (i + 1 < end)
                lathe_quant_store(a.out, a.dtype, i + 1, map[byte & 15] * scale);
        }
        __syncthreads();
    }
}

#endif

#endif
