/* Tokens that are added to a tokenizer: their ids, and the files that name them. */
#ifndef LATHE_TOKENIZER_TOKEN_GROWTH_H
#define LATHE_TOKENIZER_TOKEN_GROWTH_H

#include "base/arena.h"
#include "tokenizer/encode/tokenizer.h"

typedef struct lathe_token_growth {
    const char *const *tokens; /* [n] texts */
    int32_t n;
    int32_t are_plain; /* 1: not special: kept when special tokens are left out of a text */
} lathe_token_growth;

/** The tokens as a tokenizer sees them. The arrays are in an arena. */
typedef struct lathe_numbered_tokens {
    int32_t *ids;              /* [n] */
    uint8_t *is_new;           /* [n] 1: it was no added token before */
    int64_t n_before, n_after; /* size of the vocabulary, without and with the tokens */
    int64_t n_added, n_known;  /* tokens that are new, and those that were added tokens before */
} lathe_numbered_tokens;

/** Gives each token its id: one that the vocabulary has keeps its own, and others get the ids after
 *  all that the tokenizer has, as by add_tokens of transformers.
 *
 *  Errors  LATHE_E_ARG: a token is empty, not UTF-8 or named twice. LATHE_E_NOMEM. */
lathe_status lathe_tokens_number(const lathe_tokenizer *tok, const lathe_token_growth *growth,
                                 lathe_arena *arena, lathe_numbered_tokens *out);

/** Puts the tokens into tokenizer.json and, where it lists added tokens by id, into
 *  tokenizer_config.json of a folder that holds copies of the files of `tok`. Tokens that only the
 *  files beside tokenizer.json name are written into it, so that they keep their ids. All other
 *  bytes of tokenizer.json stay. */
lathe_status lathe_tokens_write(const lathe_tokenizer *tok, const lathe_token_growth *growth,
                                const lathe_numbered_tokens *numbers, const char *folder);

#endif
