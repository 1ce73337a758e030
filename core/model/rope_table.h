/* The table of rotary embeddings, as transformers computes it. */
#ifndef LATHE_MODEL_ROPE_TABLE_H
#define LATHE_MODEL_ROPE_TABLE_H

#include "model/rope_config.h"

/** inv_freq f32[dims/2]: theta^(-2i/dims) in f32, then scaled by the rope type. positions: length
 *  of the rows, by which longrope chooses its factors. */
void lathe_rope_inv_freq(const lathe_rope_config *rope, int64_t positions, float *inv_freq);

/** table f32[positions, 2, dims/2]: cos, then sin, of the f32 product position * inv_freq, times
 *  attention_factor.
 *  Source: transformers modeling_rope_utils.py. */
void lathe_rope_table(const lathe_rope_config *rope, int64_t positions, float *table);

#endif
