/* The CPU half of elementwise.h: the vectorised loop, run in parallel on the host's threads.
 * Include elementwise.h instead. */
#ifndef LATHE_KIT_ELEMENTWISE_CPU_H
#define LATHE_KIT_ELEMENTWISE_CPU_H

#include "elementwise.h"
#include "rng_fill.h"
#include "tensor_chunks.h"

/* Elements per pass of the loop: their random numbers and parameters stay in the L1 cache. */
#define LATHE_ELEMENTWISE_TILE 1024

#define LATHE_ELEMENTWISE_INLINE static inline __attribute__((always_inline))

/* A view of n elements of a tensor, from `begin` on. */
static inline lathe_optimizer_tensor lathe_elementwise_range(const lathe_optimizer_tensor *tensor,
                                                             int64_t begin, int64_t n)
{
    lathe_optimizer_tensor x = *tensor;
    x.n = n;
    x.first += begin;
    x.param += begin;
    x.grad += begin;
    x.shadow = x.shadow != NULL ? x.shadow + begin : NULL;
    for (int k = 0; k < LATHE_MAX_SLOTS; k++)
        if (x.slots[k] != NULL)
            x.slots[k] = (char *)x.slots[k] + begin * (x.half_slots >> k & 1u ? 2 : 4);
    return x;
}

LATHE_STATIC_ASSERT(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "half 0 of a word comes first");

/* Words of the counter RNG, and their halves: element e takes half e%2 of word e/2%4 of block
 * e/8. */
typedef union lathe_elementwise_random {
    uint32_t words[LATHE_ELEMENTWISE_TILE / 2 + 8];
    uint16_t halves[LATHE_ELEMENTWISE_TILE + 16];
} lathe_elementwise_random;

/* Fills in the random numbers that round elements [first, first + n) of a slot, n <=
 * LATHE_ELEMENTWISE_TILE. */
static inline const uint16_t *lathe_elementwise_draw(lathe_elementwise_random *r, int64_t n,
                                                     uint64_t seed, uint64_t step, uint64_t stream,
                                                     int64_t first)
{
    const int64_t block = first / 8;
    lathe_rng_fill(r->words, (first + n + 7) / 8 - block, seed, step, stream, (uint64_t)block);
    return r->halves + first % 8;
}

/* Load and store element i of slot k. Bit k of `half`: the slot is bf16, else f32. `half` is a
 * constant in each copy of the loop, so only one branch is compiled. r##k: random numbers for
 * the rounding; not used for f32 slots and by exact optimizers. */
