/* Reads the description of a checkpoint (step, time, size, loss) from its manifest; needs no
 * run. */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_INFO_H
#define LATHE_CHECKPOINT_CHECKPOINT_INFO_H

#include <jansson.h>

#include "base/arena.h"
#include "checkpoint/state/checkpoint_folder.h"

typedef struct lathe_checkpoint_info {
    int64_t step;  /* -1: unknown */
    int64_t time;  /* seconds since 1970, by the clock of the machine that wrote it; 0: unknown */
    int64_t bytes; /* of all files */
    double loss;   /* of its step; NAN: unknown */
    const char *metric; /* checkpoint.best_metric of its run; NULL: unknown */
    double best;        /* that metric; NAN: none at this step */
    int32_t read_back;  /* 1: compared with memory after it was written */
    /* NULL: no damage, judged by the sizes of the files; else the first fault */
    const char *damage;
} lathe_checkpoint_info;

/** Reads a checkpoint's manifest and checks that its files exist with the right sizes. A damaged
 * checkpoint is not an error. The strings are in the arena. */
lathe_status lathe_checkpoint_info_read(const char *path, lathe_arena *arena,
                                        lathe_checkpoint_info *out);

/** Reads "meta" of the manifest; NULL if there is none. The caller releases it. */
lathe_status lathe_checkpoint_meta(const char *path, json_t **out);

/** Lists the checkpoints at a path: all checkpoints of a folder of checkpoints, or one checkpoint.
 * LATHE_E_NOT_FOUND: the path is neither. */
lathe_status lathe_checkpoint_entries(const char *path, lathe_arena *arena,
                                      lathe_checkpoint_entry **out, int64_t *out_n);

#endif
