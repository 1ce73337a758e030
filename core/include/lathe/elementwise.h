/* Elementwise optimizers from one source: the update of one element, written once in the common
 * subset of C and CUDA, becomes a vectorised CPU loop (C compiler) and a CUDA kernel (nvcc).
 *
 * A plugin writes three things and calls the macro:
 *
 *     typedef struct lion_uniform { float lr, ...; } lion_uniform;
 *     LATHE_HD static inline lion_uniform lion_prepare(const float *scalars, float lr_mult,
 *                                                      float weight_decay_mult);
 *     LATHE_HD static inline float lion_element(const lion_uniform *u, float p, float g,
 *                                               float *s, const lathe_element *at);
 *     LATHE_ELEMENTWISE(lion, 1)       -- 1: f32 state slots, 0..4
 *     #ifndef __CUDACC__
 *     ... step(): return lathe_elementwise_run(host, step, 1, lion_chunk);
 *     #endif
 *
 * prepare() gathers what is the same for all elements of a tensor; everything it may know comes
 * through `scalars` [LATHE_N_SCALARS] (scalars() of the optimizer puts its constants there, computed
 * in double), so a kernel needs no instance and a captured graph stays valid from step to step.
 * element() returns the new parameter, updates s[0..n_slots-1] in place; g is already multiplied by
 * LATHE_SCALAR_GRAD_SCALE. The loop around it refreshes the bf16 shadow.
 *
 * CPU and GPU agree bit for bit when element() and prepare() use only + - * / (never contracted:
 * -ffp-contract=off, -fmad=false), explicit fmaf, sqrtf, fabsf, comparisons and integers. No other
 * function: their last bit differs between libraries.
 */
#ifndef LATHE_ELEMENTWISE_H
#define LATHE_ELEMENTWISE_H

#include <math.h>

#include "optimizer.h"
#include "rng.h"

/* Elements that one parallel_for body, or one CUDA block, takes. A chunk never spans tensors. */
#define LATHE_ELEMENTWISE_CHUNK 16384

/** Where an element is, for counter RNG: lathe_rng_block(seed, step, tensor, index / 4) and so on.
 */
typedef struct lathe_element {
    int64_t index; /* in the whole tensor, whatever its sharding */
    uint64_t seed, step;
    uint64_t tensor;
} lathe_element;

/** Sole argument, by value, of the kernel named LATHE_ELEMENTWISE_KERNEL in cuda_image.
 *
 *  Grid: any number of blocks of LATHE_ELEMENTWISE_THREADS threads; a block takes chunks
 *  blockIdx.x, blockIdx.x + gridDim.x, ...; n_chunks blocks are a good choice. No shared memory.
 *  All pointers are device memory; nothing in here changes from step to step, so a launch may be
 *  captured and replayed. */
typedef struct lathe_elementwise_args {
    const lathe_optimizer_tensor *tensors; /* [n_tensors], its pointers in device memory too */
    const int64_t *first_chunk;            /* [n_tensors + 1]: index of each tensor's first chunk of
                                              LATHE_ELEMENTWISE_CHUNK elements; last: n_chunks */
    const float *scalars;                  /* [LATHE_N_SCALARS] */
    const uint64_t *counter;               /* [2]: seed, step */
    int64_t n_chunks;
    int64_t n_tensors;
} lathe_elementwise_args;
LATHE_ABI_SIZE(lathe_elementwise_args, 48);

#define LATHE_ELEMENTWISE_KERNEL "lathe_elementwise_step"
#define LATHE_ELEMENTWISE_THREADS 256

/* cuda_image of the optimizer's table: the embedded fatbin, or NULL in a build without nvcc. */
#ifdef LATHE_CUDA_EMBEDDED
extern const unsigned char lathe_cuda_image[] __attribute__((visibility("hidden")));
#define LATHE_CUDA_IMAGE ((const void *)lathe_cuda_image)
#else
#define LATHE_CUDA_IMAGE NULL
#endif

/* One element, common to both loops; `i` is in scope, as are the pointers. */
#define LATHE_ELEMENTWISE_BODY(name, n_slots)                                                      \
    const lathe_element at = {first + i, seed, step, tensor};                                      \
    float s[4] = {(n_slots) > 0 ? s0[i] : 0.0f, (n_slots) > 1 ? s1[i] : 0.0f,                      \
                  (n_slots) > 2 ? s2[i] : 0.0f, (n_slots) > 3 ? s3[i] : 0.0f};                     \
    const float updated = name##_element(&u, p[i], g[i] * grad_scale, s, &at);                     \
    p[i] = updated;                                                                                \
    if ((n_slots) > 0)                                                                             \
        s0[i] = s[0];                                                                              \
    if ((n_slots) > 1)                                                                             \
        s1[i] = s[1];                                                                              \
    if ((n_slots) > 2)                                                                             \
        s2[i] = s[2];                                                                              \
    if ((n_slots) > 3)                                                                             \
        s3[i] = s[3];

#ifdef __CUDACC__
#include "elementwise_cuda.h"
#else
#include "elementwise_cpu.h"
#endif

#endif
