/* Builds the programs for batches whose rows are shorter than data.seq_len
 * (exec/program/short_programs.h).
 */
#ifndef LATHE_RUN_SHORT_ROWS_H
#define LATHE_RUN_SHORT_ROWS_H

#include "exec/program/short_programs.h"
#include "run/state/run_state.h"

/** Builds the graphs of run->programs.shorter: of training and, if `evaluates`, of evaluation. None
 *  for packed rows, and none if activations are offloaded or curvature is sampled. */
lathe_status lathe__short_rows_build(lathe_run *run, int32_t evaluates);

#endif
