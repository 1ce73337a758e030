/* Clipping of gradients: by their norm, which is one factor, and by value, each element with the
 * device's CLAMP: one kernel for all f32 gradients, one for those in bf16. The limit is in step
 * memory (store.h). */
#ifndef LATHE_OPTIM_CLIP_H
#define LATHE_OPTIM_CLIP_H

#include "exec/store/store.h"

/** The factor by which gradients of this norm are multiplied, so that it is at most max_norm; 1: it
 *  is, or max_norm is 0. Source: torch.nn.utils.clip_grad_norm_. */
double lathe_norm_clip(double norm, double max_norm);

typedef struct lathe_value_clip {
    lathe_machine *m;
    const lathe_store *store;
    lathe_kernel *kernels[2]; /* for f32 gradients, for bf16 gradients; NULL: there are none */
    int64_t scratch_bytes;
    void *scratch; /* device, [scratch_bytes] rounded up; NULL: none */
} lathe_value_clip;

/** Prepares the kernels for a store whose layout is known. After an error, call fini.
 * LATHE_E_UNSUPPORTED: the device has no CLAMP. */
lathe_status lathe_value_clip_init(lathe_value_clip *c, lathe_machine *m, const lathe_store *store);
void lathe_value_clip_fini(lathe_value_clip *c);

/** Bytes of device memory that c->scratch must have. */
int64_t lathe_value_clip_bytes(const lathe_value_clip *c);

/** Queues the clipping. */
lathe_status lathe_value_clip_queue(const lathe_value_clip *c);

#endif
