/* A reward model in addition to a run's own model: scores sequences of the run's tokens.
 *
 *   lathe__reward_plan     while the run is planned, before its arena is allocated; the memory is
 * then part of the run's plan lathe__reward_place    once the arena is allocated; reads the weights
 *   lathe__reward_score    between steps: it uses the arena that the run's programs share
 */
#ifndef LATHE_RUN_REWARD_MODEL_H
#define LATHE_RUN_REWARD_MODEL_H

#include "exec/program/scorer.h"
#include "run/state/run_state.h"

/** Creates run->reward from the folder `path`, the value of section.key, which messages name.
 *  n_rows: sequences scored at a time; row_tokens: the longest. Its memory is added to
 *  run->planned, and the shared arena grows where that is needed. LATHE_E_CONFIG: no reward model
 * of the run's vocabulary. */
lathe_status lathe__reward_plan(lathe_run *run, const char *section, const char *key,
                                const char *path, int32_t n_rows, int64_t row_tokens);

/** Allocates its memory and reads its weights. */
lathe_status lathe__reward_place(lathe_run *run);

/** Rows of the reward model's vocabulary; 0: there is no reward model. */
int64_t lathe__reward_vocab(const lathe_run *run);

/** Writes the reward of each of n sequences (prompt and completion) to out f64[n]. */
lathe_status lathe__reward_score(lathe_run *run, const lathe_scored *sequences, int32_t n,
                                 double *out);

/** Frees run->reward, if there is one. */
void lathe__reward_destroy(lathe_run *run);

#endif
