/* Interface of the two implementations that update the tensors of step(): host_update.c calls the
 * plugin's step() on memory in which the host's code runs; device_update.c queues the
 * kernels of the plugin's image.
 *
 * Everything else is common (update.c): norms, clipping, 16-bit gradients, MATRIX parameters and
 * copies of offloaded state use ops and copies of the device.
 */
#ifndef LATHE_OPTIM_UPDATER_H
#define LATHE_OPTIM_UPDATER_H

#include "exec/store/store.h"

/** Pieces of tensors, by part: part k has the pieces ends[k-1] to ends[k]-1. */
typedef struct lathe_update_table {
    const lathe_optimizer_tensor *tensors;
    const int32_t *ends; /* [n_parts] */
    int32_t n_parts;
} lathe_update_table;

typedef struct lathe_updater {
    const struct lathe_updater_ops *ops;
} lathe_updater;

typedef struct lathe_updater_ops {
    /* Elements per part when bf16 gradients are converted (widen.h): few to fit in a cache, many to
     * need few launches. */
    int64_t part_elements;
    /* The table's tensors are borrowed; their pointers are set before place(). `ends` is copied. */
    lathe_status (*create)(lathe_machine *m, const lathe_store *store,
                           const lathe_instance *optimizer, const lathe_update_table *table,
                           lathe_updater **out);
    void (*destroy)(lathe_updater *u);
    /* Bytes of LATHE_MEM_OPTIMIZER and LATHE_MEM_STAGING that place() allocates. */
    int64_t (*own_bytes)(const lathe_updater *u);
    int64_t (*staging_bytes)(const lathe_updater *u);
    lathe_status (*place)(lathe_updater *u);
    /* Runs or queues LATHE_QUEUE_* (kit/optimizer_queue.h) for the tensors of a part. `step` has no
     * tensors and no scratch: the updater adds its own. */
    lathe_status (*run)(lathe_updater *u, int32_t part, int32_t what,
                        const lathe_optimizer_step *step);
    /* Queues the copy of a step's figures to the host. */
    lathe_status (*fetch)(lathe_updater *u);
    /* After a wait: adds |w_new - w_old|^2 and |w_new|^2 of the last step. */
    void (*figures)(lathe_updater *u, double *io_update2, double *io_param2);
} lathe_updater_ops;

extern const lathe_updater_ops lathe_host_updater, lathe_device_updater;

#endif
