/* state/ of a checkpoint: run.json (counters, schedule, loss scale, data cursor, parts), the optimizer's
 * slots, the weights' average when it is a state of its own, and in the middle of a step the gradients
 * summed so far. */
#ifndef LATHE_CHECKPOINT_TRAIN_STATE_H
#define LATHE_CHECKPOINT_TRAIN_STATE_H

#include "checkpoint/saved_state.h"

/** Writes dir/state/run.json, optimizer.safetensors, average.safetensors (lathe__average_is_state) and, when
 *  sum.backwards > 0, gradients.safetensors. */
lathe_status lathe__train_state_write(const lathe_saved_state *saved, const char *dir);

/** Verifies the checkpoint `dir` (lathe_manifest_verify) and reads the optimizer's slots in the same pass, when
 *  they are this run's: *out_read. Slots that were read stay undefined unless it verifies, so the run must be
 *  one that nothing has trained yet. */
lathe_status lathe__train_state_verify(const lathe_saved_state *saved, const char *dir,
                                       int32_t *out_read);

/** What of a state is not the run's. */
enum {
    LATHE_STATE_PARTS,
    LATHE_STATE_PRECISION, /* in the middle of a step */
    LATHE_STATE_DATA,
    LATHE_STATE_SLOTS
};

/** Whether it is a state of this run, before there is memory for it: parts, data cursor, and the heads of the slots.
 *  The errors of lathe__train_state_read; *out_what: LATHE_STATE_*, where it is not. */
lathe_status lathe__train_state_check(const lathe_saved_state *saved, const char *dir,
                                      int32_t *out_what);

/** Reads them into the run; has_slots 1: the slots are there already. Everything is checked before anything is written: parts (optimizer,
 *  scheduler, stage, adapter), slot names and shapes, cursor. LATHE_E_CONFIG says what differs. */
lathe_status lathe__train_state_read(const lathe_saved_state *saved, const char *dir,
                                     int32_t has_slots);

#endif
