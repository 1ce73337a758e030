/* A vocabulary: byte strings numbered by token id, and a hash table from bytes to ids. */
#ifndef LATHE_TOKENIZER_VOCAB_H
#define LATHE_TOKENIZER_VOCAB_H

#include <stdint.h>

#include "lathe/status.h"

/** All zeros is empty. Ids without a token have length -1. */
typedef struct lathe_vocab {
    uint8_t *pool;
    int64_t pool_bytes, pool_capacity;
    int64_t *at;  /* [capacity] offset in the pool */
    int32_t *len; /* [capacity] */
    int64_t n, capacity;
    uint64_t *slots; /* hash table: upper half of the hash << 32 | id + 1; 0 is empty */
    int64_t n_slots, n_used;
    int64_t
        n_repeated; /* number of times that a text was put while an equal one was in the table */
} lathe_vocab;

/** Makes room for ids below n at once. */
lathe_status lathe__vocab_reserve(lathe_vocab *vocab, int64_t n);
/** is_found 0: the bytes serve decoding only, and lathe__vocab_find does not return them. */
lathe_status lathe__vocab_put(lathe_vocab *vocab, int32_t id, const void *bytes, int64_t n,
                              int is_found);
/** Lets lathe__vocab_find return an id that was put with is_found 0. */
lathe_status lathe__vocab_show(lathe_vocab *vocab, int32_t id);
/** The id of the token with these bytes; -1: there is none. */
int32_t lathe__vocab_find(const lathe_vocab *vocab, const void *bytes, int64_t n);
void lathe__vocab_fini(lathe_vocab *vocab);

#endif
