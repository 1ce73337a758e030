/* Computes the norms that a step reports and uses for clipping: sums of squares of the gradients
 * and of the parameters, for each row of the parameter table, computed by the device.
 *
 *   own      |f32 gradients|masters|bf16 gradients|MATRIX masters|   each as in squares.h
 *   staging  |f32 gradients|masters|bf16 gradients|MATRIX masters|   their sums; empty if the host
 *                                                                    uses the memory in place
 */
#ifndef LATHE_OPTIM_STEP_NORMS_H
#define LATHE_OPTIM_STEP_NORMS_H

#include "optim/squares.h"

typedef struct lathe_step_norms {
    lathe_machine *m;
    const lathe_store *store;
    lathe_squares of[LATHE_N_SQUARES];
    int64_t expected_at; /* m->n_syncs when the sums of the gradients were queued; -1: not queued */
} lathe_step_norms;

/** Prepares the sums of a store whose layout is known. After an error, call fini.
 * LATHE_E_UNSUPPORTED: the device has no SUM_SQUARES. */
lathe_status lathe_step_norms_init(lathe_step_norms *n, lathe_machine *m, const lathe_store *store);
void lathe_step_norms_fini(lathe_step_norms *n);

/** Bytes of device memory, and of pinned memory. */
int64_t lathe_step_norms_bytes(const lathe_step_norms *n);
int64_t lathe_step_norms_staging_bytes(const lathe_step_norms *n);
lathe_status lathe_step_norms_place(lathe_step_norms *n, char *own, char *staging);

/** Queues the sums of the gradients, so that the next wait of the host makes them available. */
lathe_status lathe_step_norms_expect(lathe_step_norms *n);
/** Marks the queued sums as out of date, because the gradients change. */
void lathe_step_norms_forget(lathe_step_norms *n);

/** Computes sums of squares, [store->n_rows], of LATHE_SQUARES_GRADIENTS (with those in bf16),
 * MASTERS or MATRICES; 0 for rows outside the family. Waits for all queued work, unless
 * lathe_step_norms_expect queued the sums before. */
lathe_status lathe_step_norms_rows(lathe_step_norms *n, int32_t family, double *rows);

#endif
