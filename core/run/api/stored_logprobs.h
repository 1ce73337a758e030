/* Makes the folder of a stored teacher (run/parts/stored_teacher.h): lathe logprobs. */
#ifndef LATHE_RUN_STORED_LOGPROBS_H
#define LATHE_RUN_STORED_LOGPROBS_H

#include "base/work_watch.h"
#include "run/state/run_state.h"

typedef struct lathe_storing {
    const char *dir;
    int32_t is_f16;         /* 1: numbers are stored in f16, else f32 */
    int64_t file_bytes;     /* about, of entries in one file; 0: 256 MiB */
    lathe_work_watch watch; /* of the records of all data */
} lathe_storing;

typedef struct lathe_stored {
    int64_t n_records, n_targets, n_files;
    int64_t n_kept; /* files that an earlier call had finished */
    int64_t bytes;  /* of all files */
} lathe_stored;

/** Runs the teacher over all records of data.datasets and data.validation, each up to data.seq_len
 *  tokens, in their order, and writes its most likely tokens at each target. A record's numbers do
 *  not depend on how rows are packed in training. Files are written one by one; an interrupted call
 *  continues after the last finished one, and the files are then the same, bit for bit. The
 *  manifest, without which the folder cannot be used, comes last.
 *
 *   run     opened by lathe_run_open_logprobs
 *   memory  one batch of entries; the logits of a batch are never in memory
 *
 *   Errors  LATHE_E_CONFIG: the folder has files of another teacher, other data or other settings,
 *           or files that are no log-probabilities. LATHE_E_NUMERIC: the teacher's logits are not
 *           finite. LATHE_E_CORRUPT, LATHE_E_IO, LATHE_E_NOMEM. */
lathe_status lathe__logprobs_store(lathe_run *run, const lathe_storing *how, lathe_stored *out);

#endif
