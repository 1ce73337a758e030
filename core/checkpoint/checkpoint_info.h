/* What a checkpoint tells of itself, without a run. */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_INFO_H
#define LATHE_CHECKPOINT_CHECKPOINT_INFO_H

#include <jansson.h>

#include "base/arena.h"
#include "checkpoint/checkpoint_folder.h"

typedef struct lathe_checkpoint_info {
    int64_t step;  /* -1: unknown */
    int64_t time;  /* seconds since 1970, by the clock of the machine that wrote it; 0: unknown */
    int64_t bytes; /* of all files */
    double loss;   /* of its step; NAN: unknown */
    const char *metric; /* checkpoint.best_metric of its run; NULL: unknown */
    double best;        /* that metric; NAN: none at this step */
    int32_t read_back;  /* compared with memory after it was written */
    const char *damage; /* NULL: whole, as far as sizes tell; else the first thing that is wrong */
} lathe_checkpoint_info;

/** Reads a checkpoint's manifest and looks whether its files are there, at their lengths. Damage is no
 *  failure. Texts live in the arena. */
lathe_status lathe_checkpoint_info_read(const char *path, lathe_arena *arena,
                                        lathe_checkpoint_info *out);

/** The manifest's "meta"; NULL without one. The caller drops it. */
lathe_status lathe_checkpoint_meta(const char *path, json_t **out);

/** The checkpoints a path stands for: a folder of checkpoints all of its own, a checkpoint itself.
 *  LATHE_E_NOT_FOUND: neither. */
lathe_status lathe_checkpoint_entries(const char *path, lathe_arena *arena,
                                      lathe_checkpoint_entry **out, int64_t *out_n);

#endif
