/* Many blocks of the counter RNG at once: gives the words of lathe_rng_block, several blocks in
 * parallel with AVX2 or AVX-512 if the CPU has them.
 *
 * A 64-bit lane holds one word of a block in its lower half. The multiplication reads only the
 * lower half and gives the full product; other bits in the upper half are masked off at the end.
 * The CPU is tested at every call, so one binary runs on all machines.
 */
#ifndef LATHE_KIT_RNG_FILL_H
#define LATHE_KIT_RNG_FILL_H

#include <string.h>

#include "lathe/rng.h"

/* The keys of the ten rounds, and the counter words that all blocks share. */
typedef struct lathe_rng_lanes {
    uint64_t key[10][2];
    uint64_t first, c1, c2, c3; /* first: index of the first block */
} lathe_rng_lanes;

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Defines a function that fills whole registers of blocks and returns the number of blocks done.
 * ...: the block in each lane, chosen so that the unpack instructions put the words in order. */
#define LATHE__RNG_LANES(name, isa, lanes, vector, mm, ...)                                        \
    typedef uint64_t name##_u64 __attribute__((vector_size(8 * (lanes))));                         \
    __attribute__((target(isa))) static inline int64_t name(const lathe_rng_lanes *r,              \
                                                            uint32_t *out, int64_t n)              \
    {                                                                                              \
        const name##_u64 zero = {0}, up = {__VA_ARGS__}, half = zero + 0xffffffffu;                \
        const vector m0 = (vector)(zero + 0xD2511F53u), m2 = (vector)(zero + 0xCD9E8D57u);         \
        int64_t at = 0;                                                                            \
        for (; at + (lanes) <= n; at += (lanes)) {                                                 \
            name##_u64 c0 = r->first + (uint64_t)at + up, c1 = c0 >> 32 ^ r->c1;                   \
            name##_u64 c2 = zero + r->c2, c3 = zero + r->c3;                                       \
            for (int round = 0; round < 10; round++) {                                             \
                const name##_u64 a = (name##_u64)mm##_mul_epu32((vector)c0, m0);                   \
                const name##_u64 b = (name##_u64)mm##_mul_epu32((vector)c2, m2);                   \
                c0 = b >> 32 ^ c1 ^ r->key[round][0];                                              \
                c2 = a >> 32 ^ c3 ^ r->key[round][1];                                              \
                c1 = b;                                                                            \
                c3 = a;                                                                            \
            }                                                                                      \
            const vector low = (vector)((c0 & half) | c1 << 32);                                   \
            const vector high = (vector)((c2 & half) | c3 << 32);                                  \
            const vector words[2] = {mm##_unpacklo_epi64(low, high),                               \
                                     mm##_unpackhi_epi64(low, high)};                              \
            memcpy(out + 4 * at, words, sizeof words);                                             \
        }                                                                                          \
        return at;                                                                                 \
    }

LATHE__RNG_LANES(lathe_rng_avx2, "avx2", 4, __m256i, _mm256, 0, 2, 1, 3)
LATHE__RNG_LANES(lathe_rng_avx512, "avx512f", 8, __m512i, _mm512, 0, 4, 1, 5, 2, 6, 3, 7)
#endif

/** out[4*b + k] = lathe_rng_block(seed, step, stream, first + b).v[k], b < n. */
static inline void lathe_rng_fill(uint32_t *out, int64_t n, uint64_t seed, uint64_t step,
                                  uint64_t stream, uint64_t first)
{
    int64_t at = 0;
#if defined(__x86_64__) && defined(__GNUC__)
    lathe_rng_lanes r;
    r.first = first;
    r.c1 = (uint32_t)(stream >> 32) << 16;
    r.c2 = (uint32_t)stream;
    r.c3 = (uint32_t)step;
    for (uint32_t round = 0; round < 10; round++) {
        r.key[round][0] = (uint32_t)seed + round * 0x9E3779B9u;
        r.key[round][1] = (uint32_t)(seed >> 32) + round * 0xBB67AE85u;
    }
    if (__builtin_cpu_supports("avx512f"))
        at = lathe_rng_avx512(&r, out, n);
    else if (__builtin_cpu_supports("avx2"))
        at = lathe_rng_avx2(&r, out, n);
#endif
    for (; at < n; at++) {
        const lathe_u32x4 block = lathe_rng_block(seed, step, stream, first + (uint64_t)at);
        memcpy(out + 4 * at, block.v, sizeof block.v);
    }
}

#endif
