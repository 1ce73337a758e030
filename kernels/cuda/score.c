/* Fitness of the CUDA device for the machine: a driver, a GPU, code for its generation, cuBLASLt. */
#include <stdio.h>

#include "blas.h"
#include "cuda.h"
#include "lathe/plugin.h"

/* Machine code for 8.0, 8.9, 9.0 and 10.0 runs on later minor versions of the same major one; what is
 * newer translates the PTX of 10.0. */
int32_t cuda_has_code_for(int32_t arch)
{
    return arch >= 80;
}

int32_t cuda_score(char *why, int64_t why_bytes)
{
    int driver = 0, n = 0;
    char blas[160];
    const cudaError_t counted = cudaGetDeviceCount(&n);
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0) {
        (void)snprintf(why, (size_t)why_bytes, "no CUDA driver is installed (libcuda.so.1)");
        return LATHE_SCORE_NO;
    }
    if (counted == cudaErrorInsufficientDriver) {
        (void)snprintf(why, (size_t)why_bytes,
                       "the CUDA driver is for CUDA %d.%d, this build needs %d.%d or later: update "
                       "the driver",
                       driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10);
        return LATHE_SCORE_NO;
    }
    if (counted != cudaSuccess || n == 0) {
        (void)snprintf(why, (size_t)why_bytes, "the CUDA driver shows no GPU: %s",
                       counted == cudaSuccess ? "there is none" : cudaGetErrorString(counted));
        return LATHE_SCORE_NO;
    }
    if (!cuda_blas_found(blas, sizeof blas)) {
        (void)snprintf(why, (size_t)why_bytes, "%s", blas);
        return LATHE_SCORE_NO;
    }
    struct cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess ||
        !cuda_has_code_for(10 * properties.major + properties.minor)) {
        (void)snprintf(why, (size_t)why_bytes,
                       "GPU 0 is of compute capability %d.%d; this build has code from 8.0 on",
                       properties.major, properties.minor);
        return LATHE_SCORE_NO;
    }
    (void)snprintf(why, (size_t)why_bytes, "%d GPU%s, the first: %s, sm_%d%d", n, n == 1 ? "" : "s",
                   properties.name, properties.major, properties.minor);
    return LATHE_SCORE_FAMILY;
}
