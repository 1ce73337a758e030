/* Branches of a run: what happens to newer checkpoints when a run goes back to an earlier one.
 *
 *   <dir>/branches.json             every time the run went back, in order
 *   <dir>/abandoned/branch-K/       what branch K left behind when it began: newer checkpoints, and the lines of
 *                                   metrics.jsonl and samples.jsonl after its first step
 *
 * Branch 0 is the run's beginning and stands in no file. Going back begins the next branch: everything in the
 * folder that is not an ancestor of the new branch moves to abandoned/, so that `latest`, `best`, keep_last and
 * resume = "auto" see one branch only. Nothing is deleted: `lathe checkpoint rm DIR --abandoned` does that.
 *
 * branches.json, version 1:
 *   {"format": "lathe-branches", "version": 1, "branches": [{"number": 1, "why": "resume" | "rewind", "step": 5,
 *    "from": "step-00000005", "time": 1764000000, "done": true, "abandoned": ["step-00000010"]}]}
 * `from` is a name in the folder, or an absolute path outside it.
 */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_BRANCH_H
#define LATHE_CHECKPOINT_CHECKPOINT_BRANCH_H

#include <jansson.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/saved_state.h"

/** The list of branches of a folder, or of the folder that an abandoned checkpoint's path leads to; an empty list
 *  without a file. The caller drops it. LATHE_E_CORRUPT, LATHE_E_PARSE: the file is damaged. */
lathe_status lathe_branches_read(const char *dir, json_t **out);

/** The checkpoints in dir/abandoned/branch-<number>, by step. */
lathe_status lathe_branch_abandoned(const char *dir, int64_t number, lathe_arena *arena,
                                    lathe_checkpoint_entry **out, int64_t *out_n);

/** The checkpoint that the newest branch went back to, where it lies outside the folder; NULL otherwise. A run
 *  that was killed before the branch had a checkpoint of its own goes on from there. */
lathe_status lathe_branch_origin(const char *dir, lathe_arena *arena, const char **out_path);

/** After the run went to the state of the checkpoint `path`, at saved->at->step: begins a branch when the run's
 *  folder holds what is newer or of another branch, or when `is_rewind`. Finishes a branch whose beginning was
 *  interrupted. Says once, in a warning, what was moved where.
 *
 *  Every step is durable before the next one begins, and a run that is killed between two of them finds the
 *  same checkpoint to go on from and finishes the rest: the record, the lines, `latest`, `best`, the moves, the
 *  record again.
 *  Thread  the training's, while nothing is being written.
 */
lathe_status lathe_branch_begin(const lathe_saved_state *saved, const char *path,
                                int32_t is_rewind);

#endif
