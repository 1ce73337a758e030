/* Reads the vocabulary of a Unigram model in tokenizer.json. */
#ifndef LATHE_TOKENIZER_TOKENIZER_JSON_UNIGRAM_H
#define LATHE_TOKENIZER_TOKENIZER_JSON_UNIGRAM_H

#include "base/json/json.h"
#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/json/token_tables.h"

/** model.vocab, a list of n texts with scores, into tok and scores[n]; t: the file's tables, or
 *  NULL. */
lathe_status lathe__read_unigram_vocab(lathe_tokenizer *tok, const char *file, const json_t *vocab,
                                       const lathe_token_tables *t, int64_t n, double *scores);

#endif
