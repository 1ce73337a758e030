/* Checkpoints: folders that transformers loads as they stand, with the state to go on from.
 *
 *   <dir>/step-00000100/   config.json model.safetensors tokenizer.json ...   or adapter_model.safetensors
 *                          state/run.json state/optimizer.safetensors         adapter_config.json
 *                          manifest.json                                      SHA-256 of every file
 *   <dir>/latest           name of the newest complete one; moved last
 */
#ifndef LATHE_RUN_CHECKPOINT_H
#define LATHE_RUN_CHECKPOINT_H

#include "run/run_state.h"

/** LATHE_E_CONFIG when checkpoint.resume = "never" would begin a second run in a folder that holds one. */
lathe_status lathe_checkpoint_refuse_mixing(lathe_run *run);

/** Writes <checkpoint.dir>/step-N beside and renames it, then moves `latest`, then removes what
 *  checkpoint.keep_last leaves over. A folder of that name is one that was not resumed from (damaged, or
 *  behind an earlier checkpoint.resume): it makes way once the new one is complete. The folder's path goes to *out_path (in the run's arena). */
lathe_status lathe_checkpoint_write(lathe_run *run, const char **out_path);

/** The folder to resume from by checkpoint.resume, or NULL: "auto" takes `latest`, or, when that one is
 *  damaged, the newest that verifies (with a warning that names the damage). */
lathe_status lathe_checkpoint_find(lathe_run *run, const char **out_path);

/** The model folder behind a path: itself, or, for a checkpoint.dir, what `latest` names. */
lathe_status lathe_checkpoint_resolve(lathe_arena *arena, const char *path, const char **out_path);

#endif
