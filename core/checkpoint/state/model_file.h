/* Writes the model file of a checkpoint: the dtype in which each tensor is saved, and where its
 * values come from.
 *
 *   trained       the f32 master, rounded to checkpoint.save_dtype. If that loses bits, the master
 * is also in state/masters.safetensors, and resuming reads this copy.
 *   not trained   the bytes of the file from which the tensor was read (model.path, or the
 *                 checkpoint that was resumed); in a new model, the value that the seed gives
 */
#ifndef LATHE_CHECKPOINT_MODEL_FILE_H
#define LATHE_CHECKPOINT_MODEL_FILE_H

#include "checkpoint/state/saved_state.h"

/** Chooses the dtypes once the parameters are known. With checkpoint.save_dtype = "auto" they are
 * those of the tensors in model.path, or, if there are no weights yet, the one in its config.json;
 * F32 for a new model. */
lathe_status lathe__model_file_plan(const lathe_saved_state *saved);

/** Records, after the weights were read from `set`, from which files the untrained tensors came. No
 * checkpoint may be in flight, because it would be written from the earlier record. */
lathe_status lathe__model_file_origin(const lathe_saved_state *saved, const lathe_safetensors *set);

/** 1: the file holds fewer bits of this parameter than its master. */
int32_t lathe__model_file_rounds(const lathe_saved_state *saved, int32_t param);
/** 1: lathe__model_file_rounds is 1 for at least one parameter. */
int32_t lathe__model_file_rounds_any(const lathe_saved_state *saved);

/** Writes dir/config.json and dir/model.safetensors or its shards. */
lathe_status lathe__model_file_write(const lathe_saved_state *saved, const char *dir);

/** Compares the file in `dir` with what would be written. LATHE_E_CORRUPT: they differ. */
lathe_status lathe__model_file_compare(const lathe_saved_state *saved, const char *dir);

/** Bytes of one checkpoint of the run on the disk: its tensors, the copied files of the tokenizer,
 * and an allowance for the texts that describe them, of which a checkpoint does not use more. */
int64_t lathe__checkpoint_disk_bytes(const lathe_saved_state *saved);
/** The part of it that the tensors take, without the state of a stage. */
int64_t lathe__checkpoint_tensor_bytes(const lathe_saved_state *saved);

#endif
