/* Optimizers on a device whose memory the host cannot touch, where one element-wise launch is not
 * enough: what queue() is given, and what its kernels have in common.
 *
 * queue() runs on the host in every step, outside of captures, and launches kernels of the plugin's
 * image on one in-order stream. It may compute on the host what depends on the configuration and
 * the step alone; what the tensors hold it leaves to the kernels, or fetches at a point that its
 * README names, and not in every step. The image has a kernel named LATHE_ELEMENTWISE_KERNEL, by
 * which the core loads it when the run is opened. Where the state lies in the host's memory
 * (train.offload_optimizer), each part is a call of its own.
 */
#ifndef LATHE_KIT_OPTIMIZER_QUEUE_H
#define LATHE_KIT_OPTIMIZER_QUEUE_H

#include "elementwise.h"
#include "lathe/device.h"

enum {
    LATHE_QUEUE_STEP = 0,
    LATHE_QUEUE_ESTIMATE = 1, /* offered with estimate() only */
    LATHE_QUEUE_AVERAGE = 2   /* offered with average() only */
};

struct lathe_optimizer_queue {
    uint32_t size;
    int32_t what; /* LATHE_QUEUE_* */
    /** The step as the CPU gets it; what its tensors point to is device memory, the tensors and the
     *  scalars themselves are host memory, to be read during the call. No scratch. */
    const lathe_optimizer_step *step;
    /** The same tensors, scalars and counter in device memory; of a step that updates
     *  parameters, every chunk's sums are to be written: those of a tensor may be split among
     *  its chunks in any fixed way. */
    const lathe_elementwise_args *args;
    float *const
        *averages; /* [n_tensors] for AVERAGE, where to: an array in device memory too; else NULL */
    void *own, *shared, *host; /* as room() asked for; what they hold is lost between calls */
    void *ctx;
    /** Queues a kernel of the image, as lathe_device_v1.launch does. 0 blocks: nothing is
     *  queued. */
    lathe_status (*launch)(void *ctx, const char *kernel, int64_t n_blocks, const void *args,
                           int64_t args_bytes);
    /** Queues a copy between `host` and device memory; direction LATHE_COPY_*. */
    lathe_status (*copy)(void *ctx, void *dst, const void *src, int64_t bytes, int32_t direction);
    /** Waits until everything queued has finished. */
    lathe_status (*wait)(void *ctx);
};
LATHE_ABI_SIZE(lathe_optimizer_queue, 88);

/** Blocks of LATHE_ELEMENTWISE_THREADS threads, one for each chunk of x. */
LATHE_HD static inline int64_t lathe_queue_chunks(const lathe_optimizer_tensor *x)
{
    return (x->n + LATHE_ELEMENTWISE_CHUNK - 1) / LATHE_ELEMENTWISE_CHUNK;
}

/** Queues `kernel` over all chunks; args begins with lathe_elementwise_args, to be copied from
 *  todo. */
static inline lathe_status lathe_queue_launch(const lathe_optimizer_queue *todo, const char *kernel,
                                              const void *args, int64_t args_bytes)
{
    return todo->launch(todo->ctx, kernel, todo->args->n_chunks, args, args_bytes);
}

/** Queues the element-wise kernel: the whole step of most optimizers. */
static inline lathe_status lathe_queue_elementwise(const lathe_optimizer_queue *todo)
{
    return lathe_queue_launch(todo, LATHE_ELEMENTWISE_KERNEL, todo->args,
                              (int64_t)sizeof *todo->args);
}

#endif
