/* Describes a decoder. A model family fills in the description from the keys of config.json;
 * each layer has its own choices. decoder_tensors.h lists the tensors, decoder_graph.h and
 * decoder_layer.h build the graph, decoder_family.h makes the plugin. */
#ifndef LATHE_KIT_DECODER_H
#define LATHE_KIT_DECODER_H

#include <math.h>

#include "model_kit.h"

/** Names of a layer's modules, without "model.layers.3."; NULL: the layer has no such module. */
typedef struct lathe_layer_names {
    const char *q, *k, *v;               /* projections to queries, keys, values; or */
    const char *qkv;                     /* one fused projection: see qkv_by_head */
    const char *o;                       /* back into the residual stream */
    const char *q_norm, *k_norm;         /* norms of queries and of keys */
    const char *gate, *up;               /* projections of the MLP, or */
    const char *gate_up;                 /* one fused projection: rows of gate, then up */
    const char *down;                    /* back into the residual stream */
    const char *attention_norm;          /* before the attention */
    const char *attention_out_norm;      /* after the attention, before the residual sum */
    const char *mlp_norm, *mlp_out_norm; /* the same for the MLP */
} lathe_layer_names;

enum {
    LATHE_NORMS_LAST = 0,
    LATHE_NORMS_BEFORE_MODULES = 1, /* each norm before its attention or MLP */
    LATHE_NORMS_FIRST = 2,
};

/** Choices of one layer. */
typedef struct lathe_decoder_layer {
    const lathe_layer_names *names;
    int32_t rope;            /* index of describe()'s ropes; -1: no rotary positions */
    int32_t norm;            /* LATHE_OP_RMSNORM or LATHE_OP_LAYERNORM */
    int32_t norm_offset_one; /* RMSNORM multiplies by 1+w; w begins at 0 */
    int32_t whole_qk_norm;   /* 1: q_norm and k_norm span all heads; 0: each head */
    int32_t activation;      /* LATHE_ACT_* */
    int32_t qkv_bias, out_bias, mlp_bias;
    int32_t qkv_by_head;   /* rows of qkv: 1: q, k and v of each head in turn; 0: all of q, then k,
                              then v */
    int32_t parallel;      /* 1: x + attention(norm(x)) + mlp(norm(x)) */
    float attention_scale; /* factor on q k^T; 0: 1/sqrt(head_dim) */
    float softcap;         /* cap of the attention scores; 0: none */
} lathe_decoder_layer;

typedef struct lathe_decoder {
    const lathe_host *host; /* must be first, for LATHE_INSTANCE_FREED */
    lathe_model_info info;
    lathe_keys keys;
    lathe_model_layer *shapes;                /* [n_layers]: info.layers */
    lathe_decoder_layer *layers;              /* [n_layers] */
    lathe_rope_use ropes[4];                  /* info.ropes */
    const char *layer_prefix;                 /* "model.layers." */
    const char *positions;                    /* learned position embedding; NULL: none */
    const char *final_norm;                   /* "model.norm" */
    double norm_eps, init_range, embed_scale; /* embed_scale 0: no scaling */
    int32_t transposed;                       /* files hold matrices as [in, out] */
    int32_t residual_init;                    /* o and down: init divided by sqrt(2 n_layers) */
    int32_t norms_order; /* LATHE_NORMS_*: place of a layer's norms in the list of tensors */
    int32_t reserved;
} lathe_decoder;

/** Sets one table of rotary frequencies over whole heads, for all layers. */
static inline void lathe_decoder_rope(lathe_decoder *d, double theta)
{
    d->ropes[0] = (lathe_rope_use){.theta = theta, .dims = d->shapes[0].head_dim};
    d->info.n_ropes = 1;
}

/** Restricts the rotation to the first channels of each head: the config key `key` gives their
 *  share of the head; without the key it is `share`. Call it after lathe_decoder_rope. */
static inline void lathe_decoder_partial_rope(lathe_decoder *d, const char *key, double share)
{
    d->ropes[0].share_key = key;
    d->ropes[0].share = share;
}

/** Reads the dropout `key` and keeps it if it is the largest so far. */
static inline void lathe_decoder_dropout(lathe_decoder *d, const char *key)
{
    const double p = lathe_key_float(&d->keys, key);
    if (p <= d->info.dropout)
        return;
    d->info.dropout = p;
    d->info.dropout_key = key;
}

