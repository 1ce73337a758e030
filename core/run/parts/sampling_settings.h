/* Chooses the sampling settings that the caller does not give: from the run file, then
 * generation_config.json, then defaults. */
#ifndef LATHE_RUN_SAMPLING_SETTINGS_H
#define LATHE_RUN_SAMPLING_SETTINGS_H

#include "run/state/run_state.h"

/** Logs one line with the values of lathe_default_sampling that came from generation_config.json;
 * logs nothing if there is no such file. */
void lathe__sampling_say(const lathe_run *run);

/** Says how many tokens of the draft model were accepted, if the run has one. */
void lathe__drafts_say(const lathe_run *run);

#endif
