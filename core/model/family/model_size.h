/* Computes the size of a model and the FLOPs of a token. */
#ifndef LATHE_MODEL_MODEL_SIZE_H
#define LATHE_MODEL_MODEL_SIZE_H

#include "graph/ir/params.h"
#include "model/family/hf_config.h"

/** Elements of all parameters of the model, without adapters and the reference copy. */
int64_t lathe_model_n_params(const lathe_params *params);

/** Parameters that are multiplied for every token: all except tables that are only looked up
 *  (position embeddings, and the token embedding unless it is also the head). If the head is tied,
 *  this is nanoGPT's "non-embedding" count. */
int64_t lathe_model_n_active(const lathe_model_config *config, const lathe_params *params);

/** Elements of a row of a layer's keys, Hkv*D, and of its values, Hkv*Dv. */
int64_t lathe_model_key_width(const lathe_model_layer *layer);
int64_t lathe_model_value_width(const lathe_model_layer *layer);

/** Elements of the widest layer's row. */
int64_t lathe_model_most_keys(const lathe_model_config *config);
int64_t lathe_model_most_values(const lathe_model_config *config);

/** FLOPs of training one token in a row of T: 6 N + 6 L H (D + Dv) K, with N = lathe_model_n_active
 * and K the mean number of keys that a query sees: (T+1)/2 under the causal mask, fewer in a
 * sliding window. Forward and backward, 2 per multiply-add, without recomputation.
 *
 *  Source: PaLM (arXiv:2204.02311) appendix B, which counts K = T, as nanoGPT does. That counts
 *  more than is computed, and for long rows gives more than 100 % of the peak. */
double lathe_model_flops_per_token(const lathe_model_config *config, const lathe_params *params,
                                   int64_t row_tokens);

#endif