/** Allocates n layers, all zero except rope = -1. */
static inline lathe_status lathe_decoder_layers(lathe_decoder *d, int64_t n)
{
    d->info.n_layers = (int32_t)n;
    d->shapes = (lathe_model_layer *)d->host->alloc(n * (int64_t)sizeof *d->shapes);
    d->layers = (lathe_decoder_layer *)d->host->alloc(n * (int64_t)sizeof *d->layers);
    if (d->shapes == NULL || d->layers == NULL)
        return lathe_fail(d->host, LATHE_E_NOMEM, "no memory for %lld layers", (long long)n);
    d->info.layers = d->shapes;
    for (int64_t i = 0; i < n; i++)
        d->layers[i].rope = -1;
    return LATHE_OK;
}

/* Initializers of lathe_layer_names: the linear layers, which most families in transformers name
 * alike; and the norms of queries and keys. */
#define LATHE_LINEAR_NAMES                                                                         \
    .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj",                     \
    .o = "self_attn.o_proj", .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"
#define LATHE_QK_NORM_NAMES .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"

static inline const lathe_layer_names *lathe_llama_names(void)
{
    static const lathe_layer_names names = {LATHE_LINEAR_NAMES, .attention_norm = "input_layernorm",
                                            .mlp_norm = "post_attention_layernorm"};
    return &names;
}

/** Fills in the description from LATHE_MODEL_FIELDS and LATHE_DECODER_FIELDS, with the names and
 *  choices of Llama, and makes the layers. head_dim: head size if the key is unset; 0:
 *  hidden_size / num_attention_heads. */
static inline lathe_status lathe_decoder_shape(lathe_decoder *d, int64_t head_dim)
{
    const lathe_keys *k = &d->keys;
    const int64_t width = lathe_key_int(k, "hidden_size");
    const int64_t heads = lathe_key_int(k, "num_attention_heads");
    const int32_t own_size = lathe_key_is_set(k, "head_dim") || head_dim > 0;
    const int64_t kv_heads = lathe_key_fill(k, "num_key_value_heads", heads);
    if (heads < 1 || kv_heads < 1)
        return lathe_key_refuse(k, "num_attention_heads", "expected at least 1");
    const int64_t size = lathe_key_fill(k, "head_dim", head_dim > 0 ? head_dim : width / heads);
    if (heads % kv_heads != 0)
        return lathe_key_refuse(k, "num_key_value_heads", "it must divide num_attention_heads");
    if (!own_size && width % heads != 0)
        return lathe_key_refuse(
            k, "hidden_size",
            "it must be a multiple of num_attention_heads, unless head_dim is set");
    if (size % 2 != 0 && !own_size)
        return lathe_key_refuse(k, "hidden_size",
                                "hidden_size / num_attention_heads must be even, for the rotary "
                                "positions");
    if (size % 2 != 0)
        return lathe_key_refuse(k, "head_dim", "rotary positions need an even head size");
    if (size < 2 || size > 1024)
        return lathe_key_refuse(k, "head_dim", "expected a size from 2 to 1024");
    LATHE_TRY(lathe_decoder_layers(d, lathe_key_int(k, "num_hidden_layers")));
    d->info.vocab = lathe_key_int(k, "vocab_size");
    d->info.width = width;
    d->info.ffn = lathe_key_int(k, "intermediate_size");
    d->info.max_positions = lathe_key_int(k, "max_position_embeddings");
    d->info.tied = (int32_t)lathe_key_int(k, "tie_word_embeddings");
    d->init_range = lathe_key_float(k, "initializer_range");
    d->norm_eps = lathe_key_float(k, "rms_norm_eps");
    lathe_decoder_dropout(d, "attention_dropout");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        d->shapes[i] = (lathe_model_layer){
            .n_heads = (int32_t)heads, .n_kv_heads = (int32_t)kv_heads, .head_dim = (int32_t)size};
        d->layers[i].names = lathe_llama_names();
        d->layers[i].norm = LATHE_OP_RMSNORM;
        d->layers[i].rope = 0;
    }
    return LATHE_OK;
}

#endif
