/* Learning merges from counted words. */
#ifndef LATHE_DATA_BPE_TRAIN_H
#define LATHE_DATA_BPE_TRAIN_H

#include "data/tokenizer_model.h"

/** Words of the corpus: distinct pieces with how often each came. */
typedef struct lathe_words {
    lathe_vocab pieces; /* id: index of the word */
    int64_t *counts;
    int64_t capacity;
} lathe_words;

/** Splits the texts that `next` gives by the tokenizer's expressions, and counts the pieces. */
lathe_status lathe__words_count(lathe_words *words, const lathe_tokenizer *splits,
                                lathe_text_fn next, void *arg);
void lathe__words_fini(lathe_words *words);

typedef struct lathe_learned_merge {
    int32_t left, right;
} lathe_learned_merge;

/** Adds tokens to `vocab` (which has the specials and the bytes; byte_id tells their ids) until it
 *  has vocab_size, or no pair is left that comes min_frequency times. Merges in order; malloc'ed. */
lathe_status lathe__bpe_learn(const lathe_words *words, const int32_t byte_id[256],
                              int64_t vocab_size, int64_t min_frequency, lathe_vocab *vocab,
                              lathe_learned_merge **out_merges, int64_t *out_n);

#endif
