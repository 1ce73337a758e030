/* Clipping of every element of the gradients, by the device's CLAMP: one kernel for all gradients
 * in f32, one for those in bf16. The limit is that of step memory (store.h).
 */
#ifndef LATHE_UPDATE_VALUE_CLIP_H
#define LATHE_UPDATE_VALUE_CLIP_H

#include "exec/store.h"

typedef struct lathe_value_clip {
    lathe_machine *m;
    const lathe_store *store;
    lathe_kernel *kernels[2]; /* of the gradients in f32, in bf16; NULL: no such gradients */
    int64_t scratch_bytes;
    void *scratch; /* device, [scratch_bytes] rounded up; NULL: none */
} lathe_value_clip;

/** Of a laid-out store. On failure fini is due. LATHE_E_UNSUPPORTED: the device has no CLAMP. */
lathe_status lathe_value_clip_init(lathe_value_clip *c, lathe_machine *m, const lathe_store *store);
void lathe_value_clip_fini(lathe_value_clip *c);

/** Device memory that it wants at c->scratch. */
int64_t lathe_value_clip_bytes(const lathe_value_clip *c);

/** Queues the clipping. */
lathe_status lathe_value_clip_queue(const lathe_value_clip *c);

#endif
