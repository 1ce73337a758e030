/* Finds where NaN or infinity first appears in a step: computes the step again, node by node. */
#ifndef LATHE_TRAIN_NONFINITE_REPLAY_H
#define LATHE_TRAIN_NONFINITE_REPLAY_H

#include "run/state/run_state.h"

/** The position in the data at which a step begins, and what else is needed to compute the step
 * again. */
typedef struct lathe_position {
    lathe_cursor cursor;
    int64_t micro;
    int32_t backwards; /* backward passes already done, if the step was resumed in its middle */
} lathe_position;

/** Writes one line to `out` that says where the step that began at `begin` first has a NaN or
 * infinity: a parameter, or the output of a node, with its micro-batch, layer, label and element.
 * The line is cut at `bytes`. Computes the step again from the run's own data. Only reads the
 * parameters; overwrites gradients and activations, and leaves nothing accumulated. Restores cursor
 * and counters.
 *
 *  all_search  1: all ranks that take the step together call it, as they must where they divide the
 *              parameters, because each forward gathers them. `out` is empty on a rank that finds
 *              nothing while another one finds something. */
lathe_status lathe__nonfinite_find(lathe_run *run, const lathe_position *begin, int32_t all_search,
                                   char *out, int64_t bytes);

#endif
