/* Warns of keys that the run file sets and that this training does not use. The checks that need no
 * data are in run/settings_check.c. */
#ifndef LATHE_RUN_IDLE_KEYS_H
#define LATHE_RUN_IDLE_KEYS_H

#include "run/state/run_state.h"

/** Warns of keys about conversations where all data of the training are plain text. Reads only the
 *  names of the files. LATHE_E_NOMEM, or errors of listing the files. */
lathe_status lathe__idle_keys_warn(const lathe_run *run);

#endif
