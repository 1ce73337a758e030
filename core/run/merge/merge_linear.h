/* Merges several LoRA adapters as PEFT's combination type "linear": the sum of the A with the sum
 * of the B. */
#ifndef LATHE_RUN_MERGE_LINEAR_H
#define LATHE_RUN_MERGE_LINEAR_H

#include "run/merge/merge_part.h"
#include "run/merge/merge_site.h"

/** The matrices of one LoRA adapter at a weight. */
typedef struct lathe__lora_pair {
    const lathe_store *store;
    lathe_site_param list[LATHE_MAX_SITE_PARAMS];
    int32_t n, a, b; /* a, b: indices in the list */
} lathe__lora_pair;

/** Finds A and B by the names of PEFT; free the list with lathe__site_params_free, also after a
 *  failure. LATHE_E_CONFIG, which begins with `why`: the adapter has something else there, as DoRA
 *  and others have. */
lathe_status lathe__lora_pair_read(const lathe_merge_part *part, int32_t index, const char *why,
                                   lathe__lora_pair *out);

/** The factor s of the adapter at this weight: W + s B A. */
lathe_status lathe__lora_pair_factor(const lathe_merge_part *part, const lathe__lora_pair *p,
                                     int32_t index, double *out);

/** Adds (sum of b_k B_k) (sum of a_k A_k) to w [out, in], or [V, C] of an embedding, over the
 * adapters whose bit of `has` is 1; a_k = sign(f_k) sqrt(|f_k|), b_k = sqrt(|f_k|), f_k = weight_k
 * s_k. LATHE_E_CONFIG: one of them is no plain LoRA at this weight, or their ranks differ. Source
 * PEFT 0.21, LoraModel._generalized_task_arithmetic_weighted_adapter. */
lathe_status lathe__merge_linear(const lathe_merge_part *parts, int32_t n_parts, int32_t has,
                                 int32_t index, float *w);

#endif
