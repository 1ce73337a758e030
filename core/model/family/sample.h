/* Samples a token from logits: greedy, temperature, top-k, top-p, min-p. */
#ifndef LATHE_MODEL_SAMPLE_H
#define LATHE_MODEL_SAMPLE_H

#include <stdint.h>

#include "lathe/lathe.h"

typedef struct lathe_sampler lathe_sampler;

/* Streams of the counter RNG: of tokens that are drawn, of tokens that a draft model draws, and of
 * the decision whether such a token stays. */
#define LATHE__STREAM_SAMPLE UINT64_C(0x53414d504c45)
#define LATHE__STREAM_DRAFT UINT64_C(0x4452414654)
#define LATHE__STREAM_ACCEPT UINT64_C(0x414343455054)

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

/** The probabilities that lathe_sampler_pick draws from at a temperature above 0, in out f64[V].
 *  Returns how many tokens the cuts leave; -1 if a logit is NaN or infinite. */
int64_t lathe_sampler_distribution(lathe_sampler *s, const float *logits, const lathe_sampling *how,
                                   const int32_t *ids, int64_t n_ids, double *out);

/* ---- speculative decoding ---- */

/** Like lathe_sampler_pick, for a draft model: with other random numbers than those that decide on
 *  the token. */
int32_t lathe_sampler_pick_draft(lathe_sampler *s, const float *logits, const lathe_sampling *how,
                                 const int32_t *ids, int64_t n_ids);

/** Allocates what lathe_sampler_verify needs, once. */
lathe_status lathe_sampler_room_to_verify(lathe_sampler *s);

/** Decides on a token that lathe_sampler_pick_draft drew from draft_logits: returns it, or another
 *  token instead. At temperature 0 the result is that of lathe_sampler_pick, and draft_logits may
 * be NULL. Otherwise, with p and q the distributions (lathe_sampler_distribution) of logits and
 *  draft_logits, the token stays with probability min(1, p/q), and otherwise one is drawn from
 *  max(0, p - q), so that results have the distribution p. Other arguments and -1 as
 *  lathe_sampler_pick.
 *
 *   Source  arXiv:2211.17192, algorithm 1.
 */
int32_t lathe_sampler_verify(lathe_sampler *s, const float *logits, const float *draft_logits,
                             int32_t drafted, const lathe_sampling *how, const int32_t *ids,
                             int64_t n_ids, float *out_logprob);

#endif
