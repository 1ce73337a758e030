/* Writes and reads the files of state/ that hold one tensor per trained parameter:
 *
 *   gradients  sums since zero_grad, as in memory: with the loss scale, not averaged
 *   average    f32 average of the weights
 *   masters    f32 masters of the weights that model.safetensors rounds (model_file.h)
 */
#ifndef LATHE_CHECKPOINT_STATE_ROWS_H
#define LATHE_CHECKPOINT_STATE_ROWS_H

#include "checkpoint/state/saved_state.h"
#include "files/safetensors/safetensors.h"

typedef enum lathe_state_rows {
    LATHE_ROWS_GRADIENTS,
    LATHE_ROWS_AVERAGES,
    LATHE_ROWS_MASTERS
} lathe_state_rows;

#define LATHE_STATE_FILE_BYTES                                                                     \
    (256LL << 20) /* a larger file is split, because each file is hashed by one thread */

/** Finds the file, or its index, in the checkpoint `dir`. *out is its path, in the arena; NULL if
 * there is none. */
lathe_status lathe__state_rows_find(lathe_arena *arena, const char *dir, lathe_state_rows what,
                                    const char **out);

/** Writes the file into the folder `state`. With the gradients it writes the batch of a curvature
 * estimate (batch_rows.h). */
lathe_status lathe__state_rows_write(const lathe_saved_state *saved, const char *state,
                                     lathe_state_rows what);

/** Opens the file of the checkpoint `dir` and checks that it has every row. */
lathe_status lathe__state_rows_open(const lathe_saved_state *saved, const char *dir,
                                    lathe_state_rows what, lathe_safetensors **out);

/** Copies the rows into the run's memory; does nothing if set is NULL. */
lathe_status lathe__state_rows_read(const lathe_saved_state *saved, const lathe_safetensors *set,
                                    lathe_state_rows what);

#endif