#define LATHE__LOAD_SLOT(k)                                                                        \
    (half >> (k)&1u ? lathe_bf16_to_f32(((const uint16_t *)s##k)[i]) : ((const float *)s##k)[i])
#define LATHE__STORE_SLOT(k)                                                                       \
    if (half >> (k)&1u)                                                                            \
        ((uint16_t *)s##k)[i] =                                                                    \
            is_exact ? lathe_f32_to_bf16_exact(s[k]) : lathe_f32_to_bf16_random(s[k], r##k[i]);    \
    else                                                                                           \
        ((float *)s##k)[i] = s[k]

/* One copy of the loop for each set of bf16 slots; the caller updates the compute copy
 * afterwards. */
#define LATHE__LOOP_CASE(name, n_slots, mask)                                                      \
    case mask:                                                                                     \
        if ((mask) < 1 << (n_slots))                                                               \
            name##_loop(u, grad_scale, x, mask, NULL, random, seed, step);                         \
        break;

#define LATHE__ELEMENTWISE(name, n_slots, exact)                                                   \
    LATHE_ELEMENTWISE_INLINE void name##_loop(const name##_uniform *uniform, float grad_scale,     \
                                              const lathe_optimizer_tensor *x, uint32_t half,      \
                                              uint16_t *shadow, const uint16_t *const *random,     \
                                              uint64_t seed, uint64_t step)                        \
    {                                                                                              \
        const name##_uniform u = *uniform;                                                         \
        float *const p = x->param;                                                                 \
        const float *const g = x->grad;                                                            \
        void *const s0 = x->slots[0], *const s1 = x->slots[1];                                     \
        void *const s2 = x->slots[2], *const s3 = x->slots[3];                                     \
        const uint16_t *const r0 = random[0], *const r1 = random[1];                               \
        const uint16_t *const r2 = random[2], *const r3 = random[3];                               \
        const int64_t n = x->n, first = x->first;                                                  \
        const uint64_t tensor = (uint64_t)x->tensor;                                               \
        const int is_exact = exact;                                                                \
        (void)s0, (void)s1, (void)s2, (void)s3, (void)r0, (void)r1, (void)r2, (void)r3;            \
        (void)half, (void)is_exact;                                                                \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                       \
        {                                                                                          \
            LATHE_ELEMENTWISE_BODY(name, n_slots, LATHE__LOAD_SLOT, LATHE__STORE_SLOT)             \
            if (shadow != NULL)                                                                    \
                shadow[i] = lathe_f32_to_bf16(updated);                                            \
        }                                                                                          \
    }                                                                                              \
    LATHE_CLONES static void name##_tile(                                                          \
        const name##_uniform *u, float grad_scale, const lathe_optimizer_tensor *x,                \
        const uint16_t *const *random, uint64_t seed, uint64_t step)                               \
    {                                                                                              \
        if (x->half_slots == 0 && x->shadow != NULL && x->shadow_dtype != LATHE_F16) {             \
            name##_loop(u, grad_scale, x, 0, x->shadow, random, seed, step);                       \
            return;                                                                                \
        }                                                                                          \
        switch (x->half_slots) {                                                                   \
            LATHE__LOOP_CASE(name, n_slots, 0)                                                     \
            LATHE__LOOP_CASE(name, n_slots, 1)                                                     \
            LATHE__LOOP_CASE(name, n_slots, 2)                                                     \
            LATHE__LOOP_CASE(name, n_slots, 3)                                                     \
            LATHE__LOOP_CASE(name, n_slots, 4)                                                     \
            LATHE__LOOP_CASE(name, n_slots, 5)                                                     \
            LATHE__LOOP_CASE(name, n_slots, 6)                                                     \
            LATHE__LOOP_CASE(name, n_slots, 7)                                                     \
            LATHE__LOOP_CASE(name, n_slots, 8)                                                     \
            LATHE__LOOP_CASE(name, n_slots, 9)                                                     \
            LATHE__LOOP_CASE(name, n_slots, 10)                                                    \
            LATHE__LOOP_CASE(name, n_slots, 11)                                                    \
            LATHE__LOOP_CASE(name, n_slots, 12)                                                    \
            LATHE__LOOP_CASE(name, n_slots, 13)                                                    \
            LATHE__LOOP_CASE(name, n_slots, 14)                                                    \
            LATHE__LOOP_CASE(name, n_slots, 15)                                                    \
        }                                                                                          \
        lathe_shadow_refresh(x, 0, x->n);                                                          \
    }                                                                                              \
    static void name##_chunk(void *ctx, const lathe_optimizer_step *s,                             \
                             const lathe_optimizer_tensor *x, int64_t begin, int64_t end)          \
    {                                                                                              \
        const uint64_t seed = s->seed, step = (uint64_t)s->step;                                   \
        const float grad_scale = s->scalars[LATHE_SCALAR_GRAD_SCALE];                              \
        const name##_uniform u =                                                                   \
            name##_prepare(s->scalars, (float)x->lr_mult, (float)x->weight_decay_mult);            \
        lathe_elementwise_random numbers[4];                                                       \
        const uint16_t *random[4] = {NULL, NULL, NULL, NULL};                                      \
        (void)ctx;                                                                                 \
        for (int64_t at = begin; at < end; at += LATHE_ELEMENTWISE_TILE) {                         \
            const int64_t left = end - at;                                                         \
            const lathe_optimizer_tensor tile = lathe_elementwise_range(                           \
                x, at, left < LATHE_ELEMENTWISE_TILE ? left : LATHE_ELEMENTWISE_TILE);             \
            for (int k = 0; k < (n_slots) && !(exact); k++)                                        \
                if (tile.half_slots >> k & 1u)                                                     \
                    random[k] = lathe_elementwise_draw(                                            \
                        &numbers[k], tile.n, seed, step,                                           \
                        lathe_elementwise_stream((uint64_t)x->tensor, k), tile.first);             \
            name##_tile(&u, grad_scale, &tile, random, seed, step);                                \
        }                                                                                          \
    }

/** One optimizer step over all tensors: calls fn, the name##_chunk of LATHE_ELEMENTWISE, for each
 *  chunk, in parallel through host->parallel_for. Allocates nothing; the result does not depend on
 *  the thread count. LATHE_E_ARG: a tensor without param, grad or one of its n_slots slots. */
static inline lathe_status lathe_elementwise_run(const lathe_host *host,
                                                 const lathe_optimizer_step *step, int32_t n_slots,
                                                 lathe_chunk_fn fn)
{
    return lathe_chunks_run(host, step, n_slots, lathe_chunk_elements, fn, NULL);
}

#endif
