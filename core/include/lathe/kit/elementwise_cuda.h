/* The CUDA half of elementwise.h: one kernel over the chunks of all tensors. Include
 * elementwise.h instead. */
#ifndef LATHE_KIT_ELEMENTWISE_CUDA_H
#define LATHE_KIT_ELEMENTWISE_CUDA_H

#include "elementwise.h"

/* Tensor that `chunk` belongs to: the last t with first_chunk[t] <= chunk. */
static __device__ inline int64_t lathe_elementwise_find(const lathe_elementwise_args *a,
                                                        int64_t chunk)
{
    int64_t lo = 0, hi = a->n_tensors - 1;
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;
        if (a->first_chunk[mid] <= chunk)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* A chunk: elements [begin, end) of tensor number t. */
typedef struct lathe_elementwise_chunk {
    const lathe_optimizer_tensor *x;
    int64_t t, begin, end;
} lathe_elementwise_chunk;

static __device__ inline lathe_elementwise_chunk
lathe_elementwise_chunk_of(const lathe_elementwise_args *a, int64_t chunk)
{
    lathe_elementwise_chunk c;
    c.t = lathe_elementwise_find(a, chunk);
    c.x = a->tensors + c.t;
    c.begin = (chunk - a->first_chunk[c.t]) * LATHE_ELEMENTWISE_CHUNK;
    c.end = c.begin + LATHE_ELEMENTWISE_CHUNK < c.x->n ? c.begin + LATHE_ELEMENTWISE_CHUNK : c.x->n;
    return c;
}

/* Loads from a slot; a slot that slots() did not declare (NULL) reads as zero. */
static __device__ inline float lathe_elementwise_load(const void *slot, int64_t i, uint32_t half)
{
    if (slot == NULL)
        return 0.0f;
    return half ? lathe_bf16_to_f32(((const uint16_t *)slot)[i]) : ((const float *)slot)[i];
}

/* Stores slot k of an element at position i of the memory; rounds as the CPU loop does. */
static __device__ inline void lathe_elementwise_store(void *slot, int64_t i, uint32_t half,
                                                      float value, const lathe_element *at, int k,
                                                      int is_exact)
{
    if (slot == NULL)
        return;
    if (!half) {
        ((float *)slot)[i] = value;
        return;
    }
    if (is_exact) {
        ((uint16_t *)slot)[i] = lathe_f32_to_bf16_exact(value);
        return;
    }
    const lathe_u32x4 r = lathe_rng_block(
        at->seed, at->step, lathe_elementwise_stream(at->tensor, k), (uint64_t)(at->index / 8));
    const uint32_t random = r.v[at->index / 2 % 4] >> at->index % 2 * 16 & 0xffffu;
    ((uint16_t *)slot)[i] = lathe_f32_to_bf16_random(value, random);
}

/* After parameter i changed from `was` to `now`: writes its compute copy and adds to the chunk's
 * sums. */
static __device__ inline void lathe_elementwise_done(const lathe_optimizer_tensor *x, int64_t i,
                                                     float was, float now, double *io_change,
                                                     double *io_size)
{
    const double d = (double)now - (double)was;
    if (x->shadow != NULL)
        x->shadow[i] =
            x->shadow_dtype == LATHE_F16 ? lathe_f32_to_f16(now) : lathe_f32_to_bf16(now);
    *io_change += d * d;
    *io_size += (double)now * (double)now;
}

/* Adds this thread's sums to the sums of a chunk. All threads must call it. A test that runs the
 * threads one after the other defines its own version. */
#ifndef lathe_elementwise_sums
static __device__ inline void lathe_elementwise_sums(const lathe_elementwise_args *a, int64_t chunk,
                                                     double change, double size)
{
    if (a->sums == NULL)
        return;
    change = lathe_cuda_block_sum<LATHE_ELEMENTWISE_THREADS>(change);
    size = lathe_cuda_block_sum<LATHE_ELEMENTWISE_THREADS>(size);
    if (threadIdx.x == 0) {
        a->sums[2 * chunk] = change;
        a->sums[2 * chunk + 1] = size;
    }
}
#endif

/* Elements whose memory a thread reads before it computes the first, so that reads of all of them
 * are in flight together. Without this the memory of an H200 delivers three quarters of its rate.
 */
#define LATHE_ELEMENTWISE_AHEAD 4

#ifdef __NVCC__
#define LATHE__UNROLL _Pragma("unroll")
#else
#define LATHE__UNROLL
#endif

/* name##_elements(): the elements of [begin, end) that are this thread's, every blockDim.x-th in
 * ascending order. is_plain, a constant in each of its two copies: every slot is f32 and there. For
 * an element beyond the end a thread reads its own first one again, which no other thread writes.
 */
#define LATHE__ELEMENTWISE(name, n_slots, exact)                                                   \
    static __device__ inline void name##_elements(                                                 \
        const lathe_elementwise_args *a, const name##_uniform *uniform,                            \
        const lathe_elementwise_chunk *c, const int is_plain, double *io_change, double *io_size)  \
    {                                                                                              \
        enum { AHEAD = LATHE_ELEMENTWISE_AHEAD, N = (n_slots) > 0 ? (n_slots) : 1 };               \
        const name##_uniform u = *uniform;                                                         \
        const lathe_optimizer_tensor *const x = c->x;                                              \
        const uint64_t seed = a->counter[0], step = a->counter[1], tensor = (uint64_t)x->tensor;   \
        const float grad_scale = a->scalars[LATHE_SCALAR_GRAD_SCALE];                              \
        float *__restrict__ const p = x->param;                                                    \
        const float *__restrict__ const g = x->grad;                                               \
        uint16_t *__restrict__ const shadow = x->shadow;                                           \
        void *const slots[4] = {x->slots[0], x->slots[1], x->slots[2], x->slots[3]};               \
        const uint32_t half = x->half_slots;                                                       \
        const int f16 = x->shadow_dtype == LATHE_F16;                                              \
        const int64_t first = x->first, end = c->end, stride = blockDim.x;                         \
        for (int64_t from = c->begin + threadIdx.x; from < end; from += AHEAD * stride) {          \
            float was[AHEAD], grad[AHEAD], s[AHEAD][N];                                            \
            LATHE__UNROLL for (int j = 0; j < AHEAD; j++)                                          \
            {                                                                                      \
                const int64_t i = from + j * stride < end ? from + j * stride : from;              \
                was[j] = p[i];                                                                     \
                grad[j] = g[i];                                                                    \
                LATHE__UNROLL for (int k = 0; k < (n_slots); k++) s[j][k] =                        \
                    is_plain ? ((const float *)slots[k])[i]                                        \
                             : lathe_elementwise_load(slots[k], i, half >> k & 1u);                \
            }                                                                                      \
            LATHE__UNROLL for (int j = 0; j < AHEAD; j++)                                          \
            {                                                                                      \
                const int64_t i = from + j * stride;                                               \
                const lathe_element at = {first + i, seed, step, tensor};                          \
                if (i >= end)                                                                      \
                    break;                                                                         \
                const float now = name##_element(&u, was[j], grad[j] * grad_scale, s[j], &at);     \
                const double d = (double)now - (double)was[j];                                     \
                p[i] = now;                                                                        \
                LATHE__UNROLL for (int k = 0; k < (n_slots); k++)                                  \
                {                                                                                  \
                    if (is_plain)                                                                  \
                        ((float *)slots[k])[i] = s[j][k];                                          \
                    else                                                                           \
                        lathe_elementwise_store(slots[k], i, half >> k & 1u, s[j][k], &at, k,      \
                                                exact);                                            \
                }                                                                                  \
                if (shadow != NULL)                                                                \
                    shadow[i] = f16 ? lathe_f32_to_f16(now) : lathe_f32_to_bf16(now);              \
                *io_change += d * d;                                                               \
                *io_size += (double)now * (double)now;                                             \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    LATHE_CUDA_KERNEL(lathe_elementwise_step, LATHE_ELEMENTWISE_THREADS, lathe_elementwise_args)   \
    {                                                                                              \
        for (int64_t chunk = blockIdx.x; chunk < a.n_chunks; chunk += gridDim.x) {                 \
            const lathe_elementwise_chunk c = lathe_elementwise_chunk_of(&a, chunk);               \
            const lathe_optimizer_tensor *const x = c.x;                                           \
            const name##_uniform u =                                                               \
                name##_prepare(a.scalars, (float)x->lr_mult, (float)x->weight_decay_mult);         \
            int is_plain = x->half_slots == 0;                                                     \
            double change = 0.0, size = 0.0;                                                       \
            for (int k = 0; k < (n_slots); k++)                                                    \
                is_plain = is_plain && x->slots[k] != NULL;                                        \
            if (is_plain)                                                                          \
                name##_elements(&a, &u, &c, 1, &change, &size);                                    \
            else                                                                                   \
                name##_elements(&a, &u, &c, 0, &change, &size);                                    \
            lathe_elementwise_sums(&a, chunk, change, size);                                       \
        }                                                                                          \
    }

#endif
