/* Reads the merges of a BPE model in tokenizer.json. */
#ifndef LATHE_TOKENIZER_TOKENIZER_JSON_MERGES_H
#define LATHE_TOKENIZER_TOKENIZER_JSON_MERGES_H

#include "base/json/json.h"
#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/json/token_tables.h"

/** model.merges, a list, after the vocabulary; t: the file's tables, or NULL. */
lathe_status lathe__read_merges(lathe_tokenizer *tok, const char *file, const json_t *vocab,
                                const json_t *merges, const lathe_token_tables *t);

#endif
