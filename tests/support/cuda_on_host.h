/* Runs CUDA kernels of plugins on the host, thread after thread: include this file, then the
 * kernel's source, then undefine __CUDACC__. The threads of a block run in order and to their end,
 * so a kernel may wait for others only in lathe_elementwise_sums(). */
#ifndef LATHE_CUDA_ON_HOST_H
#define LATHE_CUDA_ON_HOST_H

#include <stdint.h>

typedef struct cuda_on_host_index {
    unsigned x;
} cuda_on_host_index;

static cuda_on_host_index blockIdx, threadIdx, gridDim, blockDim;

/* Adds the sums of a chunk, in the order of the block's threads. */
#define lathe_elementwise_sums(a, chunk, change, size)                                             \
    do {                                                                                           \
        if ((a)->sums != NULL) {                                                                   \
            double *const sums = (a)->sums + 2 * (chunk);                                          \
            sums[0] = threadIdx.x == 0 ? (change) : sums[0] + (change);                            \
            sums[1] = threadIdx.x == 0 ? (size) : sums[1] + (size);                                \
        }                                                                                          \
    } while (0)

/* Runs `call`, a call of the kernel, for every thread of the grid. */
#define CUDA_ON_HOST_GRID(n_blocks, n_threads, call)                                               \
    do {                                                                                           \
        gridDim.x = (unsigned)(n_blocks);                                                          \
        blockDim.x = (unsigned)(n_threads);                                                        \
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)                                 \
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)                         \
                call;                                                                              \
    } while (0)

#define __CUDACC__ 1
#define __device__
#define __launch_bounds__(n)
#define LATHE_CUDA_KERNEL(name, n_threads, args_type) static void name(const args_type a)

/* After abi.h has defined LATHE_HD for CUDA, makes it empty: such functions become host functions.
 */
#include "lathe/abi.h"
#undef LATHE_HD
#define LATHE_HD

#endif
