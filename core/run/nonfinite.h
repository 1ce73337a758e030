/* Where bad numbers come from: a step computed once more, node by node, with every result looked
 * at. */
#ifndef LATHE_RUN_NONFINITE_H
#define LATHE_RUN_NONFINITE_H

#include "run/run_state.h"

/** Where a step's data begin: what it takes to compute the step again. */
typedef struct lathe_position {
    lathe_cursor cursor;
    int64_t micro;
    int32_t backwards; /* done already: of a step resumed in its middle */
} lathe_position;

/** Tells in one line where the first NaN or infinity of the step that began at `begin` is: a
 * parameter, or the output of a node, with its layer, label and element, by micro-batch. Computes
 * the step again, from the run's own data. The parameters are read only; gradients and activations
 * are overwritten, nothing stays accumulated; cursor and counters are afterwards what they were.
 *  `out` gets the line, cut at `bytes`. */
lathe_status lathe__nonfinite_find(lathe_run *run, const lathe_position *begin, char *out,
                                   int64_t bytes);

/** LATHE_E_NUMERIC for a result of evaluation or generation that is NaN or infinite: names it ("the
 * logits of token", 12), and the first parameter that is not finite, or says that all are. */
LATHE_MUST_USE lathe_status lathe__nonfinite_refuse(lathe_run *run, const char *what,
                                                    int64_t index);

#endif
