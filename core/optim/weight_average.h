/* Keeps an average of the trained weights, as a separate f32 copy.
 *
 *   ema        a += (1 - decay) * (w - a)   after each update that is included
 *   swa        a += (w - a) / k             k: number of updates included so far, with this one
 *   optimizer  a = result of the optimizer's average(), computed when it is needed
 *
 * The included steps are start, start + every, ..., if they updated the weights. Before the first
 * of them, a is a bitwise copy of w. The form d*a + (1-d)*w is not used: after rounding, d + (1-d)
 * may differ from 1, and then constant weights would differ from their average.
 */
#ifndef LATHE_OPTIM_WEIGHT_AVERAGE_H
#define LATHE_OPTIM_WEIGHT_AVERAGE_H

#include "exec/program/programs.h"
#include "optim/average_rows.h"
#include "optim/optimization.h"

/** The rule of an average, and the parts of a run that it reads and writes. */
typedef struct lathe_averaging {
    int32_t kind;         /* LATHE_AVERAGE_* */
    double decay;         /* of ema */
    int64_t start, every; /* steps */
    uint64_t seed;        /* of the run, for the optimizer's average() */
    const lathe_instance *optimizer;
    lathe_machine *machine;
    lathe_store *store;
    lathe_optimization *opt;
    const lathe_programs *programs; /* their arena is the buffer of a swap */
    /* counters of the training: steps, steps that updated nothing, steps in the average */
    const int64_t *step, *skipped;
    int64_t *averaged;
} lathe_averaging;

/** Sets the average to the weights; no update is included yet. */
lathe_status lathe_average_begin(const lathe_averaging *a);

/** Includes the weights in the average when the step is due; call it after every step that updated
 * something. Makes one pass and allocates nothing. The result does not depend on the number of
 * threads. */
lathe_status lathe_average_step(const lathe_averaging *a);

/** Fills the average from an optimizer that averages by itself. Call it before every evaluation and
 * every save. */
lathe_status lathe_average_fill(const lathe_averaging *a);

/** 1: the average is in memory of its own and differs from the trained weights. */
int32_t lathe_average_is_apart(const lathe_averaging *a);

/** Exchanges the weights with the average, element by element, and updates the compute copies. A
 * second call restores every bit. */
lathe_status lathe_average_swap(const lathe_averaging *a);

#endif
