/* LoRA of the fused parameters of experts, as PEFT writes it (target_parameters).
 *
 * PEFT keeps one A [E*r, I] and one B [O, r*E] for all experts of such a parameter: rows e*r .. of
 * A, and columns k*E + e of B for k < r, are expert e's. "L.experts.gate_up_proj" has the rows of
 * gate, then those of up, so both projections read one A. Of several parameters of a module the
 * last one is the outer wrapper: "L.experts.lora_A" is of down_proj, and
 * "L.experts.base_layer.lora_A" of gate_up_proj. */
#ifndef LATHE_CHECKPOINT_FUSED_LORA_H
#define LATHE_CHECKPOINT_FUSED_LORA_H

#include <jansson.h>

#include "base/arena.h"
#include "files/safetensors/safetensors.h"

/** Whether PEFT's name `key` is that of a matrix of fused experts. */
int32_t lathe_fused_lora_is(const char *key);

/** The projections of the matrix: "gate_proj", "up_proj", or "down_proj". config: of the adapter.
 *  *out_n: 1 or 2. LATHE_E_CONFIG: target_parameters does not say of what it is. */
lathe_status lathe_fused_lora_projections(const json_t *config, const char *key,
                                          const lathe_st_tensor *t, const char *out[2],
                                          int32_t *out_n);

/** Matrix `part` of `n_parts` as those of all experts, one below the other: f32 from malloc, with
 *  *out_desc [E*r, I] or [E*O, r]. */
lathe_status lathe_fused_lora_read(const json_t *config, const char *key, const lathe_st_tensor *t,
                                   int32_t part, int32_t n_parts, lathe_desc *out_desc,
                                   float **out);

#endif
