/* The end tokens of a run: what the model's folder says, and what its chat template writes after an
 * answer. */
#ifndef LATHE_RUN_END_TOKENS_H
#define LATHE_RUN_END_TOKENS_H

#include "run/state/run_state.h"

/** Finds where the chat template ends an answer (run->data.answer_end), once the run has the
 *  template and the tokenizer. A command that generates says so if the folder's own end tokens lack
 *  it. Errors: LATHE_E_NOMEM. */
lathe_status lathe__end_tokens_find(lathe_run *run);

/** For a run that trains on conversations: warns if its answers end with a token that is none of
 *  the folder's end tokens (the checkpoints get it), with no token at all, or with one that is not
 *  learnt; and marks that the checkpoints get it. Needs the shards. */
void lathe__end_tokens_warn(lathe_run *run);

/** The tokens that end a completion from which the run learns: the answer's end, the tokenizer's
 *  own, and stop_tokens of the stage, whose names lathe__end_tokens_of_stage has read. Returns
 * their number; out has room for LATHE_MAX_ROLLOUT_ENDS. */
enum { LATHE_MAX_ROLLOUT_ENDS = LATHE_MAX_STOP_TOKENS + 2 };
int32_t lathe__end_tokens_of_rollout(const lathe_run *run, int32_t *out);

/** Reads stop_tokens of a stage that makes its own completions, if its table has that key.
 *  LATHE_E_CONFIG: a name that is no token. */
lathe_status lathe__end_tokens_of_stage(lathe_run *run);

#endif
