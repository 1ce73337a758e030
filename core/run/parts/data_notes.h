/* Logs notes on a run's data: records that are left out or cut, and layouts that were found from
 * the columns. They are logged once, at the first start of a run. */
#ifndef LATHE_RUN_DATA_NOTES_H
#define LATHE_RUN_DATA_NOTES_H

#include "run/state/run_state.h"

/** Logs the notes on the training data. */
void lathe__data_notes(const lathe_run *run);

/** Logs the notes on datasets that only validate. */
void lathe__data_notes_validation(const lathe_run *run);

/** With data.overlong = "error", refuses data with pairs or examples that are longer than a row. */
lathe_status lathe__data_check_overlong(const lathe_run *run, const lathe_loader *loader,
                                        const lathe_shards *shards);

#endif
