/* Makes a tokenizer from the text of a tokenizer.json. */
#ifndef LATHE_TOKENIZER_TOKENIZER_JSON_H
#define LATHE_TOKENIZER_TOKENIZER_JSON_H

#include <jansson.h>

#include "tokenizer/encode/tokenizer.h"

/** Builds a tokenizer from the text of a tokenizer.json; `name` stands for the file in messages.
 *  On success takes `json`, which must be malloc'ed. */
lathe_status lathe__tokenizer_parse(const char *name, char *json, int64_t json_bytes,
                                    lathe_tokenizer **out);

/** Like lathe__tokenizer_parse, with tokens that the files beside it add (lathe_token_names.add),
 *  as the tokenizers library adds them: an added token of the same text gets their flags, a token
 *  of the model becomes an added token, and others get the next free ids. more NULL: none. */
lathe_status lathe__tokenizer_parse_with(const char *name, char *json, int64_t json_bytes,
                                         const json_t *more, lathe_tokenizer **out);

/** The tree of a tokenizer.json, in which model.vocab and model.merges may be empty: for callers
 *  that need the other members. *out_merges: the number of merges. */
lathe_status lathe__tokenizer_tree(const char *name, const char *json, int64_t bytes, json_t **out,
                                   int64_t *out_merges);

#endif
