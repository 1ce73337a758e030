/* Writes the tokenizer.json of a trained tokenizer. */
#ifndef LATHE_TOKENIZER_TRAIN_JSON_H
#define LATHE_TOKENIZER_TRAIN_JSON_H

#include "base/buffer.h"
#include "tokenizer/train/bpe_train.h"

enum { LATHE_LONGEST_SPECIAL = 512 };

/** Appends the text of the file. The vocabulary begins with the special tokens of the settings. */
lathe_status lathe__train_json(lathe_buffer *out, const lathe_tokenizer_training *settings,
                               const lathe_vocab *vocab, const lathe_learned_merge *merges,
                               int64_t n_merges);

#endif
