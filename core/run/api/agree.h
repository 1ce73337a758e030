/* The one place of a step where ranks agree: after its micro-batches, before its update. */
#ifndef LATHE_RUN_AGREE_H
#define LATHE_RUN_AGREE_H

#include "run/state/run_state.h"

/** Facts that ranks tell each other besides their sums. */
typedef struct lathe_agreement {
    /* A micro-batch whose loss is not finite, from 1; 0: none. in: of this rank; out: the first of
     * all */
    int32_t bad;
    int32_t rank;  /* out: whose it is */
    double loss;   /* in, out: its loss */
    int32_t stops; /* in: this rank was asked to stop; out: one of them was */
    /* The time that a rank took for its micro-batches. in: `seconds` of this rank; out: the longest
     * and the shortest of all, and whose the longest is. */
    int32_t slowest;
    double seconds, least_seconds;
} lathe_agreement;

/** Replaces run->sum by the sums of all ranks, in the order of ranks, and counts their tokens in
 *  run->at. Does nothing on one rank, or if it was called since the last step. With islands all are
 *  the ranks of this one; islands tell each other when a round ends (outer_step.h). */
lathe_status lathe__run_agree(lathe_run *run, lathe_agreement *agreement);

/** Adds the gradients of all ranks; nothing on one rank, or if the last backward has done it. */
lathe_status lathe__run_reduce(lathe_run *run);

/** Replaces each of n numbers by its sum over all ranks, in the order of ranks; nothing on one
 *  rank. The other ranks may take any time to arrive. */
lathe_status lathe__run_add_ranks(lathe_run *run, double *numbers, int32_t n);

#endif
