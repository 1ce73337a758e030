/* Decides which tokens a run adds to its tokenizer (tokenizer.add_tokens), which rows the model
 * gets for them, and which rows train beside a frozen base. */
#ifndef LATHE_RUN_NEW_TOKENS_H
#define LATHE_RUN_NEW_TOKENS_H

#include "run/state/run_state.h"

/** Adds the tokens to run->data.tokenizer, which was opened: gives them ids, and writes the
 *  tokenizer with them to a folder of data.cache_dir, which is the run's tokenizer from then on
 *  (data.tokenizer_dir). Nothing is written for a plan, or where it has all tokens already.
 *
 *  Errors  LATHE_E_CONFIG at tokenizer.add_tokens: the tokenizer has no file to write them to, or a
 *          token is empty or named twice. */
lathe_status lathe__new_tokens_add(lathe_run *run);

/** Whether the tokenizer is written: a plan, and a check for another machine, only count the
 * tokens, and their tokenizer is the one without them. */
int32_t lathe__new_tokens_are_written(const lathe_run *run);

/** Gives run->model, which was read from model.path, the rows that it lacks. A row begins anew if
 *  the folder does not have it, or if it is one of padding until now and belongs to a token of the
 *  list that the folder's own tokenizer does not have: so a run that goes on from a folder with the
 *  tokens and one that begins with an adapter over the folder without them decide alike. */
lathe_status lathe__new_rows(lathe_run *run, const lathe_model_source *source);

/** Decides which rows train beside a frozen base: those of adapter.trainable_token_rows, or of the
 *  tokens that are new to model.path; and which an adapter of the reference has. Sets
 *  run->decided.token_rows and reference_token_rows.
 *
 *  Errors  LATHE_E_CONFIG at adapter.trainable_token_rows: no such row, or the adapter trains the
 *          matrix as a whole, or merges it during the run. */
lathe_status lathe__token_rows_choose(lathe_run *run);

/** The rows of an adapter beside others, by its own settings; `what` names it in messages. */
lathe_status lathe__token_rows_of_other(lathe_run *run, const lathe_config *config,
                                        const char *what, lathe_token_rows *out);

#endif
