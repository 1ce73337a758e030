/* Adam-mini: formulas for the CPU loop and the GPU kernel, and that kernel.
 *
 * The mean over a block uses ADAM_MINI_LANES sums: element i of the block is added to sum i %
 * LANES, in order; then sum k + LANES/2 is added to sum k, then sum k + LANES/4, and so on to k +
 * 1.
 */
#ifndef LATHE_ADAM_MINI_H
#define LATHE_ADAM_MINI_H

#include "lathe/kit/adamw_family.h"

enum { SLOT_M, SLOT_V, N_SLOTS };

#define ADAM_MINI_LANES LATHE_ELEMENTWISE_THREADS

LATHE_HD static inline double adam_mini_square(float g, float scale)
{
    const float x = g * scale;
    return (double)(x * x);
}

/** The rate of a block from the mean of its squares; updates its second moment. lr: the tensor's
 *  rate. */
LATHE_HD static inline float adam_mini_rate(const lathe_adamw_numbers *u, float lr, float bias,
                                            float mean, float *v)
{
    *v = fmaf(u->new2, mean, u->beta2 * *v);
    return lr * (bias / fmaf(sqrtf(*v), u->root_bias, u->eps));
}

/** The new parameter; updates m. g is scaled. */
LATHE_HD static inline float adam_mini_move(float p, float g, float *m, float new1, float rate,
                                            float keep)
{
    *m = fmaf(new1, g - *m, *m);
    return fmaf(-rate, *m, p * keep);
}

#ifdef __CUDACC__

/* A block of up to this size is processed by one thread; a larger one by all threads together. */
#define ADAM_MINI_SMALL 32

/* A tensor in a step. */
typedef struct tensor_step {
    const lathe_optimizer_tensor *x;
    lathe_adamw_numbers u;
    float lr, bias, scale;
    double change, size; /* this thread's */
} tensor_step;

/* Number of elements of the block that begins at `at`. */
static __device__ inline int64_t block_elements(const lathe_optimizer_tensor *x, int64_t size,
                                                int64_t at)
{
    return x->n - at < size ? x->n - at : size;
}

static __device__ inline void element_update(tensor_step *s, int64_t i, float rate)
{
    const lathe_optimizer_tensor *const x = s->x;
    float *const m = (float *)x->slots[SLOT_M];
    const float was = x->param[i];
    const float now = adam_mini_move(was, x->grad[i] * s->scale, &m[i], s->u.new1, rate, s->u.keep);
    x->param[i] = now;
    lathe_elementwise_done(x, i, was, now, &s->change, &s->size);
}

/* Updates the block of `size` elements from `at` on, with one thread. */
static __device__ inline void block_alone(tensor_step *s, int64_t size, int64_t at)
{
    const int n = (int)block_elements(s->x, size, at);
    double sum[ADAM_MINI_SMALL];
    for (int k = 0; k < ADAM_MINI_SMALL; k++)
        sum[k] = k < n ? adam_mini_square(s->x->grad[at + k], s->scale) : 0.0;
    for (int lanes = ADAM_MINI_SMALL / 2; lanes > 0; lanes /= 2)
        for (int k = 0; k < lanes; k++)
            sum[k] += sum[k + lanes];
    const float rate = adam_mini_rate(&s->u, s->lr, s->bias, (float)(sum[0] / (double)n),
                                      (float *)s->x->slots[SLOT_V] + at / size);
    for (int k = 0; k < n; k++)
        element_update(s, at + k, rate);
}

/* Updates the block with all threads. */
static __device__ inline void block_together(tensor_step *s, int64_t size, int64_t at)
{
    const int64_t n = block_elements(s->x, size, at);
    double sum = 0.0;
    for (int64_t k = threadIdx.x; k < n; k += ADAM_MINI_LANES)
        sum += adam_mini_square(s->x->grad[at + k], s->scale);
    const double total = lathe_cuda_block_sum<ADAM_MINI_LANES>(sum);
    float *const v = (float *)s->x->slots[SLOT_V] + at / size;
    float next = *v;
    const float rate = adam_mini_rate(&s->u, s->lr, s->bias, (float)(total / (double)n), &next);
    __syncthreads(); /* all threads have read it */
    if (threadIdx.x == 0)
        *v = next;
    for (int64_t k = threadIdx.x; k < n; k += ADAM_MINI_LANES)
        element_update(s, at + k, rate);
}

/* Like the elementwise kernel of the kit, but the threads of a chunk process the blocks that begin
 * in it, to their ends. */
LATHE_CUDA_KERNEL(lathe_elementwise_step, LATHE_ELEMENTWISE_THREADS, lathe_elementwise_args)
{
    for (int64_t chunk = blockIdx.x; chunk < a.n_chunks; chunk += gridDim.x) {
        const lathe_elementwise_chunk c = lathe_elementwise_chunk_of(&a, chunk);
        const lathe_optimizer_tensor *const x = c.x;
        tensor_step s;
        s.x = x;
        s.change = s.size = 0.0;
        s.lr = a.scalars[LATHE_SCALAR_LR] * (float)x->lr_mult;
        s.u = lathe_adamw_numbers_of(a.scalars, s.lr, (float)x->weight_decay_mult);
        s.bias = a.scalars[LATHE_SCALAR_USER + LATHE_ADAMW_BIAS1];
        s.scale = a.scalars[LATHE_SCALAR_GRAD_SCALE];
        const int64_t size = x->block > 0 ? x->block : 1;
        const int64_t first = (c.begin + size - 1) / size * size;
        if (size <= ADAM_MINI_SMALL)
            for (int64_t at = first + threadIdx.x * size; at < c.end; at += size * ADAM_MINI_LANES)
                block_alone(&s, size, at);
        else
            for (int64_t at = first; at < c.end; at += size)
                block_together(&s, size, at);
        lathe_elementwise_sums(&a, chunk, s.change, s.size);
    }
}

#endif

#endif
