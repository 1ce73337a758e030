/* The norms that a step is clipped by and reports: sums of squares by row of the parameter table, of the gradients and
 * of the parameters, computed by the device.
 *
 *   own      |segments and sums of the gradients|of the masters|of gradients in bf16|of MATRIX masters|
 *   staging  |sums of the gradients|of the masters|...|    nothing where the host shares the memory
 */
#ifndef LATHE_UPDATE_STEP_NORMS_H
#define LATHE_UPDATE_STEP_NORMS_H

#include "update/squares.h"

typedef struct lathe_step_norms {
    lathe_machine *m;
    const lathe_store *store;
    lathe_squares of[LATHE_N_SQUARES];
    int64_t expected_at; /* m->n_syncs when the gradients' sums were queued; -1: they are not */
} lathe_step_norms;

/** Of a laid-out store. On failure fini is due. LATHE_E_UNSUPPORTED: the device has no SUM_SQUARES. */
lathe_status lathe_step_norms_init(lathe_step_norms *n, lathe_machine *m, const lathe_store *store);
void lathe_step_norms_fini(lathe_step_norms *n);

/** Bytes of device memory, and of pinned memory. */
int64_t lathe_step_norms_bytes(const lathe_step_norms *n);
int64_t lathe_step_norms_staging_bytes(const lathe_step_norms *n);
lathe_status lathe_step_norms_place(lathe_step_norms *n, char *own, char *staging);

/** Queues the sums of the gradients, so that the host's next wait brings them. */
lathe_status lathe_step_norms_expect(lathe_step_norms *n);
/** The gradients change: sums that were queued before are not theirs. */
void lathe_step_norms_forget(lathe_step_norms *n);

/** Sums of squares by row [store->n_rows] of LATHE_SQUARES_GRADIENTS (those in bf16 too), MASTERS or MATRICES; 0 for
 *  rows outside the family. Waits for all that is queued, unless the sums were expected. */
lathe_status lathe_step_norms_rows(lathe_step_norms *n, int32_t family, double *rows);

#endif
