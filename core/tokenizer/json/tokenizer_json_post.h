/* Reads tokenizer.json's post_processor: the tokens before and after a text. */
#ifndef LATHE_TOKENIZER_TOKENIZER_JSON_POST_H
#define LATHE_TOKENIZER_TOKENIZER_JSON_POST_H

#include "base/json/json.h"
#include "tokenizer/encode/tokenizer_model.h"

/** depth: 0; sequences call it again with depth + 1. */
lathe_status lathe__read_post_processor(lathe_tokenizer *tok, const char *place, const json_t *node,
                                        int depth);

#endif
