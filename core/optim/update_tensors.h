/* Divides the trainable parameters into two lists: those that the plugin's step() updates, and
 * those that a graph updates (LATHE_PARTITION_MATRIX). */
#ifndef LATHE_OPTIM_UPDATE_TENSORS_H
#define LATHE_OPTIM_UPDATE_TENSORS_H

#include "exec/store/store.h"
#include "optim/param_groups.h"

typedef struct lathe_update_tensors {
    lathe_optimizer_tensor *of_step; /* [n_of_step] tensors of step() */
    int32_t n_of_step;
    int32_t *matrices; /* [n_matrices] rows of the parameter table */
    int32_t n_matrices;
} lathe_update_tensors;

/** Makes both lists for a store whose layout is known but not yet allocated: the tensors have no
 * pointers to their memory. If ranks divide the parameters, `of_step` has the ranges that this rank
 * updates, and `matrices` the matrices that it owns. After an error, call fini. */
lathe_status lathe_update_tensors_init(lathe_update_tensors *t, const lathe_store *store,
                                       const lathe_instance *optimizer,
                                       const lathe_param_groups *groups);
void lathe_update_tensors_fini(lathe_update_tensors *t);

/** Sets the pointers once the store's memory is allocated. Gradients in bf16 stay without one:
 * widen.h converts them to f32 part by part. */
void lathe_update_tensors_fill(lathe_update_tensors *t, const lathe_store *store);

#endif
