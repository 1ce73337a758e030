/* The CPU half of elementwise.h: the vectorised loop, and its spread over the host's threads. Not
 * included alone. */
#ifndef LATHE_ELEMENTWISE_CPU_H
#define LATHE_ELEMENTWISE_CPU_H

#include "elementwise.h"
#include "tensor_chunks.h"

/** Updates n elements; the pointers of a tensor, advanced to the chunk's first element. */
typedef void (*lathe_elementwise_fn)(const float *scalars, const lathe_optimizer_tensor *x,
                                     uint64_t seed, uint64_t step);

/* Elements that go through f32 buffers at a time, where slots or the shadow are narrower. */
#define LATHE_ELEMENTWISE_TILE 1024

#define LATHE_ELEMENTWISE_INLINE static inline __attribute__((always_inline))

LATHE_ELEMENTWISE_INLINE void lathe_elementwise_widen(float *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = lathe_bf16_to_f32(from[i]);
}

/* Rounds n <= LATHE_ELEMENTWISE_TILE values of slot k, the first of them element `first`. Element e
 * takes half e%2 of word e/2%4 of block e/8. */
LATHE_ELEMENTWISE_INLINE void lathe_elementwise_round(uint16_t *to, const float *from, int64_t n,
                                                      uint64_t seed, uint64_t step, uint64_t stream,
                                                      int64_t first)
{
    uint32_t random[LATHE_ELEMENTWISE_TILE / 2 + 8], cut = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        cut |= bits;
    }
    if ((cut & 0xffffu) == 0) { /* nothing to round, whatever the numbers: an element did it */
        for (int64_t i = 0; i < n; i++)
            to[i] = lathe_f32_to_bf16(from[i]);
        return;
    }
    const int64_t block = first / 8, n_blocks = (first + n - 1) / 8 - block + 1;
    const int64_t skip = first - 8 * block;
    for (int64_t b = 0; b < n_blocks; b++) {
        const lathe_u32x4 r = lathe_rng_block(seed, step, stream, (uint64_t)(block + b));
        for (int k = 0; k < 4; k++)
            random[4 * b + k] = r.v[k];
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = lathe_f32_to_bf16_random(from[i],
                                         random[(skip + i) / 2] >> (skip + i) % 2 * 16 & 0xffffu);
}

#define LATHE__LOAD_F32(k) s##k[i]
#define LATHE__STORE_F32(k) s##k[i] = s[k]

