/* Random words for a tile of elements, keyed by the elements' index among those of all ranks. */
#ifndef LATHE_CPU_RANDOM_WORDS_H
#define LATHE_CPU_RANDOM_WORDS_H

#include "base/cpu.h"
#include "base/element.h"
#include "lathe/kit/rng_fill.h"

/** The random numbers of an op for a value of n elements. */
typedef struct cpu_random {
    const int64_t *counter; /* [LATHE_RNG_COUNTER] */
    uint64_t stream;
    int64_t n;
} cpu_random;

/** Writes the words of elements [first, first + count) to words, count <= CPU_TILE. Element i has
 *  word e%4 of lathe_rng_block(seed, step, stream, e/4), e = lathe_rng_index(counter, n, i). */
static inline void cpu_random_words(const cpu_random *r, int64_t first, int64_t count,
                                    uint32_t words[CPU_TILE])
{
    uint32_t blocks[CPU_TILE + 8];
    const uint64_t seed = (uint64_t)r->counter[LATHE_RNG_SEED];
    const uint64_t step = (uint64_t)r->counter[LATHE_RNG_STEP];
    for (int64_t i = 0; i < count;) {
        const int64_t e = lathe_rng_index(r->counter, r->n, first + i), skip = e % 4;
        int64_t run = 1; /* elements whose indices follow each other */
        if (lathe_rng_index(r->counter, r->n, first + count - 1) == e + count - 1 - i)
            run = count - i;
        lathe_rng_fill(blocks, (skip + run + 3) / 4, seed, step, r->stream, (uint64_t)(e / 4));
        memcpy(words + i, blocks + skip, (size_t)run * sizeof *words);
        i += run;
    }
}

#endif
