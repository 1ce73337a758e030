/* The interface of model family plugins: which architectures a plugin supports, which keys of
 * config.json it reads, which tensors a model has, and how its graph computes the hidden states.
 *
 * The plugin's schema lists the keys of config.json, with the ranges and defaults of transformers.
 * The same keys describe a new model in [model]. The core reads the file, checks it against the
 * schema, loads the tensors by name and adds the head and the loss. From the ops of the graph the
 * plugin builds the layers from the token ids to the input of the head; lathe/kit/model_kit.h has
 * the parts that decoders share.
 *
 * create() gets the values of one model in schema order. A key that is missing in the file or null
 * has its default, or is unset if it has no default. create() fills in values that follow from
 * other keys (describe() returns them) and checks that the keys agree with each other. An error
 * begins with the key: "num_key_value_heads is 3; it must divide num_attention_heads".
 *
 * Threads: the rank's thread, before the run. No function is called inside a step.
 */
#ifndef LATHE_MODEL_H
#define LATHE_MODEL_H

#include "graph.h"
#include "host.h"
#include "schema.h"

#define LATHE_MODEL_REVISION 1

/** An architecture that the plugin supports. Plain data. */
typedef struct lathe_model_type {
    const char *model_type;   /* "llama": a choice of the schema's key model_type */
    const char *architecture; /* "LlamaForCausalLM": the class in transformers */
} lathe_model_type;
LATHE_ABI_SIZE(lathe_model_type, 16);

/** Another name of a key, as in the attribute_map of transformers. If a file has both, the alias
 *  is used. Plain data. */
typedef struct lathe_key_alias {
    const char *key, *alias; /* "n_embd", "hidden_size" */
} lathe_key_alias;
LATHE_ABI_SIZE(lathe_key_alias, 16);

/* Flags of a table of rotary frequencies. */
enum {
    LATHE_ROPE_UNSCALED = 1, /* rope_scaling does not apply; a nested rope_parameters still does */
    LATHE_ROPE_LONG_ONLY =
        2, /* rope_type is default or longrope; su and yarn are older names of longrope */
};

/** One table of rotary frequencies. The core reads the old keys rope_theta and rope_scaling and the
 *  newer rope_parameters; rope_type is default, linear, dynamic, llama3, yarn or longrope. Plain
 *  data. */
typedef struct lathe_rope_use {
    const char *layer_type; /* key within rope_parameters ("full_attention"); NULL: not nested */
    const char *theta_key;  /* key of the base next to the settings; NULL: "rope_theta" */
    const char *share_key;  /* key, next to the settings, of the share of a head that is rotated
                               ("rotary_pct"); within them it is partial_rotary_factor. NULL: whole
                               heads are rotated */
    double theta;           /* base if no key gives one */
    double share;           /* of a head, if no key gives it: its first channels are rotated */
    int32_t dims;           /* channels of a head, at most 1024; even if whole heads are rotated */
    int32_t flags;          /* LATHE_ROPE_* */
} lathe_rope_use;
LATHE_ABI_SIZE(lathe_rope_use, 48);

/** Shape of a layer's attention, from which the core computes cache size and FLOPs. Plain data. */
typedef struct lathe_model_layer {
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t window; /* keys that a query sees, itself included; 0: all */
} lathe_model_layer;
LATHE_ABI_SIZE(lathe_model_layer, 16);

/** The description of a model. The core zeroes it and sets size; the instance owns the pointers. */
typedef struct lathe_model_info {
    uint32_t size;
    int32_t n_layers;
    int64_t vocab, width, ffn;       /* V, C, F; ffn is for display */
    int64_t max_positions;           /* longest context that the model was made for */
    const lathe_model_layer *layers; /* [n_layers] */
    const lathe_rope_use *ropes;     /* [n_ropes] */
    const lathe_value *values;       /* [n_fields], with the values that create() filled in */
    const char *prefix;              /* of all names but the head's ("model."); files may omit it */
    const char *embedding;           /* name of the token embedding */
    const char *head;                /* name of the head, if it is not tied */
    const char *dropout_key;         /* key of the largest dropout; NULL: none above 0 */
    double dropout;                  /* its value; training applies none */
    double head_softcap;             /* logits are c*tanh(x/c); 0: none */
    int32_t n_ropes;
    int32_t tied;             /* 1: the head is the token embedding */
    int32_t warns_of_dropout; /* 1: training without the model's dropout is a warning, as few
                                 fine-tune with it; 0: an error */
    int32_t reserved;         /* 0 */
} lathe_model_info;
LATHE_ABI_SIZE(lathe_model_info, 128);

enum {
    LATHE_LAYOUT_PLAIN = 0,
    LATHE_LAYOUT_TRANSPOSED = 1, /* Conv1D: files hold [in, out] */
};