#define LATHE_ELEMENTWISE(name, n_slots)                                                           \
    LATHE_CLONES static void name##_loop(                                                          \
        const name##_uniform *uniform, float grad_scale, float *__restrict__ p,                    \
        const float *__restrict__ g, float *__restrict__ s0, float *__restrict__ s1,               \
        float *__restrict__ s2, float *__restrict__ s3, uint16_t *__restrict__ shadow, int64_t n,  \
        int64_t first, uint64_t tensor, uint64_t seed, uint64_t step)                              \
    {                                                                                              \
        const name##_uniform u = *uniform;                                                         \
        (void)s0, (void)s1, (void)s2, (void)s3;                                                    \
        if (shadow == NULL)                                                                        \
            for (int64_t i = 0; i < n; i++) {                                                      \
                LATHE_ELEMENTWISE_BODY(name, n_slots, LATHE__LOAD_F32, LATHE__STORE_F32)           \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                LATHE_ELEMENTWISE_BODY(name, n_slots, LATHE__LOAD_F32, LATHE__STORE_F32)           \
                shadow[i] = lathe_f32_to_bf16(updated);                                            \
            }                                                                                      \
    }                                                                                              \
    /* Slots in bf16, or a shadow in f16: tiles in f32. */                                         \
    LATHE_CLONES static void name##_tiles(const name##_uniform *u, float grad_scale,               \
                                          const lathe_optimizer_tensor *x, uint64_t seed,          \
                                          uint64_t step)                                           \
    {                                                                                              \
        const int f16 = x->shadow != NULL && x->shadow_dtype == LATHE_F16;                         \
        float wide[4][LATHE_ELEMENTWISE_TILE];                                                     \
        for (int64_t at = 0; at < x->n; at += LATHE_ELEMENTWISE_TILE) {                            \
            const int64_t left = x->n - at;                                                        \
            const int64_t n = left < LATHE_ELEMENTWISE_TILE ? left : LATHE_ELEMENTWISE_TILE;       \
            float *s[4] = {NULL, NULL, NULL, NULL};                                                \
            for (int k = 0; k < (n_slots); k++) {                                                  \
                s[k] = x->half_slots >> k & 1u ? wide[k] : (float *)x->slots[k] + at;              \
                if (s[k] == wide[k])                                                               \
                    lathe_elementwise_widen(wide[k], (const uint16_t *)x->slots[k] + at, n);       \
            }                                                                                      \
            name##_loop(u, grad_scale, x->param + at, x->grad + at, s[0], s[1], s[2], s[3],        \
                        x->shadow != NULL && !f16 ? x->shadow + at : NULL, n, x->first + at,       \
                        (uint64_t)x->tensor, seed, step);                                          \
            for (int k = 0; k < (n_slots); k++)                                                    \
                if (s[k] == wide[k])                                                               \
                    lathe_elementwise_round((uint16_t *)x->slots[k] + at, wide[k], n, seed, step,  \
                                            lathe_elementwise_stream((uint64_t)x->tensor, k),      \
                                            x->first + at);                                        \
            for (int64_t i = 0; f16 && i < n; i++)                                                 \
                x->shadow[at + i] = lathe_f32_to_f16(x->param[at + i]);                            \
        }                                                                                          \
    }                                                                                              \
    static void name##_chunk(const float *scalars, const lathe_optimizer_tensor *x, uint64_t seed, \
                             uint64_t step)                                                        \
    {                                                                                              \
        const float grad_scale = scalars[LATHE_SCALAR_GRAD_SCALE];                                 \
        const name##_uniform u =                                                                   \
            name##_prepare(scalars, (float)x->lr_mult, (float)x->weight_decay_mult);               \
        if (x->half_slots != 0 || (x->shadow != NULL && x->shadow_dtype == LATHE_F16))             \
            name##_tiles(&u, grad_scale, x, seed, step);                                           \
        else                                                                                       \
            name##_loop(&u, grad_scale, x->param, x->grad, (float *)x->slots[0],                   \
                        (float *)x->slots[1], (float *)x->slots[2], (float *)x->slots[3],          \
                        x->shadow, x->n, x->first, (uint64_t)x->tensor, seed, step);               \
    }

/* The chunk of a tensor as a tensor of its own, so that a loop sees nothing else. */
typedef struct lathe_elementwise_job {
    lathe_elementwise_fn fn;
} lathe_elementwise_job;

static inline void lathe_elementwise_body(void *ctx, const lathe_optimizer_step *step,
                                          const lathe_optimizer_tensor *tensor, int64_t begin,
                                          int64_t end)
{
    lathe_optimizer_tensor x = *tensor;
    x.n = end - begin;
    x.first += begin;
    x.param += begin;
    x.grad += begin;
    x.shadow = x.shadow != NULL ? x.shadow + begin : NULL;
    for (int k = 0; k < LATHE_MAX_SLOTS; k++)
        if (x.slots[k] != NULL)
            x.slots[k] = (char *)x.slots[k] + begin * (x.half_slots >> k & 1u ? 2 : 4);
    ((const lathe_elementwise_job *)ctx)->fn(step->scalars, &x, step->seed, (uint64_t)step->step);
}

/** One optimizer step over all tensors: fn for each chunk, spread over host->parallel_for.
 *  Allocates nothing; the result does not depend on the thread count. LATHE_E_ARG: a tensor without
 *  param, grad or one of its n_slots slots. */
static inline lathe_status lathe_elementwise_run(const lathe_host *host,
                                                 const lathe_optimizer_step *step, int32_t n_slots,
                                                 lathe_elementwise_fn fn)
{
    lathe_elementwise_job job = {fn};
    return lathe_chunks_run(host, step, n_slots, lathe_chunk_elements, lathe_elementwise_body,
                            &job);
}

#endif
