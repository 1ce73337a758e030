/* Writes and reads the optimizer's state slots in state/optimizer.safetensors, one tensor
 * "<parameter>.<slot>" for each slot. */
#ifndef LATHE_CHECKPOINT_STATE_SLOTS_H
#define LATHE_CHECKPOINT_STATE_SLOTS_H

#include "checkpoint/state/saved_state.h"
#include "files/safetensors/safetensors.h"

/** Writes the file into the folder `dir`. */
lathe_status lathe__state_slots_write(const lathe_saved_state *saved, const char *dir);

/** Compares names, dtypes and shapes of the file with the slots of the run. LATHE_E_CONFIG: the
 *  checkpoint was written with other optimizer settings. */
lathe_status lathe__state_slots_check(const lathe_saved_state *saved, lathe_safetensors *set);

/** Copies the file, which was checked, into the run's memory. */
lathe_status lathe__state_slots_read(const lathe_saved_state *saved, lathe_safetensors *set);

/** Verifies the checkpoint `dir` (lathe_manifest_verify) and reads its slots in the same pass if
 * they belong to this run; then *out_read is 1. If verification fails, the slots in memory are
 * undefined, so call it only before the run has trained. */
lathe_status lathe__state_slots_verify(const lathe_saved_state *saved, const char *dir,
                                       int32_t *out_read);

#endif
