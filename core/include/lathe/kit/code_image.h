/* Macros for CUDA code embedded in a plugin (lathe_optimizer_v1.cuda_image,
 * lathe_quant_v1.cuda_image), which a device loads and launches (lathe_device_v1.launch).
 *
 * lathe_add_plugin(... CUDA file) compiles the file with nvcc and embeds the fatbin in the plugin.
 * A kernel is found by its name, takes one struct by value, and uses no dynamic shared memory.
 */
#ifndef LATHE_KIT_CODE_IMAGE_H
#define LATHE_KIT_CODE_IMAGE_H

#include "lathe/abi.h"

/* The embedded fatbin, for a table's cuda_image, or NULL in a build without nvcc. */
#ifdef LATHE_CUDA_EMBEDDED
LATHE_EXTERN_C_BEGIN
extern const unsigned char lathe_cuda_image[] __attribute__((visibility("hidden")));
LATHE_EXTERN_C_END
#define LATHE_CUDA_IMAGE ((const void *)lathe_cuda_image)
#else
#define LATHE_CUDA_IMAGE NULL
#endif

#ifdef __CUDACC__

/* Begins the kernel `name` (an identifier) for blocks of n_threads threads; its argument is `a`.
 * The GPU emulation of the tests defines its own version. */
#ifndef LATHE_CUDA_KERNEL
#define LATHE_CUDA_KERNEL(name, n_threads, args_type)                                              \
    extern "C" __global__ void __launch_bounds__(n_threads) name(const args_type a)
#endif

#ifdef __cplusplus
/* Sum of x over the block's n_threads threads, a power of two, as a tree: thread i adds the
 * value of thread i + n/2, then of i + n/4, and so on. All threads must call it, and all get the
 * sum. */
template <int n_threads> static __device__ inline double lathe_cuda_block_sum(double x)
{
    __shared__ double part[n_threads];
    part[threadIdx.x] = x;
    __syncthreads();
    for (unsigned half = n_threads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    const double sum = part[0];
    __syncthreads();
    return sum;
}
#endif

#endif

#endif
