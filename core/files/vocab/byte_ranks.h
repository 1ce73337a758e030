/* Vocabularies of byte strings by rank: tiktoken's text files and Mistral's tekken.json. */
#ifndef LATHE_FILES_BYTE_RANKS_H
#define LATHE_FILES_BYTE_RANKS_H

#include <jansson.h>

#include "base/arena.h"
#include "files/vocab/token_list.h"

/** Most tokens whose names are made up, so that a small file makes no large vocabulary; published
 *  files have some 1,000. */
enum { LATHE_MAX_MADE_NAMES = 65536 };

typedef struct lathe_byte_ranks {
    lathe_token_list list; /* by rank; its texts are in the arena */
    int64_t n_special;     /* ids before those of the ranks: id = n_special + rank */
    const char **special;  /* [n_special]: texts of the ids 0 ... n_special - 1, in the arena */
    const char *pattern;   /* in the arena; NULL: the file names none */
} lathe_byte_ranks;

/** 1: the text begins like a file of tiktoken: base64, a space, a number. */
int32_t lathe_is_tiktoken(const char *text, int64_t n);

/** Lines "BASE64 RANK", whose ranks are 0 ... n - 1 in any order. LATHE_E_PARSE: line and reason.
 */
lathe_status lathe_tiktoken_read(const char *place, const char *text, int64_t n, lathe_arena *arena,
                                 lathe_byte_ranks *out);

/** config (pattern, default_vocab_size, default_num_special_tokens), vocab (token_bytes) and
 *  special_tokens (rank, token_str), as MistralConverter of transformers 5.24 reads them: a rank is
 *  the place in the list, and tokens that default_vocab_size has no room for are left out.
 *  LATHE_E_UNSUPPORTED: a file without special_tokens, as the first ones were. */
lathe_status lathe_tekken_read(const char *place, const char *text, int64_t n, lathe_arena *arena,
                               lathe_byte_ranks *out);
void lathe_byte_ranks_fini(lathe_byte_ranks *ranks);

#endif
