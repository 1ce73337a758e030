/* CUDA kernels of plugins on the host, thread after thread: include this, then the kernel's source, then
 * undefine __CUDACC__. Threads of a block run in order and to their end: a kernel may wait for others in
 * lathe_cuda_block_sum() alone. */
#ifndef LATHE_CUDA_ON_HOST_H
#define LATHE_CUDA_ON_HOST_H

#include <stdint.h>

typedef struct cuda_on_host_index {
    unsigned x;
} cuda_on_host_index;

static cuda_on_host_index blockIdx, threadIdx, gridDim, blockDim;

/* *out = sum of x over the block's threads, in their order. */
static inline void lathe_cuda_block_sum(double *out, double x)
{
    *out = threadIdx.x == 0 ? x : *out + x;
}

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
#define LATHE_CUDA_KERNEL static

/* abi.h, where __CUDACC__ is known: the functions that both sides have are the host's. */
#include "lathe/abi.h"
#undef LATHE_HD
#define LATHE_HD

#endif
