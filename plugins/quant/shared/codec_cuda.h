/* The CUDA kernel that decodes a weight element by element: neighbouring threads read neighbouring
 * codes and write neighbouring values. */
#ifndef LATHE_CODEC_CUDA_H
#define LATHE_CODEC_CUDA_H

#include "lathe/kit/code_image.h"
#include "lathe/quant.h"

#ifdef __CUDACC__

/* element: float (const lathe_quant_args *args, int64_t row, int64_t col). Finding row and column
 * costs one division; the kernel is bound by its writes. */
#define CODEC_CUDA_DECODER(element)                                                                \
    LATHE_CUDA_KERNEL(lathe_quant_decode, LATHE_QUANT_THREADS, lathe_quant_args)                   \
    {                                                                                              \
        const int64_t n = a.rows * a.cols;                                                         \
        for (int64_t chunk = blockIdx.x; chunk < a.n_chunks; chunk += gridDim.x) {                 \
            const int64_t begin = chunk * LATHE_QUANT_CHUNK;                                       \
            const int64_t end = begin + LATHE_QUANT_CHUNK < n ? begin + LATHE_QUANT_CHUNK : n;     \
            for (int64_t i = begin + threadIdx.x; i < end; i += LATHE_QUANT_THREADS) {             \
                const int64_t row = i / a.cols;                                                    \
                lathe_quant_store(a.out, a.dtype, i, element(&a, row, i - row * a.cols));          \
            }                                                                                      \
        }                                                                                          \
    }

#else
#define CODEC_CUDA_DECODER(element)
#endif

#endif
