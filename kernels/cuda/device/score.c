/* Computes the fitness of the CUDA device for the machine: driver, GPU, code for its
 * architecture, cuBLASLt. */
#include <stdio.h>

#include "device/cuda_functions.h"
#include "device/requirements.h"
#include "lathe/plugin.h"
#include "products/blas.h"

/* Code compiled for 8.0, 8.9, 9.0 and 10.0 also runs on later minor versions of the same major one.
 * On newer GPUs the driver compiles the PTX of 10.0. */
int32_t cuda_has_code_for(int32_t arch)
{
    return arch >= 80;
}

int32_t cuda_machine_runs(int *out_n, char *why, size_t why_bytes)
{
    int driver = 0;
    *out_n = 0;
    const cudaError_t counted = cudaGetDeviceCount(out_n);
    (void)cudaGetLastError(); /* clears the error: the next launch must not see it */
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0) {
        (void)snprintf(why, why_bytes, "no CUDA driver is installed (libcuda.so.1)");
        return 0;
    }
    if (counted == cudaErrorInsufficientDriver) {
        (void)snprintf(why, why_bytes,
                       "the CUDA driver is for CUDA %d.%d, this build needs %d.%d or later: update "
                       "the driver",
                       driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10);
        return 0;
    }
    if (counted != cudaSuccess || *out_n == 0) {
        (void)snprintf(why, why_bytes, "the CUDA driver shows no GPU: %s",
                       counted == cudaSuccess ? "there is none" : cudaGetErrorString(counted));
        return 0;
    }
    return cuda_blas_found(why, (int64_t)why_bytes);
}

int32_t cuda_score(char *why, int64_t why_bytes)
{
    int n = 0;
    struct cudaDeviceProp first = {0};
    if (!cuda_machine_runs(&n, why, (size_t)why_bytes))
        return LATHE_SCORE_NO;
    for (int i = 0; i < n; i++) { /* device.index may select any; create checks it */
        struct cudaDeviceProp properties = {0};
        if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
            (void)cudaGetLastError();
            continue;
        }
        first = i == 0 ? properties : first;
        if (!cuda_has_code_for(10 * properties.major + properties.minor))
            continue;
        (void)snprintf(why, (size_t)why_bytes, "%d GPU%s, the first%s: %s, sm_%d%d", n,
                       n == 1 ? "" : "s", i == 0 ? "" : " that there is code for", properties.name,
                       properties.major, properties.minor);
        return LATHE_SCORE_EXACT; /* above every CPU build, whatever its instruction set */
    }
    (void)snprintf(why, (size_t)why_bytes,
                   "GPU 0 is of compute capability %d.%d; this build has code from 8.0 on",
                   first.major, first.minor);
    return LATHE_SCORE_NO;
}
