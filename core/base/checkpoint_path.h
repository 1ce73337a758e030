/* Paths that name a checkpoint: the checkpoint itself, the folder of a run (its newest one), or a
 * pointer file in that folder (DIR/best, DIR/latest).
 *
 * Every key and every command that takes the folder of a model follows such a path with
 * lathe_checkpoint_resolve, so that all of them take all three forms.
 */
#ifndef LATHE_BASE_CHECKPOINT_PATH_H
#define LATHE_BASE_CHECKPOINT_PATH_H

#include "base/arena.h"
#include "lathe/status.h"

#define LATHE_STEP_FORMAT "step-%08lld"

/** Reads the step from a checkpoint's name; returns 0 if it is not such a name. */
int32_t lathe_checkpoint_step(const char *name, int64_t *out_step);

/** Reads the name in a pointer file ("latest", "best"); NULL if there is no such file.
 * LATHE_E_CORRUPT: the file does not hold the name of a checkpoint. */
lathe_status lathe_checkpoint_pointer(const char *dir, const char *pointer, lathe_arena *arena,
                                      const char **out_name);

/** 1: the path is a file named "latest" or "best" that holds the name of a checkpoint. */
int32_t lathe_path_is_pointer(const char *path);

/** The checkpoint that a pointer file names; every other path as it is. Unlike
 * lathe_checkpoint_resolve, it leaves the folder of a run alone, which some commands read whole.
 *
 *  Errors  LATHE_E_NOT_FOUND: the checkpoint does not exist; the message names it and the pointer
 *          file. */
lathe_status lathe_pointer_follow(lathe_arena *arena, const char *path, const char **out_path);

/** Finds the model folder that a path refers to: for the folder of a run, the checkpoint that its
 * file `latest` names; for a pointer file (DIR/best), the checkpoint that it names; otherwise the
 * path itself. A folder with a config.json or an adapter of its own is never a
 * folder of checkpoints: DeepSpeed, too, writes a file `latest`, into the folders of models.
 *
 *  Errors  LATHE_E_CORRUPT: `latest` of a folder does not hold the name of a checkpoint.
 *          LATHE_E_NOT_FOUND: the checkpoint does not exist. */
lathe_status lathe_checkpoint_resolve(lathe_arena *arena, const char *path, const char **out_path);

#endif
