/* A keyed bijection on [0, n): the order of an epoch without storing a list.
 *
 * A balanced Feistel network of 8 rounds on the next even number of bits. Its round function is the
 * counter RNG with the key (seed, epoch). Results outside [0, n) go through it again (cycle
 * walking, at most 4 passes on average). O(1) time and memory, the same on every machine and rank.
 * Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.
 */
#ifndef LATHE_DATA_SHUFFLE_H
#define LATHE_DATA_SHUFFLE_H

#include "lathe/rng.h"

enum { LATHE_SHUFFLE_ROUNDS = 8 };

/** Returns the image of i in [0, n). `stream` separates different uses of one seed. n in [1,
 *  2^62]. */
static inline int64_t lathe_shuffle(int64_t n, uint64_t seed, uint64_t epoch, uint32_t stream,
                                    int64_t i)
{
    int half = 1;
    while (half < 31 && (INT64_C(1) << (2 * half)) < n)
        half++;
    const uint32_t mask = (uint32_t)((UINT64_C(1) << half) - 1);
    uint64_t x = (uint64_t)i;
    do {
        uint32_t left = (uint32_t)(x >> half), right = (uint32_t)x & mask;
        for (uint32_t round = 0; round < LATHE_SHUFFLE_ROUNDS; round++) {
            const lathe_u32x4 word =
                lathe_rng_block(seed, epoch, stream, (uint64_t)right | (uint64_t)(round + 1) << 32);
            const uint32_t next = (left ^ word.v[0]) & mask;
            left = right;
            right = next;
        }
        x = (uint64_t)left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

#endif
