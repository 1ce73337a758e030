/* Converts bf16 gradients (train.grad_dtype) to f32 for optimizers that read f32. The update runs
 * part by part; the gradients of a part are converted into one buffer just before its update. The
 * optimizer does not notice this: the gradient pointers in its table point into the buffer.
 *
 *   bf16     |part 0|part 1|part 2| ...
 *               v              one after the other, on the machine's stream
 *   buffer   |part k|
 *   update   |part k|
 *
 * A part is a sequence of tensors whose gradients fit in the buffer. lathe__cut_step cuts a tensor
 * if its partition (LATHE_PARTITION_*) allows it, so no result depends on the size of the buffer. A
 * tensor that cannot be cut is one part; the buffer is made large enough for it. If the optimizer's
 * state is offloaded (state_offload.h), the parts are those of the offload. MATRIX parameters are
 * not handled here: their graphs convert the gradients.
 */
#ifndef LATHE_OPTIM_WIDEN_H
#define LATHE_OPTIM_WIDEN_H

#include "optim/updater.h"

typedef struct lathe_widen lathe_widen;

/** Makes the parts of a store with bf16 gradients. tensors: those that step() updates. elements:
 * target size of a part. */
lathe_status lathe_widen_create(lathe_machine *m, const lathe_store *store,
                                const lathe_instance *optimizer,
                                const lathe_optimizer_tensor *tensors, int32_t n_tensors,
                                int64_t elements, lathe_widen **out);
/** Like lathe_widen_create, for existing parts, whose pieces are borrowed. */
lathe_status lathe_widen_join(lathe_machine *m, const lathe_store *store,
                              lathe_optimizer_tensor *pieces, const int32_t *ends, int32_t n_parts,
                              lathe_widen **out);
/** NULL is fine. */
void lathe_widen_destroy(lathe_widen *w);

/** The pieces of tensors, by part. Their sizes are set from the beginning, their pointers by
 * place. */
lathe_update_table lathe_widen_table(const lathe_widen *w);

/** Bytes of the buffer in device memory, counted as the optimizer's. */
int64_t lathe_widen_bytes(const lathe_widen *w);
/** Allocates the buffer, and fills the pointers of the pieces from those of the whole tensors; in
 * borrowed pieces, only the pointer of the gradient. */
lathe_status lathe_widen_place(lathe_widen *w, const lathe_optimizer_tensor *tensors,
                               int32_t n_tensors);

/** Queues the conversion of a part's gradients into the buffer. */
lathe_status lathe_widen_run(const lathe_widen *w, int32_t part);

#endif
