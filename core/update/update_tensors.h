/* The trainable parameters by how they are updated: those of step() as the plugin gets them, and
 * those whose update is a graph (LATHE_PARTITION_MATRIX). */
#ifndef LATHE_UPDATE_UPDATE_TENSORS_H
#define LATHE_UPDATE_UPDATE_TENSORS_H

#include "exec/store.h"
#include "update/param_groups.h"

typedef struct lathe_update_tensors {
    lathe_optimizer_tensor *of_step; /* [n_of_step] */
    int32_t n_of_step;
    int32_t *matrices; /* [n_matrices] rows of the parameter table */
    int32_t n_matrices;
} lathe_update_tensors;

/** Of a laid-out store, everything but the pointers. On failure fini is due. */
lathe_status lathe_update_tensors_init(lathe_update_tensors *t, const lathe_store *store,
                                       const lathe_instance *optimizer,
                                       const lathe_param_groups *groups);
void lathe_update_tensors_fini(lathe_update_tensors *t);

/** The pointers, into the placed store. Gradients in bf16 have none: widen.h makes them f32. */
void lathe_update_tensors_fill(lathe_update_tensors *t, const lathe_store *store);

#endif
