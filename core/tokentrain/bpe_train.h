/* Learning merges from counted words. */
#ifndef LATHE_TOKENTRAIN_BPE_TRAIN_H
#define LATHE_TOKENTRAIN_BPE_TRAIN_H

#include "text/tokenizer_model.h"
#include "tokentrain/train_settings.h"

#define LATHE_METASPACE "\xe2\x96\x81" /* U+2581 */

/** Words of the corpus: distinct pieces with how often each came. */
typedef struct lathe_words {
    lathe_vocab pieces; /* id: index of the word */
    int64_t *counts;
    int64_t capacity;
} lathe_words;

/** Splits the texts that `next` gives by the tokenizer's expressions, and counts the pieces. NULL:
 *  by Metaspace(prepend_scheme always); what is not UTF-8 is left out. */
lathe_status lathe__words_count(lathe_words *words, const lathe_tokenizer *splits,
                                lathe_text_fn next, void *arg);
void lathe__words_fini(lathe_words *words);

typedef struct lathe_learned_merge {
    int32_t left, right;
} lathe_learned_merge;

/** Adds tokens to `vocab` (which has the specials and the first symbols: bytes, whose ids are
 *  byte_id, or where that is NULL all characters of the words, which are then UTF-8) until it
 *  has settings->vocab_size, or no pair is left that comes min_frequency times. Merges in order;
 *  malloc'ed. max_token_length is Hugging Face's: pairs of two symbols always count, longer ones
 *  only when they have fewer symbols than that. */
lathe_status lathe__bpe_learn(const lathe_words *words, const int32_t *byte_id,
                              const lathe_tokenizer_training *settings, lathe_vocab *vocab,
                              lathe_learned_merge **out_merges, int64_t *out_n);

#endif
