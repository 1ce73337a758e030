/* The instance of the CUDA device, its streams, and the dispatch entries of its ops.
 *
 * Host code is C and uses the runtime API. Each op (or op family) has its own .cu file, which
 * defines a constant kernel_op; device/cuda_ops.c finds it by its name. Only cuda_sync and
 * cuda_memory_alloc wait for the GPU.
 *
 * lathe_stream is cudaStream_t; NULL means cudaStreamPerThread, so the work that one rank's thread
 * queues stays in order and can be captured.
 */
#ifndef LATHE_CUDA_H
#define LATHE_CUDA_H

#include <cuda_runtime_api.h>

#include "shared/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_blas cuda_blas;     /* cuBLASLt: handle, workspace size; see products/blas.h */
typedef struct cuda_images cuda_images; /* loaded code of plugins; see device/image.c */

typedef struct cuda_device {
    const lathe_host *host;
    cuda_blas *blas;
    cuda_images *images;
    int32_t index; /* number of the device in this process */
    int32_t n_sm;  /* number of multiprocessors */
    int32_t arch;  /* 10 * major + minor of the compute capability */
    int32_t tf32;  /* f32 products may run in TF32 */
} cuda_device;

static inline cudaStream_t cuda_stream(lathe_stream *stream)
{
    return stream == NULL ? cudaStreamPerThread : (cudaStream_t)stream;
}

/** LATHE_OK, or the message "<what>: <CUDA's message>" with LATHE_E_NOMEM (out of memory) or
 *  LATHE_E_DEVICE. */
lathe_status cuda_status(const lathe_host *host, cudaError_t error, const char *what);
/** lathe_device_v1.sync */
lathe_status cuda_sync(void *self, lathe_stream *stream);

static inline cuda_device *cuda_of(const lathe_kernel *k)
{
    return (cuda_device *)k->device;
}

static inline int64_t cuda_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/** The dispatch entry of an op: const kernel_op CUDA_OP(ADD) = {..}, defined in the op's file. An
 *  op that this device does not have has no such constant. */
#define CUDA_OP(name) cuda_op_##name
#define LATHE_X(name, text, n_in, n_out) extern const kernel_op CUDA_OP(name);
LATHE_OP_TABLE(LATHE_X)
#undef LATHE_X

#ifdef __cplusplus
}
#endif

#endif
