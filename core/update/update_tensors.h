/* Divides the trainable parameters into two lists: those that the plugin's step() updates, and
 * those that a graph updates (LATHE_PARTITION_MATRIX). */
#ifndef LATHE_UPDATE_UPDATE_TENSORS_H
#define LATHE_UPDATE_UPDATE_TENSORS_H

#include "store/store.h"
#include "update/param_groups.h"

typedef struct lathe_update_tensors {
    lathe_optimizer_tensor *of_step; /* [n_of_step] */
    int32_t n_of_step;
    int32_t *matrices; /* [n_matrices] rows of the parameter table */
    int32_t n_matrices;
} lathe_update_tensors;

/** Fills everything except the pointers, for a store whose layout is known. If ranks divide the
 * parameters, `of_step` has the extents of this rank, and `matrices` those that it owns. After an
 * error, call fini. */
lathe_status lathe_update_tensors_init(lathe_update_tensors *t, const lathe_store *store,
                                       const lathe_instance *optimizer,
                                       const lathe_param_groups *groups);
void lathe_update_tensors_fini(lathe_update_tensors *t);

/** Sets the pointers, into the store after its memory was allocated. Gradients in bf16 get none:
 * widen.h converts them. */
void lathe_update_tensors_fill(lathe_update_tensors *t, const lathe_store *store);

#endif
