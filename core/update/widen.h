/* Gradients in bf16 (train.grad_dtype) for updates that read f32: the update goes part by part, and a part's
 * gradients are widened into one buffer right before it. No optimizer knows of it: the pointers of its table lie
 * in the buffer.
 *
 *   bf16     |part 0|part 1|part 2| ...
 *               v              in turn, on the machine's stream
 *   buffer   |part k|
 *   update   |part k|
 *
 * A part is a run of tensors whose gradients fit the buffer. A tensor whose update splits (LATHE_PARTITION_*) is cut
 * by lathe__cut_step: no bit depends on the size of the buffer. What cannot be cut is a part however large, and
 * the buffer grows with it. Where the optimizer's state comes and goes (offload.h), the parts are its.
 * MATRIX parameters are not here: their graphs cast.
 */
#ifndef LATHE_UPDATE_WIDEN_H
#define LATHE_UPDATE_WIDEN_H

#include "update/updater.h"

typedef struct lathe_widen lathe_widen;

/** Of a laid-out store with gradients in bf16; tensors: those of step(). Parts aim at so many elements. */
lathe_status lathe_widen_create(lathe_machine *m, const lathe_store *store,
                                const lathe_instance *optimizer,
                                const lathe_optimizer_tensor *tensors, int32_t n_tensors,
                                int64_t elements, lathe_widen **out);
/** The same for parts that others made, whose pieces are borrowed. */
lathe_status lathe_widen_join(lathe_machine *m, const lathe_store *store,
                              lathe_optimizer_tensor *pieces, const int32_t *ends, int32_t n_parts,
                              lathe_widen **out);
/** NULL is fine. */
void lathe_widen_destroy(lathe_widen *w);

/** Pieces of tensors, by part. Sizes are there from the start. */
lathe_update_table lathe_widen_table(const lathe_widen *w);

/** Device memory of the buffer, counted as the optimizer's. */
int64_t lathe_widen_bytes(const lathe_widen *w);
/** Takes it, and fills the pieces' pointers from whole tensors with theirs; of borrowed pieces, that of the
 *  gradient alone. */
lathe_status lathe_widen_place(lathe_widen *w, const lathe_optimizer_tensor *tensors,
                               int32_t n_tensors);

/** Queues the way of a part's gradients into the buffer. */
lathe_status lathe_widen_run(const lathe_widen *w, int32_t part);

#endif
