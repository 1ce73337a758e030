/* Manages the folder of a run's checkpoints: names, pointer files, and which checkpoints to keep.
 * Checkpoints are ordered by step, never by time.
 *
 *   <dir>/step-00000100/   a checkpoint
 *   <dir>/latest           name of the newest complete checkpoint
 *   <dir>/best             name of the checkpoint with the best metric, written after that
 *                          checkpoint was read back (checkpoint.keep_best)
 *   <dir>/lock             held by the run that trains in this folder
 *   <dir>/NAME.tmp.PID     folder or file that process PID is writing
 */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_FOLDER_H
#define LATHE_CHECKPOINT_CHECKPOINT_FOLDER_H

#include "base/arena.h"
#include "base/checkpoint_path.h"
#include "lathe/status.h"

typedef struct lathe_checkpoint_entry {
    int64_t step;
    const char *name, *path;
} lathe_checkpoint_entry;

/** Which checkpoints to keep, and which are best. */
typedef struct lathe_keep {
    int64_t last;       /* number of newest checkpoints to keep; 0 keeps all */
    int64_t best;       /* number of best checkpoints to keep; 0: none */
    const char *metric; /* "eval_loss" */
    int32_t higher;     /* 1: more is better */
    int32_t read_back;  /* 1: only checkpoints that were read back can be best (checkpoint.gate) */
} lathe_keep;

/** Lists the folder's checkpoints by step, including damaged ones. */
lathe_status lathe_checkpoint_list(const char *dir, lathe_arena *arena,
                                   lathe_checkpoint_entry **out, int64_t *out_n);

/** Writes a pointer file, atomically and durably. */
lathe_status lathe_checkpoint_point(const char *dir, const char *pointer, const char *name);

/** Reads a figure of the checkpoint's step from its manifest. NAN if the figure is not in it, if
 * the manifest is missing or damaged, or if `read_back` is set and the checkpoint was not read back
 * before its rename. */
lathe_status lathe_checkpoint_figure(const char *path, const char *key, int32_t read_back,
                                     double *out);

/** Whether metric `a` is better than `b`. NAN is worse than any number. */
int32_t lathe_checkpoint_better(const lathe_keep *keep, double a, double b);

/** The names of the best keep->best checkpoints, best first, in the arena. */
lathe_status lathe_checkpoint_best(const char *dir, const lathe_keep *keep, lathe_arena *arena,
                                   const lathe_checkpoint_entry **out, int64_t *out_n);

/** Lets `best` name the best checkpoint of the folder, if there is one. Whoever was interrupted
 *  between writing `latest` and `best` has left the one before. */
lathe_status lathe_checkpoint_point_best(const char *dir, const lathe_keep *keep);

/** Removes a checkpoint. Renames the folder before it deletes the files, so that no partial
 * checkpoint remains. */
lathe_status lathe_checkpoint_remove(const char *path);

/** Removes the checkpoints that `keep` does not keep, but never those that `latest` or `best`
 * names. */
lathe_status lathe_checkpoint_remove_old(const char *dir, const lathe_keep *keep);

/** Removes unfinished files and folders (NAME.tmp.PID) of processes that no longer exist. */
lathe_status lathe_checkpoint_remove_stale(const char *dir);

#endif
