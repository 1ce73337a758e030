/* Checkpoints: folders that transformers loads as they stand, with the state to go on from.
 *
 *   step-00000100/   config.json model.safetensors tokenizer.json ...   or adapter_model.safetensors
 *                    state/run.json state/optimizer.safetensors         adapter_config.json
 *                    average/                                           the same of the averaged weights
 *                    manifest.json                                      SHA-256 of every file, and "meta":
 *                                                                       version, step, time, figures,
 *                                                                       plugins, configuration
 *
 * checkpoint_write.c writes one, checkpoint_read.c reads one, checkpoint_folder.c knows them all,
 * checkpoint_image.c holds a copy of the state to write from, checkpoint_writer.c the thread that does.
 */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_H
#define LATHE_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/saved_state.h"
#include "record/figures.h"

/** What to keep, by the run's settings. */
lathe_keep lathe__checkpoint_keep(const lathe_saved_state *saved);

/** Hashes the run's plugins once, for the manifests of all its checkpoints. */
lathe_status lathe__checkpoint_know_plugins(const lathe_saved_state *saved);

/** LATHE_E_CONFIG when checkpoint.resume = "never" would begin a second run in a folder that holds one. */
lathe_status lathe_checkpoint_refuse_mixing(const lathe_saved_state *saved);

/** Writes <checkpoint.dir>/step-N beside and gives it its name, then moves `latest`, then `best`, then
 *  removes what the settings do not keep. A folder of that name is one that was not resumed from (damaged, or
 *  behind an earlier checkpoint.resume): the new one takes its place in one step.
 *
 *  run       what is written; only read
 *  figures   of its step, for the manifest; NULL: none
 *  gate      1: every file is read back from the disk and compared before the folder gets its name
 *  out_path  [capacity] the folder's path
 *
 *  Errors  anything that went wrong, with file and cause; the folders that were there are as before,
 *          but for a failure to remove old ones, by when the new one is complete. LATHE_E_NUMERIC: weights,
 *          averages or optimizer state hold a number that is not finite; the message names the first tensor.
 *  Thread  any, one at a time per folder.
 */
lathe_status lathe_checkpoint_write(const lathe_saved_state *saved, const lathe_figures *figures,
                                    int32_t gate, char *out_path, int64_t capacity);

/** Writes the folder `path` beside and gives it its name; as lathe_checkpoint_write, without pointers and rules. */
lathe_status lathe_checkpoint_save(const lathe_saved_state *saved, const lathe_figures *figures,
                                   int32_t gate, const char *path);

/** Compares the weights in the folder with the run's, bit by bit, after letting go of what the kernel
 *  caches of its files and verifying them. LATHE_E_CORRUPT names what differs. */
lathe_status lathe__checkpoint_read_back(const lathe_saved_state *saved, const char *dir);

/** 1: the folder written from this run holds the model, not only an adapter. */
int32_t lathe__checkpoint_has_model(const lathe_saved_state *saved);

/** 1: checkpoint.resume names a checkpoint that will overwrite every weight, so that loading or making them
 *  first is wasted: nothing but the model's own trained rows. */
int32_t lathe__checkpoint_brings_all(const lathe_saved_state *saved);

/** The averaged weights of the checkpoint `dir`, which has verified, in place of those that were trained; the
 *  run is none that trains. *out_taken 0: it holds none. */
lathe_status lathe_checkpoint_take_average(const lathe_saved_state *saved, const char *dir,
                                           int32_t *out_taken);

/** Verifies the checkpoint `dir` and loads it. */
lathe_status lathe_checkpoint_load(const lathe_saved_state *saved, const char *dir);

/** Asked before a checkpoint is loaded that checkpoint.resume = "auto" chose; an error stops the resuming. */
typedef lathe_status (*lathe_accept_fn)(void *arg, const char *dir);

/** Loads what checkpoint.resume names; *out_path (in the run's arena) NULL when there is nothing to resume.
 *  "auto" takes `latest`, or, when that one is damaged, the newest that verifies (with a warning that
 *  names the damage). Each file is hashed once; a run that waits for its weights gets the optimizer's slots in
 *  the same pass. */
lathe_status lathe_checkpoint_resume(const lathe_saved_state *saved, lathe_accept_fn accept,
                                     void *arg, const char **out_path);

#endif
