/* Whether a run would start: for lathe validate and lathe train alike. */
#ifndef LATHE_RUN_RUN_CHECK_H
#define LATHE_RUN_RUN_CHECK_H

#include "run/run_state.h"

/** Adds to diags everything that would keep the run from starting, and warnings. Does what opening a run for
 *  training does up to the memory: it reads the model's description and the heads of its weight files, the
 *  tokenizer and the data (which are tokenised into data.cache_dir), opens the device and makes the plan.
 *  is_offline: leaves out what needs the machine or the data.
 *
 *  Errors  LATHE_E_CONFIG: diags has them. Others: the file is no TOML, or the machine failed; diags has none. */
lathe_status lathe_run_check(const char *config_path, const lathe_override *overrides,
                             int32_t n_overrides, int32_t is_offline, lathe_diags *diags);

/** Opens a run for training as lathe_run_open_mode does, with its errors and warnings in diags instead of the
 *  log. is_dry: reads the first part of the data only, keeps nothing of it, and takes no checkpoint. */
lathe_status lathe_run_open_training(const char *config_path, const lathe_override *overrides,
                                     int32_t n_overrides, int32_t is_dry, lathe_diags *diags,
                                     lathe_run **out);

/** Whether a schedule takes a run of `total` steps. *out_cut_short: NULL, or why the run is too short for it, where
 *  that is all that is wrong: the rates are those of the first steps of a longer run. Borrowed until the thread's
 *  next call.  Errors  as the scheduler's check. */
lathe_status lathe_run_check_schedule(const lathe_instance *scheduler, int64_t total,
                                      const char **out_cut_short);

/* ---- parts of it, shared inside the floor ---- */

/** Keys of the core's sections that contradict each other or have no effect (settings_check.c). */
lathe_status lathe__settings_check(lathe_run *run);

/** Warns when train.stop_after is at or beyond the run's end, as far as its length is known. */
void lathe__settings_check_pause(const lathe_run *run);

/** The kind of each dataset, its columns and its first record against the stage (data_check.c). */
lathe_status lathe__data_check(lathe_run *run);

/** The heads of the weight files against the model: names, shapes, types; no value is read (run_weights.c).
 *  A folder without weight files will do where the checkpoint that is resumed from holds all weights. */
lathe_status lathe__weights_check(lathe_run *run);

#endif
