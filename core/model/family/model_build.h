/* Makes a model's parameters, and its forward as a graph with places for adapters and KV caches,
 * with the plugin of its family. */
#ifndef LATHE_MODEL_MODEL_BUILD_H
#define LATHE_MODEL_MODEL_BUILD_H

#include "graph/ir/ir_graph.h"
#include "lathe/adapter.h"
#include "model/family/hf_config.h"
#include "model/family/moe_settings.h"

enum { LATHE_MAX_REPORTS = 8 };

/** A figure or auxiliary loss that the family reports. */
typedef struct lathe_model_report {
    const char *name; /* in the graph's arena */
    lathe_val sum;    /* f32[] */
    double weight;    /* of the loss; 0: a figure only */
    int32_t is_mean;  /* 1: `sum` is a mean, which counts as often as the batch does */
} lathe_model_report;

typedef struct lathe_model_build {
    const lathe_model_config *config;
    lathe_graph *graph;
    int64_t batch;         /* B; tokens has B*Tq elements */
    int64_t max_positions; /* positions within documents are smaller */
    lathe_val tokens;      /* i32[N] */
    lathe_val positions;   /* i32[N]: position within the document */
    lathe_val
        doc_start;     /* i32[N]: index in the row at which the token's document begins, or NONE */
    lathe_val key_end; /* i32[N]: end of the keys that the token sees, or NONE: causal */

    /* Generation: caches c[B,P,Hkv*D] per layer, of which kv_len i32[B] rows are valid once the
     * tokens of this run are in. kv_len NONE: no cache. */
    lathe_val kv_len;
    const lathe_val *cache_k, *cache_v; /* [n_layers] */

    /** Value of a parameter of the model. NULL: the row of that name in the graph's table. */
    lathe_status (*param)(void *arg, const char *name, lathe_val *out);
    /** Builds y of a linear site; adapters are added here. NULL: lathe_graph_api.linear. */
    lathe_status (*linear)(void *arg, const lathe_site *site, lathe_val x, lathe_val *out_y);
    /** Builds the embeddings of the tokens; adapters are added here. NULL: rows of the weight. */
    lathe_status (*embed)(void *arg, const lathe_site *site, lathe_val tokens, lathe_val *out_y);
    /** Whether an adapter changes the embeddings. NULL: no. */
    int32_t (*embeds)(void *arg, const lathe_site *site);
    /** f32[N]: 1 for tokens, 0 for padding. NULL: nothing is reported. */
    lathe_status (*token_mask)(void *arg, lathe_val *out);
    /** Takes the number of tokens f32[E] that chose each expert, for the parameter that corrects
     * the choice. NULL: nothing is moved by it. */
    lathe_status (*expert_load)(void *arg, const char *correction, lathe_val chosen);
    void *arg;

    const lathe_moe_settings *moe; /* NULL: none is set */
    double embedding_noise;        /* largest noise that is added to token embeddings; 0: none */

    /* Set by lathe_model_hidden. */
    int32_t is_noise_added, is_embedded;
    lathe_val ropes[LATHE_MAX_ROPES];
    lathe_model_report reports[LATHE_MAX_REPORTS];
    int32_t n_reports;
} lathe_model_build;

/** Final normed hidden states c[N,C]: the input of the stage's heads. */
lathe_status lathe_model_hidden(lathe_model_build *build, lathe_val *out);
/** The input c[N,C] of the head over the vocabulary: head_scale times the hidden states. A head
 *  without bias is linear, so the logits are scaled, and those of its adapter too. */
lathe_status lathe_model_head_input(const lathe_model_build *build, lathe_val hidden,
                                    lathe_val *out);

/** The bias of the head as a term u v^T of the logits of the rows x [N,C]: u c[N,1] of ones, v
 *  c[V,1]. LATHE_NONE: the head has none. */
lathe_status lathe_model_head_bias(const lathe_model_build *build, lathe_val x, lathe_val *out_u,
                                   lathe_val *out_v);

/** The number to add to every position of a batch whose longest document has `longest` positions,
 *  in a graph of `max_positions`: 0, or max_positions if longrope then uses its long factors. Such
 * a graph has rotary tables of 2*max_positions rows: the second half is for long batches. Source
 * transformers 5.23, modeling_rope_utils.py: longrope_frequency_update. */
int64_t lathe_model_position_offset(const lathe_model_config *config, int64_t max_positions,
                                    int64_t longest);

/** Weight c[V,C] of the head: its own, or the token embedding when tied. */
lathe_status lathe_model_head(const lathe_model_build *build, lathe_val *out);

/** The token embedding and the head over the vocabulary as sites of an adapter. Their names are in
 *  the graph's arena. */
lathe_status lathe_model_embedding_site(lathe_model_build *build, lathe_site *out);
lathe_status lathe_model_head_site(lathe_model_build *build, lathe_site *out);

/** Name of the head's parameter. */
const char *lathe_model_head_name(const lathe_model_config *config);

/** Adds every parameter of the model to a table: trainable 0, quantized 0, group 0. */
lathe_status lathe_model_params(const lathe_model_config *config, lathe_params *params);

#endif
