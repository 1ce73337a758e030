/* Samples a token from logits: greedy, temperature, top-k, top-p, min-p. */
#ifndef LATHE_MODEL_SAMPLE_H
#define LATHE_MODEL_SAMPLE_H

#include "lathe/lathe.h"

typedef struct lathe_sampler lathe_sampler;

lathe_status lathe_sampler_create(int64_t vocab_size, lathe_sampler **out);
void lathe_sampler_destroy(lathe_sampler *s);

/** Picks a token from logits f32[V].
 *
 *  ids [n_ids] are the tokens of the prompt and the continuation so far; position n_ids is drawn.
 *  repetition_penalty (not 0 or 1): for the tokens in ids, positive logits are divided by it and
 *  negative ones multiplied. Then temperature 0 gives the largest logit (the smallest index among
 *  equals). Otherwise the probabilities are softmax(logits / temperature), cut to the top_k most
 *  likely (0: all), then to the smallest set of most likely tokens whose mass reaches top_p, then
 *  to those with at least min_p times the highest probability. One is drawn with the uniform number
 *  of (seed, position).
 *
 *  out_logprob: log softmax(logits)[token], at temperature 1, without penalty and uncut. Returns -1
 *  if a logit is NaN or infinite. Allocates nothing.
 *
 *   Source  transformers' logits processors, in the order of its generate.
 */
int32_t lathe_sampler_pick(lathe_sampler *s, const float *logits, const lathe_sampling *how,
                           const int32_t *ids, int64_t n_ids, float *out_logprob);

#endif
