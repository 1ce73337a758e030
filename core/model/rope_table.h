/* The table of rotary embeddings, as transformers computes it. */
#ifndef LATHE_MODEL_ROPE_TABLE_H
#define LATHE_MODEL_ROPE_TABLE_H

#include "model/hf_config.h"

/** inv_freq f32[head_dim/2]: theta^(-2i/D) in f32, then scaled by the rope type. */
void lathe_rope_inv_freq(const lathe_rope_config *rope, int32_t head_dim, float *inv_freq);

/** table f32[positions, 2, head_dim/2]: cos, then sin, of the f32 product position * inv_freq.
 *  Source: transformers modeling_rope_utils.py, default, linear and llama3. */
void lathe_rope_table(const lathe_rope_config *rope, int32_t head_dim, int64_t positions,
                      float *table);

#endif
