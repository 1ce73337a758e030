/* Memory of the parameters: master copies, compute copies, gradients, optimizer slots, quantized
 * planes.
 *
 * There is one allocation per family. The layout depends on the parameter table alone, so the plan
 * knows its size before anything is allocated.
 *
 *   masters    | p0 f32 | p1 f32 | ...        trainable, merged into, or read in f32
 *   shadows    | p0 c   | p3 c   | ...        copies in the compute dtype (bf16, f16)
 *   gradients  | p0 f32 | p1 f32 | ... | p3 bf16 | p5 bf16 | ...
 *                                             trainable; the bf16 or f16 ones are in the order of
 *                                             the update: those of step(), then MATRIX
 *   averages   | p0 f32 | p1 f32 | ...        trainable, when their average is kept
 *   slots      | p0.exp_avg | p0.exp_avg_sq | p1.exp_avg | ...
 *   others     | p8 c   | p9 f32 | ...        values or planes of other, frozen models (teacher,
 *                                             draft, reward model)
 *   planes     | p5.weight | p5.absmax | ...
 *
 * If ranks divide the parameters (division.h), trained rows come first in each family, bucket by
 * bucket, and of some families a rank holds its extents only (lathe_store_row.held). Whole values
 * are then in a window while they are computed with (gathered.h).
 */
#ifndef LATHE_EXEC_STORE_H
#define LATHE_EXEC_STORE_H

#include "exec/store/store_rows.h"

/** Lays out every parameter. optimizer NULL: no slots (evaluation, generation). with_grads 0:
 *  none. */
lathe_status lathe_store_init(lathe_store *store, lathe_params *params,
                              const lathe_instance *optimizer, int32_t with_grads);

/** Like lathe_store_init, for one of several ranks that divide the training's state. ask->shard
 *  NONE, or one rank: nothing is divided. */
lathe_status lathe_store_init_divided(lathe_store *store, lathe_params *params,
                                      const lathe_instance *optimizer,
                                      const lathe_division_ask *ask);

/** Divides the trained parameters of a store that is laid out with an optimizer, for any rank of
 *  any number of ranks. The caller destroys *out. */
lathe_status lathe_store_division(const lathe_store *store, const lathe_division_ask *ask,
                                  lathe_division **out);

/** Lays out a second f32 copy of every trainable parameter. Before bytes and place. */
void lathe_store_add_averages(lathe_store *store);

/** Adds what the layout needs to `bytes`. */
void lathe_store_bytes(const lathe_store *store, lathe_mem_bytes *bytes);

lathe_status lathe_store_place(lathe_store *store, lathe_machine *m);
void lathe_store_fini(lathe_store *store, lathe_machine *m);

/** Elements that this rank holds, by LATHE_OF_*: whether these are all of them. */
int lathe_store_is_whole(const lathe_store *store, int32_t param, int32_t what);

/** Bytes of a slot before the first element that this rank holds, and bytes that it holds. */
int64_t lathe_store_slot_skipped(const lathe_store *store, int32_t param, int32_t slot);
int64_t lathe_store_slot_held(const lathe_store *store, int32_t param, int32_t slot);

/** Bytes of an element of the gradients of a bucket. */
int64_t lathe_store_bucket_width(const lathe_store *store, int32_t bucket);
/** This rank's extents of a bucket's gradients, one after the other; NULL: it has none. */
void *lathe_store_bucket_sums(const lathe_store *store, int32_t bucket);

/** Pointers into memory that place allocated, to the first element that this rank holds; NULL if
 *  the row does not have this value, or this rank holds none of it. */
float *lathe_store_master(const lathe_store *store, int32_t param);
void *lathe_store_shadow(const lathe_store *store, int32_t param);
void *lathe_store_grad(const lathe_store *store, int32_t param);
/** Where the backward writes the gradient: fresh gradients if there are any, else the sums. */
void *lathe_store_fresh(const lathe_store *store, int32_t param);
float *lathe_store_average(const lathe_store *store, int32_t param);
void *lathe_store_plane(const lathe_store *store, int32_t param, int32_t plane);
void *lathe_store_slot(const lathe_store *store, int32_t param, int32_t slot);

/** The values that kernels read: the shadow if the row has one, else the master; for a row of
 *  another model its only values. */
void *lathe_store_value(const lathe_store *store, int32_t param);

#endif
