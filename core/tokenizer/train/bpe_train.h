/* Counts the words of a corpus and learns merges from them. */
#ifndef LATHE_TOKENIZER_BPE_TRAIN_H
#define LATHE_TOKENIZER_BPE_TRAIN_H

#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/train/train_settings.h"

#define LATHE_METASPACE "\xe2\x96\x81" /* U+2581 */

/** The distinct pieces of a corpus with their counts. */
typedef struct lathe_words {
    lathe_vocab pieces; /* id: index of the word */
    int64_t *counts;
    int64_t capacity;
} lathe_words;

/** Splits the texts that `next` gives by the tokenizer's expressions, and counts the pieces. splits
 *  NULL: splits by Metaspace(prepend_scheme always) and skips bytes that are not UTF-8. */
lathe_status lathe__words_count(lathe_words *words, const lathe_tokenizer *splits,
                                lathe_text_fn next, void *arg);
void lathe__words_fini(lathe_words *words);

typedef struct lathe_learned_merge {
    int32_t left, right;
} lathe_learned_merge;

/** Adds tokens to `vocab` until it has settings->vocab_size tokens, or no pair is left that
 *  occurs min_frequency times. `vocab` already has the special tokens and the first symbols:
 *  bytes, whose ids are byte_id; or, if byte_id is NULL, all characters of the words, which
 *  are then UTF-8. *out_merges: the merges in order, malloc'ed. max_token_length has Hugging
 *  Face's meaning: pairs of two first symbols always count, longer ones only if they have
 *  fewer first symbols than that. */
lathe_status lathe__bpe_learn(const lathe_words *words, const int32_t *byte_id,
                              const lathe_tokenizer_training *settings, lathe_vocab *vocab,
                              lathe_learned_merge **out_merges, int64_t *out_n);

#endif
