/* Merges several LoRA adapters as PEFT's combination type "linear": the sum of the A with the sum
 * of the B. */
#ifndef LATHE_PRIMITIVES_MERGE_LINEAR_H
#define LATHE_PRIMITIVES_MERGE_LINEAR_H

#include "primitives/merge_part.h"

/** Adds (sum of b_k B_k) (sum of a_k A_k) to w [out, in], or [V, C] of an embedding, over the
 * adapters whose bit of `has` is 1; a_k = sign(f_k) sqrt(|f_k|), b_k = sqrt(|f_k|), f_k = weight_k
 * s_k. LATHE_E_CONFIG: one of them is no plain LoRA at this weight, or their ranks differ. Source
 * PEFT 0.21, LoraModel._generalized_task_arithmetic_weighted_adapter. */
lathe_status lathe__merge_linear(const lathe_merge_part *parts, int32_t n_parts, int32_t has,
                                 int32_t index, float *w);

#endif
