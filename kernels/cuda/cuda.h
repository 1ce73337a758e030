/* The device instance of the CUDA device, its functions, and the dispatch entries of its ops.
 *
 * Host code is C and uses the runtime API. Each op (or op family) has its own .cu file, which
 * defines a constant kernel_op; cuda_ops.c finds it by its name. Only cuda_sync and
 * cuda_memory_alloc wait for the GPU.
 *
 * lathe_stream is cudaStream_t; NULL means cudaStreamPerThread, so the work that one rank's thread
 * queues stays in order and can be captured.
 */
#ifndef LATHE_CUDA_H
#define LATHE_CUDA_H

#include <cuda_runtime_api.h>

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_blas cuda_blas;     /* cuBLASLt: handle, workspace size; see blas.h */
typedef struct cuda_images cuda_images; /* loaded code of plugins; see image.c */

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

/** Fitness. 0, with the reason, if there is no driver, no device or no code for its
 *  architecture. */
int32_t cuda_score(char *why, int64_t why_bytes);
/** Whether this build has code for compute capability `arch` (10 * major + minor). */
int32_t cuda_has_code_for(int32_t arch);

lathe_status cuda_memory_alloc(void *self, int64_t bytes, int32_t memory, void **out);
void cuda_memory_free(void *self, void *memory);
lathe_status cuda_memory_copy(void *self, lathe_stream *stream, void *dst, const void *src,
                              int64_t bytes, int32_t direction);

lathe_status cuda_stream_create(void *self, lathe_stream **out);
void cuda_stream_destroy(void *self, lathe_stream *stream);
lathe_status cuda_event_record(void *self, lathe_stream *stream, lathe_event **io_event);
lathe_status cuda_event_stamp(void *self, lathe_stream *stream, lathe_event **io_event);
lathe_status cuda_event_seconds(void *self, lathe_event *from, lathe_event *to,
                                double *out_seconds);
lathe_status cuda_event_wait(void *self, lathe_stream *stream, lathe_event *event);
void cuda_event_destroy(void *self, lathe_event *event);
lathe_status cuda_sync(void *self, lathe_stream *stream);

lathe_status cuda_capture_begin(void *self, lathe_stream *stream);
lathe_status cuda_capture_end(void *self, lathe_stream *stream, lathe_capture **out);
lathe_status cuda_capture_launch(void *self, lathe_capture *capture, lathe_stream *stream);
void cuda_capture_destroy(void *self, lathe_capture *capture);

/** Creates the table of loaded images; destroy takes NULL. */
lathe_status cuda_images_create(const lathe_host *host, cuda_images **out);
void cuda_images_destroy(const lathe_host *host, cuda_images *images);
/** lathe_device_v1.launch: runs kernel `name` of a plugin's embedded code, with one struct by
 *  value. */
lathe_status cuda_launch_image(void *self, lathe_stream *stream, const void *image,
                               const char *name, int64_t n_blocks, int32_t n_threads,
                               const void *args, int64_t args_bytes);

lathe_status cuda_kernel_create(void *self, const lathe_kernel_problem *problem, lathe_kernel **out,
                                int64_t *out_scratch_bytes);
void cuda_kernel_destroy(void *self, lathe_kernel *kernel);
lathe_status cuda_kernel_run(void *self, lathe_kernel *kernel, const lathe_kernel_args *args);

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
