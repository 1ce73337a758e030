/* Allocates GPU memory and pinned host memory, and copies between them. */
#include "base/cuda_memory.h"

lathe_status cuda_memory_alloc(void *self, int64_t bytes, int32_t memory, void **out)
{
    const cuda_device *device = self;
    if (bytes < 0 || (memory != LATHE_MEM_DEVICE && memory != LATHE_MEM_HOST_PINNED))
        return lathe_fail(device->host, LATHE_E_ARG, "alloc of %lld bytes of memory kind %d",
                          (long long)bytes, (int)memory);
    const size_t n = bytes > 0 ? (size_t)bytes : 1;
    *out = NULL;
    if (memory == LATHE_MEM_HOST_PINNED) {
        LATHE_TRY(cuda_status(device->host, cudaHostAlloc(out, n, cudaHostAllocDefault),
                              "pinned host memory"));
        for (size_t i = 0; i < n; i++)
            ((char *)*out)[i] = 0;
        return LATHE_OK;
    }
    const cudaError_t error = cudaMalloc(out, n);
    if (error == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total = 0;
        (void)cudaGetLastError(); /* clears the error, which was reported */
        (void)cudaMemGetInfo(&free_bytes, &total);
        return lathe_fail(device->host, LATHE_E_NOMEM,
                          "GPU %d has %.2f GiB free of %.2f, %.2f were requested",
                          (int)device->index, (double)free_bytes / 0x1p30, (double)total / 0x1p30,
                          (double)bytes / 0x1p30);
    }
    LATHE_TRY(cuda_status(device->host, error, "GPU memory"));
    lathe_status status =
        cuda_status(device->host, cudaMemsetAsync(*out, 0, n, cudaStreamPerThread), "clearing");
    if (status == LATHE_OK)
        status = cuda_sync(self, NULL);
    if (status != LATHE_OK) {
        (void)cudaFree(*out);
        *out = NULL;
    }
    return status;
}

void cuda_memory_free(void *self, void *memory)
{
    struct cudaPointerAttributes attributes;
    (void)self;
    if (memory == NULL || cudaPointerGetAttributes(&attributes, memory) != cudaSuccess)
        return;
    if (attributes.type == cudaMemoryTypeHost)
        (void)cudaFreeHost(memory);
    else
        (void)cudaFree(memory);
}

lathe_status cuda_memory_copy(void *self, lathe_stream *stream, void *dst, const void *src,
                              int64_t bytes, int32_t direction)
{
    static const enum cudaMemcpyKind kinds[] = {
        [LATHE_COPY_TO_DEVICE] = cudaMemcpyHostToDevice,
        [LATHE_COPY_TO_HOST] = cudaMemcpyDeviceToHost,
        [LATHE_COPY_ON_DEVICE] = cudaMemcpyDeviceToDevice,
    };
    const cuda_device *device = self;
    if (direction < LATHE_COPY_TO_DEVICE || direction > LATHE_COPY_ON_DEVICE || bytes < 0)
        return lathe_fail(device->host, LATHE_E_ARG, "copy of %lld bytes in direction %d",
                          (long long)bytes, (int)direction);
    if (bytes == 0)
        return LATHE_OK;
    return cuda_status(
        device->host,
        cudaMemcpyAsync(dst, src, (size_t)bytes, kinds[direction], cuda_stream(stream)), "copy");
}
