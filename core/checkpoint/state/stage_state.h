/* The state of a stage that makes its own batches (lathe_stage_v1.iterate): saved as
 * state/stage.safetensors, one tensor of 64-bit words. A stage without such state has no file. */
#ifndef LATHE_CHECKPOINT_STAGE_STATE_H
#define LATHE_CHECKPOINT_STAGE_STATE_H

#include "files/safetensors/safetensors.h"

/** Memory of the core that the stage reads and writes during a step. */
typedef struct lathe_stage_state {
    void *memory;  /* host memory */
    int64_t bytes; /* a multiple of 8; 0: the stage has none */
} lathe_stage_state;

/** Writes the file into the folder `dir` (state/). */
lathe_status lathe__stage_state_write(const lathe_stage_state *state, const char *dir);

/** Opens the file of the checkpoint `dir` and checks its size; *out NULL if there is no state.
 *  LATHE_E_CONFIG: it was written with other settings of the stage, or other rows. */
lathe_status lathe__stage_state_open(const lathe_stage_state *state, const char *dir,
                                     lathe_safetensors **out);
/** Copies the opened file to the state; `set` NULL: nothing. */
void lathe__stage_state_read(const lathe_stage_state *state, const lathe_safetensors *set);

#endif
