/* Writes run.json and events.jsonl of a run's folder: what the run is, which machine it uses, every
 * start of it, and what went wrong. `lathe watch` and `lathe report` read them; resuming does not.
 *
 *   run.json       {"format": "lathe-run", "version": 1, "lathe", "config", "model", "plan",
 *                   "precision", "attention",
 *                   "plugins": [{"kind", "name", "version", "sha256", "path"}], "machine",
 *                   "max_steps", "lineage": [{"time", "step", "from", "branch", "host", "pid", ...,
 *                   "end", ...}]}
 *                  A start that began its branch has "abandoned"; a start that went back while it
 *                  ran has "rewinds" (checkpoint_branch.h).
 *   events.jsonl   {"time", "level": "warning" | "error", "text"} per line, appended
 *
 * Errors here never stop a training: if a file cannot be written, that is logged as a warning.
 */
#ifndef LATHE_TRAIN_RUN_RECORD_H
#define LATHE_TRAIN_RUN_RECORD_H

#include "train/train.h"

typedef struct lathe_run_record {
    lathe_run *run; /* NULL: nothing is recorded */
    char started[32];
    int events; /* file descriptor of events.jsonl; -1: none */
} lathe_run_record;

/** Describes the run in checkpoint.dir/run.json and adds this start to its lineage. From then on,
 * warnings are also written to events.jsonl. A file that is not a valid record is renamed to
 * run.json.damaged-N. from: the checkpoint that was resumed, or NULL. peak_flops: the FLOP/s that
 * count as 100 % of the peak. */
void lathe_run_record_begin(lathe_run_record *record, lathe_run *run, const char *from,
                            double peak_flops);

/** Records how this start ended: "finished", "stopped early", "paused", "interrupted" or "failed",
 * with the thread's error message, which is not changed. */
void lathe_run_record_end(lathe_run_record *record, lathe_status status,
                          const lathe_train_result *result);

/** For a start that found nothing to do, in place of the two above: leaves the record as it is,
 * except that the last start is "finished" or "stopped early" now if it did not say so, as after a
 * kill just before its end. */
void lathe_run_record_complete(const lathe_run *run, const lathe_train_result *result);

#endif
