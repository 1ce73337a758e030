/* Arguments and helpers of lathe_optimizer_v1.queue(), for optimizers that need more than one
 * elementwise launch on a device whose memory the host cannot access.
 *
 * queue() runs on the host in every step, outside captures, and launches kernels of the plugin's
 * image on one in-order stream. The host may compute values that depend only on the configuration
 * and the step. Kernels compute everything that depends on tensors; if the host must read tensor
 * data, the plugin's README says when, and it is not in every step. The image must have a kernel
 * named LATHE_ELEMENTWISE_KERNEL, which the core uses to load the image when the run is opened. If
 * the state is kept in host memory (train.offload_optimizer), queue() is called once for each part.
 */
#ifndef LATHE_KIT_OPTIMIZER_QUEUE_H
#define LATHE_KIT_OPTIMIZER_QUEUE_H

#include "elementwise.h"
#include "lathe/device.h"

enum {
    LATHE_QUEUE_STEP = 0,
    LATHE_QUEUE_ESTIMATE = 1, /* only for plugins with estimate() */
    LATHE_QUEUE_AVERAGE = 2   /* only for plugins with average() */
};

struct lathe_optimizer_queue {
    uint32_t size;
    int32_t what; /* LATHE_QUEUE_* */
    /** The step as in step() on the CPU. The array of tensors and the scalars are in host
     *  memory, readable during the call; the pointers inside the tensors are device pointers. No
     *  scratch. */
    const lathe_optimizer_step *step;
    /** The tensors, scalars and counter of `step` in device memory. A step that updates parameters
     *  must write the sums of every chunk; the sums of a tensor may be distributed over its chunks
     *  in any fixed way. */
    const lathe_elementwise_args *args;
    /* [n_tensors] destinations for AVERAGE, an array in device memory; else NULL */
    float *const *averages;
    void *own, *shared, *host; /* memory as room() asked; content is lost between calls */
    void *ctx;
    /** Queues a kernel of the image, as lathe_device_v1.launch does. n_blocks 0 queues nothing. */
    lathe_status (*launch)(void *ctx, const char *kernel, int64_t n_blocks, const void *args,
                           int64_t args_bytes);
    /** Queues a copy between `host` and device memory; direction LATHE_COPY_*. */
    lathe_status (*copy)(void *ctx, void *dst, const void *src, int64_t bytes, int32_t direction);
    /** Waits until all queued work has finished. */
    lathe_status (*wait)(void *ctx);
};
LATHE_ABI_SIZE(lathe_optimizer_queue, 88);

/** Number of blocks (of LATHE_ELEMENTWISE_THREADS threads) for one block per chunk of x. */
LATHE_HD static inline int64_t lathe_queue_chunks(const lathe_optimizer_tensor *x)
{
    return (x->n + LATHE_ELEMENTWISE_CHUNK - 1) / LATHE_ELEMENTWISE_CHUNK;
}

/** Queues `kernel` over all chunks. args begins with lathe_elementwise_args, a copy of
 *  *todo->args. */
static inline lathe_status lathe_queue_launch(const lathe_optimizer_queue *todo, const char *kernel,
                                              const void *args, int64_t args_bytes)
{
    return todo->launch(todo->ctx, kernel, todo->args->n_chunks, args, args_bytes);
}

/** Queues the elementwise kernel: the whole step of most optimizers. */
static inline lathe_status lathe_queue_elementwise(const lathe_optimizer_queue *todo)
{
    return lathe_queue_launch(todo, LATHE_ELEMENTWISE_KERNEL, todo->args,
                              (int64_t)sizeof *todo->args);
}

#endif
