/* Choice of the precision for generation and evaluation, when train.precision is not set. */
#ifndef LATHE_RUN_FASTEST_PRECISION_H
#define LATHE_RUN_FASTEST_PRECISION_H

#include "run/run_state.h"

/** Sets run->set.precision of a run that only generates or evaluates, unless the user set
 * train.precision, and logs the choice and its reason.
 *
 *  Evaluating a run file uses the precision of the run's own evaluations, so that the results are
 * comparable. Otherwise a precision is allowed if it stores the weights exactly: fp32 always; bf16
 * if every matrix in the model's folder is bf16, or if the run was trained in bf16. If both are
 * allowed, the faster one is used. The CPU is measured: one matrix product of one row (generation)
 * or of a micro-batch (evaluation) in each precision. Other devices declare which precisions run at
 * full rate. If the two times differ by at most 15 %, bf16 is used: it needs half the memory, and
 * noise in the measurement then does not change the choice between runs. bf16 is also used if the
 * weights in fp32 do not fit in memory. Call it after the machine is set up; no model is needed. */
lathe_status lathe__fastest_precision(lathe_run *run);

/** Returns 1 if the narrower precision is to be used, given both measured times; a time of 0 means
 * not measured. */
int lathe__narrow_is_faster(double wide_seconds, double narrow_seconds);

#endif
