/* run.json and events.jsonl of a run's folder: what the run is, where it runs, every start of it, and
 * what went wrong. `lathe watch` and `lathe report` read them; resuming does not.
 *
 *   run.json       {"format": "lathe-run", "version": 1, "lathe", "config", "model", "plan", "precision",
 *                   "attention", "plugins": [{"kind", "name", "version", "sha256", "path"}], "machine",
 *                   "max_steps", "lineage": [{"time", "step", "from", "branch", "host", "pid", ..., "end",
 *                   ...}]}; a start that began its branch has "abandoned", one that went back while it ran
 *                   "rewinds" (checkpoint_branch.h)
 *   events.jsonl   {"time", "level": "warning" | "error", "text"} per line, appended
 *
 * Nothing here stops a training: what cannot be written is a warning.
 */
#ifndef LATHE_LOOP_RUN_RECORD_H
#define LATHE_LOOP_RUN_RECORD_H

#include "loop/train.h"

typedef struct lathe_run_record {
    lathe_run *run; /* NULL: nothing is recorded */
    char started[32];
    int events; /* file descriptor of events.jsonl; -1: none */
} lathe_run_record;

/** Describes the run in checkpoint.dir/run.json and adds this start to its lineage. from: the
 *  checkpoint that was resumed, or NULL; peak_flops: FLOP/s that shares are of. A file that is no
 *  such record is set aside as run.json.damaged-N. From here on warnings go to events.jsonl too. */
void lathe_run_record_begin(lathe_run_record *record, lathe_run *run, const char *from,
                            double peak_flops);

/** Notes how this start ended: "finished", "stopped early", "paused", "interrupted" or "failed", with the
 *  thread's message, which stays as it is. */
void lathe_run_record_end(lathe_run_record *record, lathe_status status,
                          const lathe_train_result *result);

#endif
