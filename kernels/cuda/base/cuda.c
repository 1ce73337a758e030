/* Errors of the CUDA runtime as statuses, and the wait for a stream. */
#include "base/cuda.h"

lathe_status cuda_status(const lathe_host *host, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return LATHE_OK;
    (void)cudaGetLastError(); /* clears the error: the next launch must not see it */
    return lathe_fail(host, error == cudaErrorMemoryAllocation ? LATHE_E_NOMEM : LATHE_E_DEVICE,
                      "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

lathe_status cuda_sync(void *self, lathe_stream *stream)
{
    const cuda_device *device = self;
    return cuda_status(device->host, cudaStreamSynchronize(cuda_stream(stream)), "on the GPU");
}
