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

/** Members of the counter that ops with random numbers read, a value i64[LATHE_RNG_COUNTER]: the
 *  key, and which rows of the batch of all ranks this rank has. RANK, RANKS: this is rank r of R
 *  with equal batches. PARTS: 2 if the first half of a rank's rows belongs to the first half of
 *  all rows (pairs: chosen rows, then rejected rows), else 1. */
enum {
    LATHE_RNG_SEED = 0,
    LATHE_RNG_STEP = 1,
    LATHE_RNG_RANK = 2,
    LATHE_RNG_RANKS = 3,
    LATHE_RNG_PARTS = 4,
    LATHE_RNG_COUNTER = 5
};

/** Index, among the elements of all ranks, of element i of a value of which each rank has n, rows
 *  first: i of part p becomes i + (p*(R-1) + r) * n/PARTS. If PARTS does not divide n, the value
 *  counts as one part. Random numbers are keyed by this index, so R ranks with B rows each draw
 *  what one rank with R*B rows draws.
 *
 *  counter  i64[LATHE_RNG_COUNTER];  0 <= i < n
 *  Source   ours */
LATHE_HD static inline int64_t lathe_rng_index(const int64_t *counter, int64_t n, int64_t i)
{
    const int64_t parts = counter[LATHE_RNG_PARTS], ranks = counter[LATHE_RNG_RANKS];
    if (ranks <= 1)
        return i;
    const int64_t size = parts > 1 && n % parts == 0 ? n / parts : n;
    return i + (i / size * (ranks - 1) + counter[LATHE_RNG_RANK]) * size;
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