/** One tensor of a model: the parameter and its layout in files. Plain data. */
typedef struct lathe_model_tensor {
    const char *name; /* in files and in named_parameters(); copied */
    int64_t rows;     /* O of a matrix [O, I], V of an embedding, n of a vector */
    int64_t cols;     /* 0: a vector */
    double init_scale;
    int32_t role;      /* LATHE_ROLE_* */
    int32_t layer;     /* -1 outside the layers */
    int32_t init;      /* LATHE_INIT_* */
    int32_t layout;    /* LATHE_LAYOUT_* of the file */
    int32_t head_rows; /* rows of one head in a query or key projection, else 0 */
    int32_t reserved;  /* 0 */
} lathe_model_tensor;
LATHE_ABI_SIZE(lathe_model_tensor, 56);

/* Parts of a layer, for train.recompute. */
enum { LATHE_PART_NONE = 0, LATHE_PART_ATTENTION = 1, LATHE_PART_MLP = 2 };

/** Inputs and functions for build(). Names and labels are copied. */
typedef struct lathe_model_builder {
    uint32_t size;
    int32_t cached; /* 1: generation; cache() gives keys and values of earlier tokens */
    const lathe_graph_api *api;
    lathe_graph *graph;
    int64_t batch;         /* B; there are N = B*Tq tokens */
    int64_t max_positions; /* positions are below this */
    lathe_val tokens;      /* i32[N] */
    lathe_val positions;   /* i32[N]: position within the document, the row of the rotary tables;
                              max_positions is added to all of them if longrope uses its long
                              factors */
    lathe_val doc_start;   /* i32[N] or LATHE_NONE: input 3 of ATTENTION */
    lathe_val kv_len;      /* i32[B] or LATHE_NONE: input 4 of ATTENTION */
    /* i32[N]: input 5 of ATTENTION, whose attrs.causal is then 0, for objectives that are not
     * causal; LATHE_NONE: causal. Every ATTENTION node must follow it. */
    lathe_val key_end;
    int32_t reserved; /* 0 */
    void *ctx;        /* first argument of the functions below */
    /** [build] Value of a tensor that tensors() declared: a matrix c[rows, cols] or a vector
     *  f32[rows]. */
    lathe_status (*tensor)(void *ctx, const char *name, lathe_val *out);
    /** [build] Output y c[N,O] of a linear layer, such as "model.layers.0.mlp.up_proj". Its tensors
     *  are module.weight and, with has_bias, module.bias. Adapters may wrap it. */
    lathe_status (*linear)(void *ctx, int32_t layer, const char *module, int32_t has_bias,
                           lathe_val x, lathe_val *out);
    /** [build] If `cached` is 1: appends the new rows k and v c[N, Hkv*D] to the layer's cache and
     *  returns the whole cache in *k and *v. Otherwise: changes nothing. Call it once per layer. */
    lathe_status (*cache)(void *ctx, int32_t layer, lathe_val *k, lathe_val *v);
    /** [build] Table f32[P,2,R/2] of describe()'s ropes[index], where R channels of each head are
     *  rotated: input 2 of ROPE. P is max_positions, or twice that for a model with longrope. */
    lathe_status (*rope)(void *ctx, int32_t index, lathe_val *out);
    /** [build] Adds a constant; its data are copied. */
    lathe_status (*constant)(void *ctx, const char *name, const lathe_desc *desc, const void *data,
                             lathe_val *out);
    /** [build] Sets the layer (-1: outside) and the LATHE_PART_* of the nodes added next. */
    lathe_status (*part)(void *ctx, int32_t layer, int32_t part);
    /** [build] Adds a metric f32[], summed over the batch; the value shown is its sum over a step
     *  divided by the loss's count. With weight != 0 it is an auxiliary loss: training adds
     *  weight * sum to the loss. build() does not know which of the N tokens are padding, so sums
     *  over tokens include the padding tokens of short rows. At most 8 metrics, with unique
     *  names. */
    lathe_status (*report)(void *ctx, const char *name, lathe_val sum, double weight);
    /** [build] Given the embeddings x c[N,C] of the tokens, scaled but before positions are added,
     *  returns in *x what the model continues with: in training the stage may add noise to them.
     *  Call it once. */
    lathe_status (*embedded)(void *ctx, lathe_val *x);
    /** [build] Embeddings x c[N,C] of the tokens, before they are scaled: rows of describe()'s
     *  embedding. Adapters may add to them. Call it once. */
    lathe_status (*embedding)(void *ctx, lathe_val *out);
} lathe_model_builder;
LATHE_ABI_SIZE(lathe_model_builder, 144);

typedef struct lathe_model_v1 {
    uint32_t size;
    uint32_t revision;
    const lathe_model_type *types; /* at least one */
    int32_t n_types;
    int32_t n_aliases;
    const lathe_key_alias *aliases; /* NULL: none */
    /** [open] Describes the instance's model. */
    lathe_status (*describe)(void *self, lathe_model_info *out);
    /** [open] Calls add for every tensor, in the order of transformers' named_parameters(). */
    lathe_status (*tensors)(void *self,
                            lathe_status (*add)(void *ctx, const lathe_model_tensor *tensor),
                            void *ctx);
    /** [build] Emits the hidden states c[N,C] after the last norm: the input of the head. */
    lathe_status (*build)(void *self, const lathe_model_builder *b, lathe_val *out);
} lathe_model_v1;
LATHE_ABI_SIZE(lathe_model_v1, 56);

#endif
