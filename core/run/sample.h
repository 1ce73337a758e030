/* Sampling a token from logits: greedy, temperature, top-k, top-p. */
#ifndef LATHE_RUN_SAMPLE_H
#define LATHE_RUN_SAMPLE_H

#include "lathe/lathe.h"

typedef struct lathe_sampler lathe_sampler;

lathe_status lathe_sampler_create(int64_t vocab_size, lathe_sampler **out);
void lathe_sampler_destroy(lathe_sampler *s);

/** Picks a token from logits f32[V].
 *
 *  temperature 0 takes the largest logit (the smallest index among equals). Else probabilities are
 *  softmax(logits / temperature), cut to the top_k most likely (0: all), then to the smallest set of
 *  most likely tokens whose mass reaches top_p, and drawn with the uniform number of (seed, position).
 *  out_logprob: log softmax(logits)[token], at temperature 1 and uncut. Allocates nothing.
 */
int32_t lathe_sampler_pick(lathe_sampler *s, const float *logits, const lathe_sampling *how,
                           int64_t position, float *out_logprob);

#endif
