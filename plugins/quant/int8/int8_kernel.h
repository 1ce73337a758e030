/* int8: decodes a code, for the CPU loop and the GPU kernel; and that kernel. */
#ifndef LATHE_INT8_KERNEL_H
#define LATHE_INT8_KERNEL_H

#include "lathe/kit/code_image.h"
#include "lathe/quant.h"

enum { INT8_WEIGHT, INT8_SCB, INT8_N_PLANES };

#define INT8_STEP 7.874015718698502e-3f /* bitsandbytes' 1/127 */

/** The value of code q in a row with scale SCB, with bitsandbytes' order of operations. */
LATHE_HD static inline float int8_value(int8_t q, float scale)
{
    return (float)q * scale * INT8_STEP;
}

#ifdef __CUDACC__

/* One element per thread: neighbouring threads read neighbouring codes and write neighbouring
 * values. Bound by the writes; finding the row of an element costs one division. */
LATHE_CUDA_KERNEL(lathe_quant_decode, LATHE_QUANT_THREADS, lathe_quant_args)
{
    const int8_t *__restrict__ const q = (const int8_t *)a.planes[INT8_WEIGHT];
    const float *__restrict__ const scales = (const float *)a.planes[INT8_SCB];
    const int64_t n = a.rows * a.cols;
    for (int64_t chunk = blockIdx.x; chunk < a.n_chunks; chunk += gridDim.x) {
        const int64_t begin = chunk * LATHE_QUANT_CHUNK;
        const int64_t end = begin + LATHE_QUANT_CHUNK < n ? begin + LATHE_QUANT_CHUNK : n;
        for (int64_t i = begin + threadIdx.x; i < end; i += LATHE_QUANT_THREADS)
            lathe_quant_store(a.out, a.dtype, i, int8_value(q[i], scales[i / a.cols]));
    }
}

#endif

#endif
