/* Checks that the checkpoints of a run fit on the disk. */
#ifndef LATHE_CHECKPOINT_DISK_FIT_H
#define LATHE_CHECKPOINT_DISK_FIT_H

#include "base/buffer.h"
#include "checkpoint/state/saved_state.h"

typedef struct lathe_disk_fit {
    int64_t each; /* bytes of a checkpoint */
    /* most checkpoints in checkpoint.dir at one time, with the one being written; 0: unknown */
    int64_t max;
    int64_t there;  /* number of checkpoints in checkpoint.dir */
    int64_t more;   /* how many of `most` are not in checkpoint.dir yet */
    int64_t have;   /* free bytes of the file system; -1: not known */
    int32_t fits;   /* 0: more * each is more than have */
    int32_t n_room; /* number of checkpoints that fit in `have` */
} lathe_disk_fit;

/** Computes it from checkpoint.every, keep_last, keep_best, train.max_steps and the file system of
 * checkpoint.dir. The number of checkpoints that every_minutes makes is not known in
 * advance, nor that of every_epochs unless the run is by epochs; keep_last bounds it. */
lathe_status lathe_disk_fit_check(const lathe_saved_state *saved, lathe_disk_fit *out);

/** "20 checkpoints (checkpoint.keep_last = 0 keeps all) take 10.00 GiB; 5.00 GiB are free in out:
 * ...". */
void lathe_disk_fit_text(const lathe_saved_state *saved, const lathe_disk_fit *fit,
                         lathe_buffer *out);

/** The error if n_room is 0: "no checkpoint fits on the disk: one takes 17.6 MiB, and 8.0 MiB are
 * free in out: ...". */
void lathe_disk_fit_none_text(const lathe_saved_state *saved, const lathe_disk_fit *fit,
                              lathe_buffer *out);

#endif
