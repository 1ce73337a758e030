/* Primitives for core/train and core/train that the C API does not have. */
#ifndef LATHE_RUN_PRIMITIVES_H
#define LATHE_RUN_PRIMITIVES_H

#include "run/state/run_state.h"

/** lathe__forward_later runs a training forward on the run's own data without waiting for its loss.
 * At most train.gradient_accumulation_steps of them may be pending. lathe__losses_settle waits for
 * them, adds their sums to run->sum, and makes the gradients' norm available for the update.
 * *out_bad is the first micro-batch of the step whose loss is not finite, counted from 1; 0: none.
 * For devices that do not share memory with the host. */
lathe_status lathe__forward_later(lathe_run *run);
lathe_status lathe__losses_settle(lathe_run *run, int32_t *out_bad, double *out_loss);
/** lathe_backward of one of the micro-batches of a step, of which there are
 *  train.gradient_accumulation_steps. The last one adds the gradients of all ranks, so all ranks
 *  call it for each micro-batch. */
lathe_status lathe__backward_of_step(lathe_run *run);
/** Whether backwards of a step exchange gradients with other ranks. */
int32_t lathe__backwards_exchange(const lathe_run *run);
/** lathe_logprobs with the program of evaluations, which computes as training does, and which short
 *  rows make faster. */
lathe_status lathe__evaluated_logprobs(lathe_run *run, const lathe_run_batch *batch, float *out);
/** lathe_run_api.outputs, with the same program. LATHE_E_STATE: the stage's loss gives none. */
lathe_status lathe__evaluated_outputs(lathe_run *run, const lathe_run_batch *batch,
                                      float *const *out);

/** Counts a step that is skipped without calling lathe_step, and fills the fields of `out` that are
 * known. */
lathe_status lathe__run_left_out(lathe_run *run, lathe_step_result *out);

/** Whether the next backward adds to the gradients of the last, instead of replacing them. */
int32_t lathe__run_accumulates(const lathe_run *run);

#endif
