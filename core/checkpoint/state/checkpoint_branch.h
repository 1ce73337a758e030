/* Branches of a run: what happens to newer checkpoints when a run goes back to an earlier one.
 *
 *   <dir>/branches.json         one entry for each time that the run went back, in order
 *   <dir>/abandoned/branch-K/   what was set aside when branch K began: newer checkpoints, and
 *                               the lines of metrics.jsonl and samples.jsonl after its first step
 *
 * Branch 0 is the run from its beginning; no file lists it. Each time the run goes back, the next
 * branch begins: everything in the folder that is not an ancestor of the new branch is moved to
 * abandoned/. So `latest`, `best`, keep_last and resume = "auto" see one branch only. Nothing is
 * deleted; `lathe checkpoint rm DIR --abandoned` does that.
 *
 * branches.json, version 1:
 *   {"format": "lathe-branches", "version": 1,
 *    "branches": [{"number": 1, "why": "resume" | "rewind", "step": 5, "from": "step-00000005",
 *                  "time": 1764000000, "done": true, "abandoned": ["step-00000010"]}]}
 * `from` is a name in the folder, or an absolute path outside the folder.
 */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_BRANCH_H
#define LATHE_CHECKPOINT_CHECKPOINT_BRANCH_H

#include <jansson.h>

#include "checkpoint/state/checkpoint_folder.h"
#include "checkpoint/state/saved_state.h"

/** Reads the list of branches of a folder. `dir` may also be the path of an abandoned checkpoint:
 * then its run's folder is used. The list is empty if there is no file. The caller releases it.
 * LATHE_E_CORRUPT, LATHE_E_PARSE: the file is damaged. */
lathe_status lathe_branches_read(const char *dir, json_t **out);

/** The checkpoints in dir/abandoned/branch-<number>, by step. */
lathe_status lathe_branch_abandoned(const char *dir, int64_t number, lathe_arena *arena,
                                    lathe_checkpoint_entry **out, int64_t *out_n);

/** The checkpoint outside the folder that the newest branch went back to; NULL if it is inside.
 *  A run that was killed before the branch wrote a checkpoint continues from that checkpoint. */
lathe_status lathe_branch_origin(const char *dir, lathe_arena *arena, const char **out_path);

/** The checkpoint with which the run of a folder goes on: `latest`, the path that the pointer
 * names, or a newer one in the folder. A run that ended between the rename of a checkpoint and the
 * writing of `latest` (killed, disk full) leaves such a one. While the beginning of a branch is not
 * complete, newer ones belong to the branch before, and `latest` is right. */
lathe_status lathe_checkpoint_ahead(const char *dir, const char *latest, lathe_arena *arena,
                                    const char **out_path);

/** Reads the list of branches for the manifests of checkpoints that this process writes; changes
 *  nothing in the folder. lathe_branch_begin does it, too. */
lathe_status lathe_branch_know(const lathe_saved_state *saved);

/** Begins a branch after the run loaded the checkpoint `path` of step saved->at->step. Does so if
 * the run's folder holds checkpoints that are newer or belong to another branch, or if `is_rewind`
 * is set. Completes a branch whose beginning was interrupted. Logs one warning that says what was
 * moved, and to which folder.
 *
 * The steps are: the record, the lines, `latest`, `best`, the moves, the record again. Each is
 * durable before the next begins. A run that is killed between two of them finds the same
 * checkpoint again and completes the rest.
 *
 *  Thread  the training thread, while no checkpoint is being written.
 */
lathe_status lathe_branch_begin(const lathe_saved_state *saved, const char *path,
                                int32_t is_rewind);

#endif
