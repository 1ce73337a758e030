/* The stored teacher of a run: a folder that lathe logprobs made (teacher.stored), with the most
 * likely tokens of a teacher at each target of the data.
 *
 *   lathe__stored_open   reads and checks its manifest, before the graphs are built
 *   lathe__stored_of     finds the files of given data, and checks that they are of these
 *
 * The folder has files as logprob_file.h describes them, and a manifest.json with "meta":
 *
 *   {"kind": "logprobs", "top_k", "temperature", "seq_len", "vocab_size", "tokenizer": "<hash>",
 *    "precision": "fp32", "parents": [the teacher, as in checkpoints],
 *    "sets": [{"name": "datasets", "data": "<hash>", "records", "targets", "files": ["..."]}, ...]}
 */
#ifndef LATHE_RUN_STORED_TEACHER_H
#define LATHE_RUN_STORED_TEACHER_H

#include "data/rows/logprob_set.h"
#include "run/state/run_state.h"

#define LATHE_LOGPROBS_KIND "logprobs"

/** Opens the folder teacher.stored. LATHE_E_CONFIG, at that key: it is not what lathe logprobs
 *  makes, a file is missing or of another size, or it is of another vocabulary or tokenizer; the
 *  stage cannot learn from it. */
lathe_status lathe__stored_open(lathe_run *run);

/** Tokens per target, and the temperature of their log-probabilities; 0: no stored teacher. */
int32_t lathe__stored_k(const lathe_run *run);
double lathe__stored_temperature(const lathe_run *run);

/** Writes the stage's inputs of a stored teacher, and their shapes with counts; returns their
 * number, 0 without a stored teacher. */
int32_t lathe__stored_inputs(const lathe_run *run, lathe_stage_input *out,
                             lathe_input_shape *out_shapes);

/** The log-probabilities of all records of the shards; NULL: the run has no stored teacher, or it
 *  is a dry run, whose shards are a part of the data. Files of up to 1 GiB in all are checked
 *  whole, of larger ones each record when it is read. LATHE_E_CONFIG: they are of other data or
 *  damaged, or records were stored up to fewer tokens than data.seq_len. */
lathe_status lathe__stored_of(lathe_run *run, const lathe_shards *shards,
                              const lathe_logprob_set **out);

/** Closes it; run->data.loader and validation must be destroyed before. */
void lathe__stored_close(lathe_run *run);

#endif
