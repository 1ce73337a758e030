/* The optimizer step on a device whose memory the host cannot touch.
 *
 * Parameters of step() are updated by one launch of the optimizer's image, or by what its queue() launches, over
 * a table of tensors that is in device memory from the start: all at once, or each part of offload.h by itself.
 * MATRIX parameters are updated by the executable of update.h. The host waits twice: for the gradients' norms, by
 * which it clips or leaves the step out, unless a wait of its own brings them (expect), and for the figures at the
 * end; and where queue() itself waits.
 *
 *   own      |tensors|first chunks|averages|sums by chunk|sums of APPLY_UPDATEs|squares of gradients|of masters|
 *            |scratch of the clamp|queue()'s own|shared|
 *   staging  |step memory|sums by chunk|sums of APPLY_UPDATEs|squares of gradients|of masters|queue()'s|
 */
#ifndef LATHE_UPDATE_UPDATE_DEVICE_H
#define LATHE_UPDATE_UPDATE_DEVICE_H

#include "update/squares.h"

typedef struct lathe_device_update lathe_device_update;

/** What the image updates: tensors [ends[n_parts - 1]], those of part k before ends[k]. */
typedef struct lathe_update_table {
    const lathe_optimizer_tensor *tensors;
    const int32_t *ends;
    int32_t n_parts;
} lathe_update_table;

/** Prepares it. The table's tensors are borrowed, and filled before place(). n_matrix_sums: of the
 *  UPDATE_SQUARES nodes. */
lathe_status lathe_device_update_create(lathe_machine *m, const lathe_store *store,
                                        const lathe_instance *optimizer,
                                        const lathe_update_table *table, int64_t n_matrix_sums,
                                        lathe_device_update **out);
void lathe_device_update_destroy(lathe_device_update *u);

int64_t lathe_device_update_own_bytes(const lathe_device_update *u);
int64_t lathe_device_update_staging_bytes(const lathe_device_update *u);
/** Takes memory, fills the tables, and loads the optimizer's image. */
lathe_status lathe_device_update_place(lathe_device_update *u);

/** Where UPDATE_SQUARES nodes write to: [n_matrix_sums] f64. */
double *lathe_device_update_matrix_sums(lathe_device_update *u);

/** Queues the squares of the gradients: the host's next wait brings them. */
lathe_status lathe_device_update_expect(lathe_device_update *u);
/** The gradients change: what expect() queued is not theirs. */
void lathe_device_update_forget(lathe_device_update *u);

/** Sum of squares by row of the table [store->n_rows], of LATHE_SQUARES_GRADIENTS, those in bf16 too, or MASTERS. Waits, unless it was expected. */
lathe_status lathe_device_update_squares(lathe_device_update *u, int32_t family, double *rows);

/** What the next step is told, to fill in host memory; and its way to the device. */
lathe_step_memory *lathe_device_update_step(lathe_device_update *u);
lathe_status lathe_device_update_send(lathe_device_update *u);

/** Queues the clipping of every gradient's elements to step memory's limit. */
lathe_status lathe_device_update_clamp(lathe_device_update *u);
/** Queues LATHE_QUEUE_* for a part's tensors. step: its scalars in host memory. */
lathe_status lathe_device_update_queue(lathe_device_update *u, int32_t part, int32_t what,
                                       const lathe_optimizer_step *step);

/** |w_new - w_old|^2 and |w_new|^2 of the step just queued, `matrix` run too. Waits. */
lathe_status lathe_device_update_figures(lathe_device_update *u, double *out_update2,
                                         double *out_param2);

#endif
