/* Computes the table of rotary embeddings as transformers does. */
#ifndef LATHE_MODEL_ROPE_TABLE_H
#define LATHE_MODEL_ROPE_TABLE_H

#include "model/family/rope_config.h"

/** inv_freq f32[dims/2]: theta^(-2i/dims) in f32, then scaled by the rope type. is_long: longrope
 *  uses its long factors; other types ignore it. */
void lathe_rope_inv_freq(const lathe_rope_config *rope, int32_t is_long, float *inv_freq);

/** table f32[positions, 2, dims/2]: cos, then sin, of the f32 product position * inv_freq, times
 *  attention_factor.
 *  Source: transformers modeling_rope_utils.py. */
void lathe_rope_table(const lathe_rope_config *rope, int64_t positions, int32_t is_long,
                      float *table);

#endif
