/* Checks the records of a run's data against its rewards, before a completion is generated. */
#ifndef LATHE_RUN_REWARD_RECORDS_H
#define LATHE_RUN_REWARD_RECORDS_H

#include "run/state/run_state.h"

/** Asks every reward of the run whether it can use a record (a JSON text). If one cannot, the error
 *  stands at that reward's key in the run file, and names the file and line of the record. */
lathe_status lathe__reward_check_record(const lathe_run *run, const lathe_source *source,
                                        int64_t line, const char *record, int64_t bytes);

/** Checks all records of the rows of a loader; does nothing for a run without rewards. */
lathe_status lathe__reward_check_data(const lathe_run *run, const lathe_loader *loader,
                                      const lathe_shards *shards);

#endif
