/* Merges the symbols of a long piece. */
#ifndef LATHE_TOKENIZER_BPE_LONG_H
#define LATHE_TOKENIZER_BPE_LONG_H

#include "tokenizer/encode/merges.h"

/** Scratch of one thread; it grows with the longest piece. Ready when `merges` is set and the rest
 *  is zero. */
typedef struct lathe_bpe_long {
    const lathe_merges *merges;
    struct lathe_bpe_cell *cells; /* [capacity] the symbols */
    int32_t *sorting;             /* [capacity] */
    int64_t capacity;
    struct lathe_bpe_bucket *buckets; /* [n_ranks] */
    uint32_t *heap;                   /* [n_ranks] ranks whose bucket is not empty */
    int64_t n_ranks, n_heap;
} lathe_bpe_long;

/** Merges ids[0, n) in place, the lowest rank first and of equal ranks the leftmost; *out_n remain.
 *  Takes time O(n) if pairs of equal rank appear from left to right, else O(n log n). n < 2^31. */
lathe_status lathe__bpe_merge_long(lathe_bpe_long *state, int32_t *ids, int64_t n, int64_t *out_n);

void lathe__bpe_long_fini(lathe_bpe_long *state);

#endif
