/* Turns packed rows into those of an objective that is not causal (lathe_objective of
 * lathe/stage.h): chooses and replaces tokens, or draws prefixes, and says which keys each token
 * sees.
 *
 * A document is the run of a row's tokens with the same doc_start. Every random number is a
 * function of the data's seed, the row's place in the endless order of epochs, and the token's
 * place in the row. So an epoch has other masks than the one before, ranks and interruptions change
 * nothing, and an evaluation, which begins at place 0 each time, always has the same masks.
 */
#ifndef LATHE_DATA_ROW_OBJECTIVE_H
#define LATHE_DATA_ROW_OBJECTIVE_H

#include "base/arena.h"
#include "lathe/stage.h"
#include "tokenizer/encode/tokenizer.h"

struct lathe_row;

/** An objective with what it needs of the tokenizer. All zeros: causal. */
typedef struct lathe_row_objective {
    lathe_objective stage;
    int32_t mask_token;     /* id */
    int64_t n_tokens;       /* of the tokenizer */
    const uint8_t *is_kept; /* [n_tokens] 1: never chosen: special tokens, the mask token */
    const int32_t *others;  /* [n_others] the other tokens: random ones are drawn from them */
    int64_t n_others;
} lathe_row_objective;

/** Finds the tokens that a masked objective needs; *out is filled in for the other objectives too.
 *  LATHE_E_CONFIG: the message, which begins with "mask_token", says why there is no mask token.
 *  Memory: the arena's. */
lathe_status lathe_row_objective_init(const lathe_objective *stage, const lathe_tokenizer *tok,
                                      lathe_arena *arena, lathe_row_objective *out);

/** Applies the objective to a packed row, whose targets are the next tokens; fills row->key_end.
 *  place: of the row, over all ranks. Returns the number of targets. Documents without a next token
 *  keep their tokens and have no target. Allocates nothing. */
int64_t lathe__row_objective_apply(const lathe_row_objective *objective, uint64_t seed,
                                   int64_t place, const struct lathe_row *row);

#endif
