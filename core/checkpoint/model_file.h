/* The model's own file in a checkpoint: which dtype each tensor is saved in, and where its values come from.
 *
 *   trains            the f32 master, rounded to checkpoint.save_dtype; a master that is rounded is in
 *                     state/masters.safetensors as well, and resuming takes it from there
 *   does not train    the bytes of the file that it was read from (model.path, or the checkpoint resumed from),
 *                     or, in a new model, the number that the seed gives
 */
#ifndef LATHE_CHECKPOINT_MODEL_FILE_H
#define LATHE_CHECKPOINT_MODEL_FILE_H

#include "checkpoint/saved_state.h"

/** Settles the dtypes once the parameters are known. checkpoint.save_dtype = "auto": those of the tensors in
 *  model.path (where there are no weights yet, what its config.json says), F32 for a new model. */
lathe_status lathe__model_file_plan(const lathe_saved_state *saved);

/** After the weights were read from `set`: remembers where those that do not train came from. No checkpoint may be
 *  in flight, because it would be written from what was remembered before. */
lathe_status lathe__model_file_origin(const lathe_saved_state *saved, const lathe_safetensors *set);

/** 1: the file holds fewer bits of this parameter than its master. */
int32_t lathe__model_file_rounds(const lathe_saved_state *saved, int32_t param);
/** 1: of any parameter. */
int32_t lathe__model_file_rounds_any(const lathe_saved_state *saved);

/** Writes dir/config.json and dir/model.safetensors or its shards. */
lathe_status lathe__model_file_write(const lathe_saved_state *saved, const char *dir);

/** LATHE_E_CORRUPT: the file is not what would be written. */
lathe_status lathe__model_file_compare(const lathe_saved_state *saved, const char *dir);

/** Bytes of a checkpoint of the run on the disk, but for its few small files. */
int64_t lathe__checkpoint_disk_bytes(const lathe_saved_state *saved);

#endif
