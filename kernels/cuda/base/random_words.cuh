/* Random words of elements, keyed by the elements' index among those of all ranks. */
#ifndef LATHE_CUDA_RANDOM_WORDS_CUH
#define LATHE_CUDA_RANDOM_WORDS_CUH

#include "lathe/rng.h"

/* Word w of a block. An index that is not constant would put the block into memory. */
static __device__ __forceinline__ uint32_t cuda_word(const lathe_u32x4 &block, int64_t w)
{
    const uint32_t low = w == 0 ? block.v[0] : block.v[1];
    const uint32_t high = w == 2 ? block.v[2] : block.v[3];
    return w < 2 ? low : high;
}

/** Words of elements first .. first + 3 of a value of n elements. Element i has word e%4 of
 *  lathe_rng_block(seed, step, stream, e/4), e = lathe_rng_index(counter, n, i). On one rank, and
 *  inside a part that begins at a multiple of four, the four words are one block. */
static __device__ __forceinline__ lathe_u32x4 cuda_random_words(const int64_t *counter,
                                                                uint64_t stream, int64_t n,
                                                                int64_t first)
{
    const uint64_t seed = (uint64_t)counter[LATHE_RNG_SEED];
    const uint64_t step = (uint64_t)counter[LATHE_RNG_STEP];
    const int64_t e = lathe_rng_index(counter, n, first);
    lathe_u32x4 out = lathe_rng_block(seed, step, stream, (uint64_t)(e / 4));
    if (e % 4 == 0 && lathe_rng_index(counter, n, first + 3) == e + 3)
        return out;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int64_t at = lathe_rng_index(counter, n, first + j);
        out.v[j] = cuda_word(lathe_rng_block(seed, step, stream, (uint64_t)(at / 4)), at % 4);
    }
    return out;
}

#endif
