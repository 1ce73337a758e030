/* Copies a batch into the inputs of a program. */
#ifndef LATHE_EXEC_BATCH_LOAD_H
#define LATHE_EXEC_BATCH_LOAD_H

#include "exec/program/program.h"
#include "lathe/lathe.h"

/** Row of the batch that goes to row r of the program; -1: padding. Row k of each record goes to
 *  part k of the program's rows, however few records there are. */
int64_t lathe__batch_row(const lathe_program *p, const lathe_run_batch *b, int64_t r);

/** Checks a batch of the caller: LATHE_E_SHAPE, LATHE_E_ARG: it does not fit the program, or has
 * ids out of range. The run's own batches need no check: their ids were checked when they were read
 *  from the shards, and their tokenizer's vocabulary when the run was opened. */
lathe_status lathe__batch_check(const lathe_program *p, const lathe_run_batch *b, int64_t vocab);

/** Tokens of the longest sequence of a batch that is not of the run's own data (for these:
 *  lathe_batch.n_longest), where each row holds one sequence and then padding: a document of its
 *  own, without targets. Rows without doc_start or targets count whole. */
int64_t lathe__batch_length(const lathe_run_batch *b);
/** Tokens of the batch: the sum of those lengths if rows are padded, else of all rows in full.
 *  is_own: the batch is of the run's own data, whose rows of padding alone count 0. */
int64_t lathe__batch_tokens(const lathe_run_batch *b, int32_t are_padded, int32_t is_own);

/** Copies a batch that was checked into a program's inputs. A program of shorter rows takes the
 * first tokens of each row.
 *
 *   n_records       records of the batch, for a stage that compares answers: those after them
 *                 are padding
 *   needs_inputs  1: LATHE_E_STATE if the batch lacks an input of the stage; 0: it is then 0
 *   out_count     what the loss is divided by: targets, or records
 *  LATHE_E_ARG: an input that the stage does not have. */
lathe_status lathe__batch_load(lathe_program *p, const lathe_model_config *model,
                               const lathe_instance *stage, const lathe_run_batch *b,
                               int64_t n_records, int32_t needs_inputs, double *out_count);

#endif
