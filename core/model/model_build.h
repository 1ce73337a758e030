/* Building a model's forward into a graph, with places for adapters and KV caches. */
#ifndef LATHE_MODEL_MODEL_BUILD_H
#define LATHE_MODEL_MODEL_BUILD_H

#include "ir/graph.h"
#include "lathe/adapter.h"
#include "model/hf_config.h"

typedef struct lathe_model_build {
    const lathe_model_config *config;
    lathe_graph *graph;
    int64_t batch;         /* B; tokens has B*Tq elements */
    int64_t max_positions; /* positions are below this: rows of the RoPE table */
    lathe_val tokens;      /* i32[N] */
    lathe_val positions;   /* i32[N]: position within the document */
    lathe_val
        doc_start; /* i32[N]: index in the row at which the token's document begins, or NONE */

    /* Generation: caches c[B,P,Hkv*D] per layer, of which kv_len i32[B] rows are valid once the tokens
     * of this run are in. kv_len NONE: no cache. */
    lathe_val kv_len;
    const lathe_val *cache_k, *cache_v; /* [n_layers] */

    /** Value of a parameter of the model. NULL: the row of that name in the graph's table. */
    lathe_status (*param)(void *arg, const char *name, lathe_val *out);
    /** y of a linear site: where adapters wrap. NULL: lathe_graph_api.linear. */
    lathe_status (*linear)(void *arg, const lathe_site *site, lathe_val x, lathe_val *out_y);
    void *arg;
} lathe_model_build;

/** Final normed hidden states c[N,C]: the input of the head. */
lathe_status lathe_model_hidden(const lathe_model_build *build, lathe_val *out);

/** Weight c[V,C] of the head: lm_head, or the token embedding when tied. */
lathe_status lathe_model_head(const lathe_model_build *build, lathe_val *out);

/** Name of the head's parameter. */
const char *lathe_model_head_name(const lathe_model_config *config);

/** Adds every parameter of the model to a table: trainable 0, quantized 0, group 0. */
lathe_status lathe_model_params(const lathe_model_config *config, lathe_params *params);

/* ---- what the families share: one node each, labelled "layers.3.mlp.gate_proj" ---- */

/** Value of the parameter named by the format; LATHE_NONE with LATHE_OK never happens. */
lathe_status lathe__build_param(const lathe_model_build *b, lathe_val *out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** The linear site of `module` ("model.layers.0.mlp.up_proj"): its weight, its bias if has_bias. */
lathe_status lathe__build_linear(const lathe_model_build *b, int32_t layer, const char *module,
                                 int32_t has_bias, lathe_val x, lathe_val *out);

/** y = op(in...), first output only. */
lathe_status lathe__build_node(const lathe_model_build *b, int32_t op, const lathe_op_attrs *attrs,
                               const lathe_val *in, int32_t n_in, const char *label,
                               lathe_val *out);

/** RMSNORM or LAYERNORM with the weight (and bias, for LAYERNORM) of `module`. */
lathe_status lathe__build_norm(const lathe_model_build *b, int32_t op, const char *module,
                               lathe_val x, lathe_val *out);

/** Causal attention of q, k, v (k and v through the layer's cache when there is one). fused: q is all
 *  three, side by side. */
lathe_status lathe__build_attention(const lathe_model_build *b, int32_t layer, int32_t fused,
                                    lathe_val q, lathe_val k, lathe_val v, lathe_val *out);

/** "model.layers.3.mlp" for ("model.layers.", 3, ".mlp"), in the graph's arena; NULL: out of memory. */
const char *lathe__build_name(const lathe_model_build *b, const char *before, int32_t layer,
                              const char *after);

#endif
