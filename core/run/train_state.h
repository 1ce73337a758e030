/* state/ of a checkpoint: run.json (counters, schedule, data cursor, parts) and the optimizer's slots. */
#ifndef LATHE_RUN_TRAIN_STATE_H
#define LATHE_RUN_TRAIN_STATE_H

#include "run/run_state.h"

/** Writes dir/state/run.json and dir/state/optimizer.safetensors. */
lathe_status lathe__train_state_write(const lathe_run *run, const char *dir);

/** Reads both into the run. Everything is checked before anything is written: parts (optimizer,
 *  scheduler, stage, adapter), slot names and shapes, cursor. LATHE_E_CONFIG says what differs. */
lathe_status lathe__train_state_read(lathe_run *run, const char *dir);

#endif
