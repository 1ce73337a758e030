/* Writes and reads the folder state/ of a checkpoint: run.json (counters, schedule, loss scale,
 * data cursor, parts), the optimizer's slots, the average of the weights if it is a separate state,
 * and, in the middle of a step, the gradients summed so far. */
#ifndef LATHE_CHECKPOINT_TRAIN_STATE_H
#define LATHE_CHECKPOINT_TRAIN_STATE_H

#include "checkpoint/state/saved_state.h"

/** Writes dir/state/run.json and optimizer.safetensors; average.safetensors if
 * lathe__average_is_state; and gradients.safetensors if sum.backwards > 0. */
lathe_status lathe__train_state_write(const lathe_saved_state *saved, const char *dir);

/** Which part of a saved state does not match the run. */
enum {
    LATHE_STATE_PARTS,
    LATHE_STATE_PRECISION, /* only compared in the middle of a step */
    LATHE_STATE_DATA,
    LATHE_STATE_SLOTS,
    LATHE_STATE_STAGE
};

/** Checks, before any memory is allocated, that a saved state belongs to this run: parts, data
 * cursor, and names and shapes of the slots. Returns the errors of lathe__train_state_read;
 * *out_what is then the LATHE_STATE_* that does not match. */
lathe_status lathe__train_state_check(const lathe_saved_state *saved, const char *dir,
                                      int32_t *out_what);

/** Reads the state into the run. has_slots 1: the slots were read already. Checks everything before
 * it changes the run: parts (optimizer, scheduler, stage, adapter), slot names and shapes, cursor.
 * LATHE_E_CONFIG says what differs. */
lathe_status lathe__train_state_read(const lathe_saved_state *saved, const char *dir,
                                     int32_t has_slots);

#endif
