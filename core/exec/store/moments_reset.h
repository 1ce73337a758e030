/* Resets the optimizer's state of parameters that begin anew (adapter.merge_reset). */
#ifndef LATHE_EXEC_MOMENTS_RESET_H
#define LATHE_EXEC_MOMENTS_RESET_H

#include "exec/store/store.h"

/* Kinds of reset; the order is that of the choices of adapter.merge_reset. */
enum {
    LATHE_RESET_NONE = 0,
    LATHE_RESET_ZERO = 1,   /* as before the first step */
    LATHE_RESET_PRUNE = 2,  /* the smallest elements become 0 */
    LATHE_RESET_RANDOM = 3, /* elements drawn at random become 0 */
};

const char *lathe_reset_name(int32_t reset);

/** Whether the state of a parameter can be reset so. Pruning needs slots of f32 or bf16 with an
 *  element for each element of the parameter. If the parameter is updated as a whole (MATRIX,
 *  TENSOR), setting to 0 needs this too: other slots may hold what is computed only in some steps,
 *  such as projections. LATHE_E_CONFIG
 *  names the slot and what to choose; the text begins at the reason. */
lathe_status lathe_moments_check(const lathe_store *store, int32_t param, int32_t reset);

/** Resets every slot of a trained parameter, each by itself.
 *
 *    prune   the elements with |x| <= s become 0, s = sorted |x| [floor(ratio (n-1))]
 *    random  element i becomes 0 if u_i < ratio; u from the counter RNG, keyed by (seed, step, the
 *            names of parameter and slot, i)
 *
 *  Waits for the device. Allocates only where the host cannot access the slots. Bitwise repeatable.
 *  Source: arXiv:2307.05695; the first rule is torch.quantile with a strict comparison, the
 *  threshold taken from the values themselves. */
lathe_status lathe_moments_reset(const lathe_store *store, int32_t param, int32_t reset,
                                 double ratio, uint64_t seed, int64_t step);

#endif
