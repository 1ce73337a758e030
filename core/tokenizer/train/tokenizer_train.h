/* Trains a new BPE tokenizer. */
#ifndef LATHE_TOKENIZER_TOKENIZER_TRAIN_H
#define LATHE_TOKENIZER_TOKENIZER_TRAIN_H

#include "tokenizer/encode/tokenizer.h"
#include "tokenizer/train/train_settings.h"

/** Trains a BPE tokenizer. Vocabulary and merges are those of Hugging Face's BpeTrainer for the
 *  same sequences: the most frequent pair first, and of equally frequent ones the smaller ids.
 *  BYTE_LEVEL: with the ByteLevel alphabet. METASPACE: after Metaspace(prepend_scheme always); the
 *  alphabet is every character of the texts, and the bytes of byte_fallback count as special
 *  tokens. Deterministic. Special tokens in the text are not recognized. LATHE_E_CONFIG: there is
 *  no text. */
lathe_status lathe_tokenizer_train(const lathe_tokenizer_training *settings, lathe_text_fn next,
                                   void *arg, lathe_tokenizer **out);

/** Like lathe_tokenizer_train, from files and folders (recursive, sorted): each file is one text.
 *  Files that contain a NUL or are not UTF-8 are skipped and counted in *out_skipped (may be NULL).
 */
lathe_status lathe_tokenizer_train_files(const lathe_tokenizer_training *settings,
                                         const char *const *paths, int64_t n_paths,
                                         int64_t *out_skipped, lathe_tokenizer **out);

#endif
