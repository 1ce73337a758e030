/* Choice of the precision for generation and evaluation, when train.precision is not set. */
#ifndef LATHE_RUN_FASTEST_PRECISION_H
#define LATHE_RUN_FASTEST_PRECISION_H

#include "run/state/run_state.h"

/** Sets run->set.precision of a run that only generates or evaluates, unless the user set
 * train.precision, and logs the choice and its reason.
 *
 *  Evaluating a run file uses the precision of the run's own evaluations, so that the results are
 * comparable. Otherwise a precision is allowed if it stores the weights exactly: fp32 always; bf16
 * if every matrix in the model's folder is bf16, or if the run was trained in bf16. If both are
 * allowed, the device's features decide, so that the same machine gives the same bits whatever else
 * runs on it: bf16 where the device multiplies it in hardware, and for generation, which is bound
 * by the bytes of the weights; fp32 for evaluation elsewhere. bf16 is also used if the weights in
 * fp32 do not fit in the machine's memory. Call it after the machine is set up; no model is needed.
 */
lathe_status lathe__fastest_precision(lathe_run *run);

#endif
