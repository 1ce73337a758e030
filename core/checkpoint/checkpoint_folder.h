/* The folder of a run's checkpoints: names, pointers, what is kept. Order is by step; no clock has a say.
 *
 *   <dir>/step-00000100/   checkpoints
 *   <dir>/latest           name of the newest complete one
 *   <dir>/best             name of the one with the best metric, once read back (checkpoint.keep_best)
 *   <dir>/lock             held by the run that trains here
 *   <dir>/NAME.tmp.PID     what process PID is writing
 */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_FOLDER_H
#define LATHE_CHECKPOINT_CHECKPOINT_FOLDER_H

#include "base/arena.h"
#include "lathe/status.h"

#define LATHE_STEP_FORMAT "step-%08lld"

typedef struct lathe_checkpoint_entry {
    int64_t step;
    const char *name, *path;
} lathe_checkpoint_entry;

/** What to keep, and what is best. */
typedef struct lathe_keep {
    int64_t last;       /* the newest so many; 0: all */
    int64_t best;       /* the best so many; 0: none for being good */
    const char *metric; /* "eval_loss" */
    int32_t higher;     /* 1: more is better */
    int32_t read_back;  /* 1: only those that were read back count (checkpoint.gate) */
} lathe_keep;

/** The step in a checkpoint's name; 0 when it is no such name. */
int32_t lathe_checkpoint_step(const char *name, int64_t *out_step);

/** The folder's checkpoints by step, whether whole or not. */
lathe_status lathe_checkpoint_list(const char *dir, lathe_arena *arena,
                                   lathe_checkpoint_entry **out, int64_t *out_n);

/** What a pointer file ("latest", "best") names; NULL without one. LATHE_E_CORRUPT: no checkpoint's name. */
lathe_status lathe_checkpoint_pointer(const char *dir, const char *pointer, lathe_arena *arena,
                                      const char **out_name);
/** Moves a pointer: atomic and durable. */
lathe_status lathe_checkpoint_point(const char *dir, const char *pointer, const char *name);

/** The model folder behind a path: itself; for a folder of checkpoints what `latest` names; for such a
 *  folder's pointer file (DIR/best) what it names. */
lathe_status lathe_checkpoint_resolve(lathe_arena *arena, const char *path, const char **out_path);

/** A figure that the checkpoint's manifest tells of its step; NAN when it has none, when the manifest is missing
 *  or damaged, or, when `read_back`, when the checkpoint was not read back before it got its name. */
lathe_status lathe_checkpoint_figure(const char *path, const char *key, int32_t read_back,
                                     double *out);

/** Whether `a` is the better metric. NAN is never better, and worse than any number. */
int32_t lathe_checkpoint_better(const lathe_keep *keep, double a, double b);

/** The names of the best keep->best checkpoints, best first, in the arena. */
lathe_status lathe_checkpoint_best(const char *dir, const lathe_keep *keep, lathe_arena *arena,
                                   const lathe_checkpoint_entry **out, int64_t *out_n);

/** Removes a checkpoint: first its name goes, then its files, so that no half of it stays behind. */
lathe_status lathe_checkpoint_remove(const char *path);

/** Removes what `keep` leaves over, never what `latest` or `best` names. */
lathe_status lathe_checkpoint_remove_old(const char *dir, const lathe_keep *keep);

/** Removes what processes that are gone were writing (NAME.tmp.PID). */
lathe_status lathe_checkpoint_remove_stale(const char *dir);

#endif
