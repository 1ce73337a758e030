/* How large a model is, and what a token costs. */
#ifndef LATHE_MODEL_MODEL_SIZE_H
#define LATHE_MODEL_MODEL_SIZE_H

#include "ir/params.h"
#include "model/hf_config.h"

/** Elements of every parameter of the model (adapters and the reference copy left out). */
int64_t lathe_model_n_params(const lathe_params *params);

/** Parameters that multiply every token: all but tables that are only looked up (position
 *  embeddings, and the token embedding unless it is also the head). nanoGPT's "non-embedding" count
 *  when tied. */
int64_t lathe_model_n_active(const lathe_model_config *config, const lathe_params *params);

/** Elements of a key or value row of the widest layer: Hkv*D. */
int64_t lathe_model_kv_width(const lathe_model_config *config);

/** Model FLOPs of training one token in a row of T: 6 N + 12 L H D K, with N = lathe_model_n_active
 *  and K the mean number of keys that a query sees: (T+1)/2 under the causal mask, fewer in a
 *  sliding window. Forward and backward, 2 per multiply-add, nothing for recomputation.
 *  Source: PaLM (arXiv:2204.02311) appendix B, which counts K = T, as nanoGPT does; that gives more
 *  than is computed, and shares of the peak above 100 % for long rows. */
double lathe_model_flops_per_token(const lathe_model_config *config, const lathe_params *params,
                                   int64_t row_tokens);

#endif
