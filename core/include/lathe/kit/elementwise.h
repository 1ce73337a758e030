/* Elementwise optimizers from one source: the update of one element, written once in the common
 * subset of C and CUDA, becomes a vectorised CPU loop (C compiler) and a CUDA kernel (nvcc).
 *
 * A plugin writes its element and calls the macros:
 *
 *     enum { BETA1, NEW1, BETA2, NEW2, DECAY };   -- what scalars() fills
 *     LATHE_UNIFORM(lion, DECAY)                  -- makes lion_uniform and lion_prepare()
 *     LATHE_HD static inline float lion_element(const lion_uniform *u, float p, float g,
 *                                               float *s, const lathe_element *at);
 *     LATHE_ELEMENTWISE(lion, 1)                  -- 1: state slots, 0..4
 *     #ifndef __CUDACC__
 *     ... step(): return lathe_elementwise_run(host, step, 1, lion_chunk);
 *     #endif
 *
 * prepare() computes the values that all elements of a tensor share (the "uniform"). Its only
 * input is `scalars` [LATHE_N_SCALARS], where the optimizer's scalars() puts its constants,
 * computed in double. So a kernel needs no instance, and a captured graph stays valid from step to
 * step. element() returns the new parameter and updates s[0..n_slots-1] in place; g is already
 * multiplied by LATHE_SCALAR_GRAD_SCALE. The loop around it updates the bf16 or f16 compute copy
 * (shadow).
 *
 * element() always computes in f32; slots() may declare each slot as f32 or bf16. bf16 slots are
 * rounded stochastically, with random bits from the counter (seed, step, tensor, slot, index).
 * Rounding to nearest would lose every change below 2^-9 of the value, and so the slow averages
 * (beta2 = 0.999 changes by 2^-10 per step); stochastic rounding is right on average.
 *
 * CPU and GPU agree bit for bit if element() and prepare() use only + - * / (never contracted:
 * -ffp-contract=off, -fmad=false), explicit fmaf, sqrtf, fabsf, comparisons and integers. Other
 * functions differ in the last bit between libraries.
 */
#ifndef LATHE_KIT_ELEMENTWISE_H
#define LATHE_KIT_ELEMENTWISE_H

#include <math.h>

#include "code_image.h"
#include "lathe/optimizer.h"
#include "lathe/rng.h"
#include "tensor_chunks.h"

/* Elements per chunk, the work of one parallel_for body or one CUDA block. A chunk is part of
 * one tensor. */
#define LATHE_ELEMENTWISE_CHUNK LATHE_CHUNK_ELEMENTS

/** Where an element is, for counter RNG: lathe_rng_block(seed, step, tensor, index / 4) and so on.
 */
typedef struct lathe_element {
    int64_t index; /* in the whole tensor, whatever its sharding */
    uint64_t seed, step;
    uint64_t tensor;
} lathe_element;

/** The only argument, passed by value, of the kernel named LATHE_ELEMENTWISE_KERNEL in cuda_image.
 *
 *  Grid: any number of blocks of LATHE_ELEMENTWISE_THREADS threads; a block takes chunks
 *  blockIdx.x, blockIdx.x + gridDim.x, ...; n_chunks blocks are a good choice. No dynamic shared
 *  memory. All pointers are device memory; nothing in here changes from step to step, so a
 *  launch may be captured and replayed. */
typedef struct lathe_elementwise_args {
    const lathe_optimizer_tensor *tensors; /* [n_tensors], its pointers in device memory too */
    const int64_t *first_chunk;            /* [n_tensors + 1]: index of each tensor's first chunk of
                                              LATHE_ELEMENTWISE_CHUNK elements; last: n_chunks */
    const float *scalars;                  /* [LATHE_N_SCALARS] */
    const uint64_t *counter;               /* [2]: seed, step */
    int64_t n_chunks;
    int64_t n_tensors;
    /* [n_chunks, 2] out: for each chunk the sums of (new - old)^2 and of new^2 over its parameters,
     * in an order that depends only on the chunk; NULL: not wanted */
    double *sums;
} lathe_elementwise_args;
LATHE_ABI_SIZE(lathe_elementwise_args, 56);

#define LATHE_ELEMENTWISE_KERNEL "lathe_elementwise_step"
#define LATHE_ELEMENTWISE_THREADS 256

