/* The counter RNG: Philox 4x32-10. A number is a pure function of (key, counter), so results never
 * depend on the order, the thread count or the sharding of the work.
 *
 * Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11. Known-answer tests in
 * tests/core/base.
 */
#ifndef LATHE_RNG_H
#define LATHE_RNG_H

#include "abi.h"

typedef struct lathe_u32x4 {
    uint32_t v[4];
} lathe_u32x4;

/** Four random words for counter (c0..c3) under key (k0, k1). */
LATHE_HD static inline lathe_u32x4 lathe_philox(uint32_t k0, uint32_t k1, uint32_t c0, uint32_t c1,
                                                uint32_t c2, uint32_t c3)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c0;
        const uint64_t b = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        const uint32_t n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const lathe_u32x4 out = {{c0, c1, c2, c3}};
    return out;
}

/** The 4 random words of block `index` in stream `stream` of `seed` at `step`; all random
 *  numbers of the project use this key and counter. Key = seed; counter = (index low, index high
 *  and stream high mixed, stream low, step). */
LATHE_HD static inline lathe_u32x4 lathe_rng_block(uint64_t seed, uint64_t step, uint64_t stream,
                                                   uint64_t index)
{
    return lathe_philox((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)index,
                        (uint32_t)(index >> 32) ^ ((uint32_t)(stream >> 32) << 16),
                        (uint32_t)stream, (uint32_t)step);
}

/** Uniform in [0, 1) with 24 bits. */
LATHE_HD static inline float lathe_uniform_f32(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/** Uniform in [0, 1) with 53 bits. */
LATHE_HD static inline double lathe_uniform_f64(uint32_t hi, uint32_t lo)
{
    return (double)((((uint64_t)hi << 32) | lo) >> 11) * 0x1p-53;
}

#endif
