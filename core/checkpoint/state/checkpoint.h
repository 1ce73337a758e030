/* Writes and reads checkpoints. A checkpoint is a model folder that transformers can load, together
 * with the state that a run needs to continue.
 *
 *   step-00000100/   config.json model.safetensors tokenizer.json ...
 *                    adapter_model.safetensors adapter_config.json   instead of the model, if the
 *                                                                    run trains only an adapter
 *                    state/run.json state/optimizer.safetensors
 *                    average/        the same model files with the averaged weights
 *                    manifest.json   SHA-256 of every file, and "meta": version, step, time,
 *                                    figures, plugins, parents and data, configuration
 *
 * checkpoint_write.c writes a checkpoint, checkpoint_read.c reads one, checkpoint_folder.c manages
 * the folder of all checkpoints. checkpoint_image.c holds a copy of the state, from which the
 * thread in checkpoint_writer.c writes.
 */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_H
#define LATHE_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/state/checkpoint_folder.h"
#include "checkpoint/state/saved_state.h"
#include "metrics/figures.h"

/** Returns which checkpoints to keep, from the settings of the run. */
lathe_keep lathe__checkpoint_keep(const lathe_saved_state *saved);

/** Computes the hashes of the run's plugins once, for the manifests of all its checkpoints. */
lathe_status lathe__checkpoint_know_plugins(const lathe_saved_state *saved);

/** Returns LATHE_E_CONFIG if checkpoint.resume is "never" and checkpoint.dir already holds
 * checkpoints of a run. */
lathe_status lathe_checkpoint_refuse_mixing(const lathe_saved_state *saved);

/** Writes <checkpoint.dir>/step-N under a temporary name and renames it when it is complete. Then
 * updates `latest` and `best`, and removes the checkpoints that the settings do not keep. If a
 * folder with this name exists (it is damaged, or is newer than the checkpoint from which the run
 * resumed), the new folder replaces it in one step.
 *
 *  saved     state to write; only read
 *  figures   of the checkpoint's step, for the manifest; NULL: none
 *  gate      1: every file is read back from the disk and compared before the rename
 *  out_path  [capacity] path of the folder; also after an error that came when the folder was
 *            whole (a pointer that could not be written); "": there is no new folder
 *
 *  Errors  LATHE_E_NUMERIC: weights, averages or optimizer state hold NaN or infinity; the message
 *          names the first tensor. Others name the file and the cause. After LATHE_E_IO the call
 *          has tried again once, a moment later. After an error the existing checkpoints are
 *          unchanged.
 *  Thread  any, one at a time per folder.
 */
lathe_status lathe_checkpoint_write(const lathe_saved_state *saved, const lathe_figures *figures,
                                    int32_t gate, char *out_path, int64_t capacity);

/** Writes the folder `path` as lathe_checkpoint_write does, but updates no pointer and removes
 * nothing. */
lathe_status lathe_checkpoint_save(const lathe_saved_state *saved, const lathe_figures *figures,
                                   int32_t gate, const char *path);

/** Verifies the folder and compares its weights with those in memory, bit by bit. Drops its files
 * from the page cache first, so that they are read from the disk. LATHE_E_CORRUPT names the first
 * difference. */
lathe_status lathe__checkpoint_read_back(const lathe_saved_state *saved, const char *dir);

/** 1: a checkpoint of this run holds the model, not only an adapter. */
int32_t lathe__checkpoint_has_model(const lathe_saved_state *saved);

/** 1: checkpoint.resume names a checkpoint that will overwrite every weight, so the weights need
 *  not be loaded or initialized first. This requires that every row belongs to the model itself
 *  and is trained. */
int32_t lathe__checkpoint_brings_all(const lathe_saved_state *saved);

/** Loads the averaged weights of the checkpoint `dir`, which was verified, instead of the trained
 * ones. For runs that do not train. *out_taken is 0 if the checkpoint holds no average. */
lathe_status lathe_checkpoint_take_average(const lathe_saved_state *saved, const char *dir,
                                           int32_t *out_taken);

/** Verifies the checkpoint `dir` and loads it. */
lathe_status lathe_checkpoint_load(const lathe_saved_state *saved, const char *dir);

/** Called before a checkpoint that checkpoint.resume = "auto" chose is loaded; an error ends the
 * resuming. */
typedef lathe_status (*lathe_accept_fn)(void *arg, const char *dir);

/** Loads the checkpoint that checkpoint.resume names. *out_path is in the run's arena; NULL: there
 * is nothing to resume. "auto" takes `latest`. If that one is damaged, it takes the newest
 * checkpoint that can be verified, with a warning that names the damage. Each file is hashed once;
 * if the run still waits for its weights, the optimizer's slots are read in the same pass. */
lathe_status lathe_checkpoint_resume(const lathe_saved_state *saved, lathe_accept_fn accept,
                                     void *arg, const char **out_path);

#endif
