/* The table of merges: a hash table from a pair of ids to its rank and result. */
#ifndef LATHE_TOKENIZER_MERGES_H
#define LATHE_TOKENIZER_MERGES_H

#include <stddef.h>
#include <stdint.h>

#include "lathe/status.h"

/** One merge: a pair of ids, its rank, and the id of the result. */
typedef struct lathe_merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX is an empty slot */
    uint32_t rank, id;
} lathe_merge;

typedef struct lathe_merges {
    lathe_merge *slots;
    uint64_t mask; /* n_slots - 1; n_slots is a power of two >= 2 * merges */
} lathe_merges;

lathe_status lathe__merges_init(lathe_merges *merges, int64_t n);
/** A pair that is put twice keeps the later rank, as in Hugging Face's map. */
void lathe__merges_put(lathe_merges *merges, int32_t left, int32_t right, uint32_t rank,
                       uint32_t id);

static inline uint64_t lathe__mix(uint64_t x)
{
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 32;
}

static inline const lathe_merge *lathe__merges_find(const lathe_merges *merges, int32_t left,
                                                    int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (uint64_t i = lathe__mix(pair);; i++) {
        const lathe_merge *slot = &merges->slots[i & merges->mask];
        if (slot->pair == pair)
            return slot;
        if (slot->pair == UINT64_MAX)
            return NULL;
    }
}

static inline void lathe__merges_prefetch(const lathe_merges *merges, int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    __builtin_prefetch(&merges->slots[lathe__mix(pair) & merges->mask]);
}

#endif
