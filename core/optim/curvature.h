/* Makes curvature estimates: after some updates, one more backward pass with labels drawn from the
 * model itself.
 *
 * An optimizer with estimate_every() = k > 0 gets an estimate after the updates 1, k + 1, 2k + 1,
 * ... The last micro-batch runs forward with the updated weights. At each target of the batch a
 * label is drawn from the model's distribution, and the gradients for these labels are passed to
 * estimate(). Nothing else in the run changes: no data, counters or figures; dropout uses the masks
 * of that micro-batch. The random numbers come from a counter (seed, update, a separate stream,
 * row), so a resumed run draws the same labels.
 *
 * Source: Gauss-Newton-Bartlett, arXiv:2305.14342, algorithm 2. Deviation: the micro-batch is the
 * last one of the step; the authors read another one from the data.
 */
#ifndef LATHE_OPTIM_CURVATURE_H
#define LATHE_OPTIM_CURVATURE_H

#include "exec/program/programs.h"
#include "optim/update.h"

/** Number of updates from one estimate to the next; 0: the optimizer wants none, or the instance
 * has no component. */
int64_t lathe_curvature_every(const lathe_instance *optimizer);

/** Makes an estimate if one is due after the update `args`; afterwards gradients count as cleared.
 * Gradients that are not finite, and a batch without targets, are skipped with a warning. Allocates
 * nothing. Does nothing if programs->sampling is not prepared. is_traced 1: the time goes into the
 * trace of the process. */
lathe_status lathe_curvature_estimate(lathe_programs *programs, const lathe_instance *optimizer,
                                      lathe_update *update, const lathe_update_args *args,
                                      int32_t is_traced);

/** FLOP of the estimates, averaged per step. */
double lathe_curvature_flops(const lathe_programs *programs, const lathe_instance *optimizer);

#endif
