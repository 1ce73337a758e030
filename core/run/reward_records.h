/* Checks the records of a run's data against its rewards, before a completion is generated. */
#ifndef LATHE_RUN_REWARD_RECORDS_H
#define LATHE_RUN_REWARD_RECORDS_H

#include "run/run_state.h"

/** Refuses a record, JSON, that a reward of the run cannot use: at the reward's place in the run
 *  file, with the record's place in the data. */
lathe_status lathe__reward_check_record(const lathe_run *run, const lathe_source *source,
                                        int64_t line, const char *record, int64_t bytes);

/** Checks all records of the rows of a loader; does nothing for a run without rewards. */
lathe_status lathe__reward_check_data(const lathe_run *run, const lathe_loader *loader,
                                      const lathe_shards *shards);

#endif
