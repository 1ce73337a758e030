/* The precision of what only generates or is evaluated, when nobody chose one. */
#ifndef LATHE_RUN_FASTEST_PRECISION_H
#define LATHE_RUN_FASTEST_PRECISION_H

#include "run/run_state.h"

/** Sets run->set.precision of a run that generates or evaluates, unless train.precision was given, and says
 *  which it is and why.
 *
 *  The evaluation of a run file computes as the run's own evaluations do, so that the figures compare. Else
 *  allowed is what loses nothing of the weights: fp32 always; bf16 where every matrix of the model's folder is
 *  bf16, or where a run file was trained in it. Of two allowed ones the faster is taken: on the CPU both are
 *  measured on this machine, in one product of one row (to generate) or of a micro-batch (to evaluate); other
 *  devices declare what they compute at full rate. Where the two are within 15 %, the narrower is taken: it
 *  takes half the memory, and measurements that differ a little do not change the choice from run to run. So is
 *  it where the weights in fp32 would not fit into the memory. Needs the machine, and no model yet. */
lathe_status lathe__fastest_precision(lathe_run *run);

/** Of times in fp32 and in a narrower precision, whether the narrower is taken; 0: not measured. */
int lathe__narrow_is_faster(double wide_seconds, double narrow_seconds);

#endif
