/* Reads tokenizer.json's model. */
#ifndef LATHE_TOKENIZER_TOKENIZER_JSON_MODEL_H
#define LATHE_TOKENIZER_TOKENIZER_JSON_MODEL_H

#include "base/json/json.h"
#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/json/token_tables.h"

/** Reads the vocabulary and its model into tok, whose kind is set, and whose pipeline is set for
 *  GENERAL. tables: the file's large tables, or NULL. */
lathe_status lathe__read_model(lathe_tokenizer *tok, const char *file, const json_t *model,
                               const lathe_token_tables *tables);

/** Makes the parts that need no JSON. Call it after the tree is freed, to keep the peak of memory
 *  low. */
lathe_status lathe__finish_model(lathe_tokenizer *tok);

#endif