/** Factor of decoupled weight decay on a parameter: 1 - lr*decay*weight_decay_mult. */
LATHE_HD static inline float lathe_keep(float lr, float decay, float weight_decay_mult)
{
    return fmaf(-lr, decay * weight_decay_mult, 1.0f);
}

/** Sign of x: -1, 0 or 1; NaN for NaN. */
LATHE_HD static inline float lathe_sign(float x)
{
    return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x;
}

/** The uniform of optimizers that need no other derived values. */
typedef struct lathe_uniform {
    float lr;      /* of the tensor */
    float decay;   /* of the tensor */
    float keep;    /* 1 - lr*decay */
    float user[8]; /* as scalars() filled it */
} lathe_uniform;

/* Makes lathe_uniform the uniform of `name`, and defines its prepare(). decay_at: the index at
 * which scalars() puts the weight decay. */
#define LATHE_UNIFORM(name, decay_at)                                                              \
    typedef lathe_uniform name##_uniform;                                                          \
    LATHE_HD static inline lathe_uniform name##_prepare(const float *scalars, float lr_mult,       \
                                                        float weight_decay_mult)                   \
    {                                                                                              \
        lathe_uniform u;                                                                           \
        for (int k = 0; k < 8; k++)                                                                \
            u.user[k] = scalars[LATHE_SCALAR_USER + k];                                            \
        u.lr = scalars[LATHE_SCALAR_LR] * lr_mult;                                                 \
        u.decay = u.user[decay_at] * weight_decay_mult;                                            \
        u.keep = lathe_keep(u.lr, u.user[decay_at], weight_decay_mult);                            \
        return u;                                                                                  \
    }

/* RNG stream for the rounding of slot k of a tensor; differs from the streams that an optimizer
 * uses itself, which are the tensor's number alone. */
LATHE_HD static inline uint64_t lathe_elementwise_stream(uint64_t tensor, int k)
{
    return (uint64_t)(0x5300 + k) << 32 | (uint32_t)tensor;
}

/** x to bf16, up or down at random: `random` is uniform in 0 .. 65535. */
LATHE_HD static inline uint16_t lathe_f32_to_bf16_random(float x, uint32_t random)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const float zero = x - x; /* NaN if x is not finite: then nothing is added */
    bits += zero == 0.0f ? random : 0u;
    return (uint16_t)((x != x ? bits | 0x00400000u : bits) >> 16);
}

/** x to bf16, for x that bf16 can represent exactly. */
LATHE_HD static inline uint16_t lathe_f32_to_bf16_exact(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* The update of one element in the CPU loop, whose local variables it uses. */
#define LATHE_ELEMENTWISE_BODY(name, n_slots, LOAD, STORE)                                         \
    const lathe_element at = {first + i, seed, step, tensor};                                      \
    float s[4] = {(n_slots) > 0 ? LOAD(0) : 0.0f, (n_slots) > 1 ? LOAD(1) : 0.0f,                  \
                  (n_slots) > 2 ? LOAD(2) : 0.0f, (n_slots) > 3 ? LOAD(3) : 0.0f};                 \
    const float updated = name##_element(&u, p[i], g[i] * grad_scale, s, &at);                     \
    p[i] = updated;                                                                                \
    if ((n_slots) > 0) {                                                                           \
        STORE(0);                                                                                  \
    }                                                                                              \
    if ((n_slots) > 1) {                                                                           \
        STORE(1);                                                                                  \
    }                                                                                              \
    if ((n_slots) > 2) {                                                                           \
        STORE(2);                                                                                  \
    }                                                                                              \
    if ((n_slots) > 3) {                                                                           \
        STORE(3);                                                                                  \
    }

#define LATHE_ELEMENTWISE(name, n_slots) LATHE__ELEMENTWISE(name, n_slots, 0)

/* For an element() whose values for bf16 slots are already exact in bf16: no rounding, no random
 * numbers. */
#define LATHE_ELEMENTWISE_EXACT(name, n_slots) LATHE__ELEMENTWISE(name, n_slots, 1)

#ifdef __CUDACC__
#include "elementwise_cuda.h"
#else
#include "elementwise_cpu.h"
#endif

#endif
