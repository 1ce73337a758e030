/* Files of state/ with a tensor per trained parameter:
 *
 *   gradients  summed since zero_grad, as they stand in memory: scaled and not yet averaged
 *   average    the f32 average of the weights
 *   masters    the f32 masters that model.safetensors rounds (model_file.h)
 */
#ifndef LATHE_CHECKPOINT_STATE_ROWS_H
#define LATHE_CHECKPOINT_STATE_ROWS_H

#include "checkpoint/saved_state.h"
#include "io/safetensors.h"

typedef enum lathe_state_rows {
    LATHE_ROWS_GRADIENTS,
    LATHE_ROWS_AVERAGES,
    LATHE_ROWS_MASTERS
} lathe_state_rows;

#define LATHE_STATE_FILE_BYTES                                                                     \
    (256LL << 20) /* more goes into further files: one thread hashes one file */

/** The file's path, in the arena, when it or its index is in the checkpoint `dir`; else NULL in *out. */
lathe_status lathe__state_rows_find(lathe_arena *arena, const char *dir, lathe_state_rows what,
                                    const char **out);

/** Writes the file into the folder `state`; gradients with the batch of a curvature estimate. */
lathe_status lathe__state_rows_write(const lathe_saved_state *saved, const char *state,
                                     lathe_state_rows what);

/** Opens the file of the checkpoint `dir` and checks that it has every row. */
lathe_status lathe__state_rows_open(const lathe_saved_state *saved, const char *dir,
                                    lathe_state_rows what, lathe_safetensors **out);

/** Into the run's memory; a NULL set is nothing. */
lathe_status lathe__state_rows_read(const lathe_saved_state *saved, const lathe_safetensors *set,
                                    lathe_state_rows what);

#endif
