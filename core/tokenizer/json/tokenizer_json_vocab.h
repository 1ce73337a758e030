/* Reads the vocabulary of a model in tokenizer.json. */
#ifndef LATHE_TOKENIZER_TOKENIZER_JSON_VOCAB_H
#define LATHE_TOKENIZER_TOKENIZER_JSON_VOCAB_H

#include "base/json/json.h"
#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/json/token_tables.h"

/** LATHE_E_PARSE: the tables have an unusual form, and the JSON tree must be read instead, which
 *  reports what is wrong. */
lathe_status lathe__tj_unusual(const char *file, const char *what);

/** Checks an id of the model that added_tokens has given already: it must have the same text. */
lathe_status lathe__vocab_check_shared(const lathe_tokenizer *tok, const char *file,
                                       const char *key, int64_t n_key, int32_t id);

/** model.vocab of BPE, an object; t: the file's tables, or NULL. */
lathe_status lathe__read_vocab(lathe_tokenizer *tok, const char *file, json_t *vocab,
                               const lathe_token_tables *t);

/** The byte-level character of a byte, as text with a NUL. */
void lathe__byte_key(int32_t byte, char out[4]);

/** 1: model.vocab has the character of every byte. */
int lathe__has_all_bytes(const json_t *model, const lathe_token_tables *tables);

#endif
