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

/** Where the files of a wrapper keep its text model. Plain data. */
typedef struct lathe_tower_names {
    const char *prefix; /* "model.language_model.": stands for the prefix of describe() */
    const char *head;   /* "" or "language_model.": before describe()'s name of the head */
} lathe_tower_names;
LATHE_ABI_SIZE(lathe_tower_names, 16);

/* Flags of a wrapper. */
enum {
    LATHE_WRAPPER_TIED = 1,         /* tie_word_embeddings is true where config.json lacks it */
    LATHE_WRAPPER_TIED_BY_TEXT = 2, /* it also counts if the inner configuration alone sets it */
    LATHE_WRAPPER_FLAT = 4,  /* older files have the keys of the text model beside model_type */
    LATHE_WRAPPER_MROPE = 8, /* rope_type mrope is default: text has one position in each section */
};

/** A model of several towers, such as one that reads images, whose text model is one of the
 *  plugin's. The core takes the text model's keys out of its config.json and its tensors out of
 *  its files, and carries all other tensors into the folders that it saves.
 *
 *  The wrapper's own head computes the logits: the core ignores describe()'s head_softcap and
 *  head_scale, as the classes of transformers do. Plain data. */
typedef struct lathe_model_wrapper {
    const char *model_type;   /* "gemma3", in config.json itself */
    const char *architecture; /* "Gemma3ForConditionalGeneration" */
    const char *text_key;     /* "text_config": key of the inner configuration */
    const char *serves;       /* entry of `types` for the text model, whatever model_type the inner
                                 configuration names; NULL: the one that it names */
    const char *assumed;      /* if serves is NULL: model_type where it names none; or NULL */
    const char *defaults;     /* object of JSON with the keys that the inner configuration may leave
                                 out; NULL: lathe_model_v1.defaults of the type */
    /* The first are the names of the modules in transformers, which adapters have; the others are
     * older or shorter names of files. A folder keeps the names that it has. */
    const lathe_tower_names *names; /* [n_names] */
    int32_t n_names;
    int32_t flags; /* LATHE_WRAPPER_* */
} lathe_model_wrapper;
LATHE_ABI_SIZE(lathe_model_wrapper, 64);

/* Flags of a table of rotary frequencies. */
enum {
    LATHE_ROPE_UNSCALED = 1, /* rope_scaling does not apply; a nested rope_parameters still does */
    LATHE_ROPE_LONG_ONLY =
        2, /* rope_type is default or longrope; su and yarn are older names of longrope */
    LATHE_ROPE_ALPHA = 4,       /* rope_type dynamic with an alpha multiplies the base by
                                   alpha^(dims/(dims-2)), for rows of every length (Hunyuan) */
    LATHE_ROPE_FIXED_THETA = 8, /* no key next to the settings has the base */
    LATHE_ROPE_SCORES = 16,     /* mscale_all_dim of every rope_type but default is a factor on the
                                   scores, too: score_factor of the builder (DeepSeek) */
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
    const char *settings;   /* object of JSON that counts where the file has none; or NULL */
} lathe_rope_use;
LATHE_ABI_SIZE(lathe_rope_use, 56);

/** Shape of a layer's attention, from which the core computes cache size and FLOPs. Plain data. */
typedef struct lathe_model_layer {
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t window;    /* keys that a query sees, itself included; 0: all */
    int32_t value_dim; /* size of a head of v and o; 0: head_dim */
} lathe_model_layer;
LATHE_ABI_SIZE(lathe_model_layer, 20);

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
    double head_scale;        /* logits are multiplied by it, before head_softcap; 0: 1 */
    const char *head_bias;    /* name of the head's bias f32[V], which is added to the logits; NULL:
                                 none. Not with head_scale */
} lathe_model_info;
LATHE_ABI_SIZE(lathe_model_info, 144);

enum {
    LATHE_LAYOUT_PLAIN = 0,
    LATHE_LAYOUT_TRANSPOSED = 1, /* Conv1D: files hold [in, out] */
    LATHE_LAYOUT_SCALAR = 2,     /* a vector of one element: files hold it without dimensions */
    LATHE_LAYOUT_ROW = 3,        /* a vector: files hold it as [1, n] */
    /* one tensor for all experts, under the name itself: [E, I, O] of matrices [E*O, I], which are
     * transposed, and [E, n] of vectors [E*n], such as biases */
    LATHE_LAYOUT_FUSED_EXPERTS = 4,
    LATHE_LAYOUT_STACKED = 5, /* of experts: files hold one tensor [E, rows/E, cols] */
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
    /* E > 0: the matrices [rows/E, cols] of E experts, one below the other. Files hold each by
     * itself, under the name with its number after ".experts": "mlp.experts.up_proj.weight" is
     * "mlp.experts.0.up_proj.weight" and so on, unless its layout is STACKED or FUSED_EXPERTS. A
     * vector has the norms [rows/E] of E heads so: "q_layernorm.norms.weight" is
     * "q_layernorm.norms.0.weight" and so on. 0: one tensor */
    int32_t n_experts;
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
    /** [build] Embeddings x c[N,C] of the tokens, before they are scaled: rows of describe()'s
     *  embedding. Adapters may add to them. Call it once. */
    lathe_status (*embedding)(void *ctx, lathe_val *out);
    /** [build] Given the embeddings x c[N,C] of the tokens, scaled but before positions are added,
     *  returns in *x what the model continues with: in training the stage may add noise to them.
     *  Call it once. */
    lathe_status (*embedded)(void *ctx, lathe_val *x);
    /** [build] Sets the layer (-1: outside) and the LATHE_PART_* of the nodes added next. */
    lathe_status (*part)(void *ctx, int32_t layer, int32_t part);
    /** [build] Value of a tensor that tensors() declared: a matrix c[rows, cols] or a vector
     *  f32[rows]. */
    lathe_status (*tensor)(void *ctx, const char *name, lathe_val *out);
    /** [build] Output y c[N,O] of a linear layer, such as "model.layers.0.mlp.up_proj". Its tensors
     *  are module.weight and, with has_bias, module.bias. Adapters may wrap it. */
    lathe_status (*linear)(void *ctx, int32_t layer, const char *module, int32_t has_bias,
                           lathe_val x, lathe_val *out);
    /** [build] Table f32[P,2,R/2] of describe()'s ropes[index], where R channels of each head are
     *  rotated: input 2 of ROPE. P is max_positions, or twice that for a model with longrope. */
    lathe_status (*rope)(void *ctx, int32_t index, lathe_val *out);
    /** [build] If `cached` is 1: appends the new rows k c[N, Hkv*D] and v c[N, Hkv*Dv] to the
     * layer's cache and returns the whole cache in *k and *v. Otherwise: changes nothing. Call it
     * once per layer. */
    lathe_status (*cache)(void *ctx, int32_t layer, lathe_val *k, lathe_val *v);
    /** [build] Adds a constant; its data are copied. */
    lathe_status (*constant)(void *ctx, const char *name, const lathe_desc *desc, const void *data,
                             lathe_val *out);
    /** [build] Adds a metric f32[], summed over the batch; the value shown is its sum over a step
     *  divided by the loss's count. With weight != 0 it is an auxiliary loss: training adds
     *  weight * sum to the loss. The N tokens include the padding of short rows: token_mask says
     *  which they are. At most 8 metrics, with unique names. */
    lathe_status (*report)(void *ctx, const char *name, lathe_val sum, double weight);
    /** [build] Output y c[M,O] of a linear layer with a weight for each of n_experts experts, such
     *  as "model.layers.0.mlp.experts.up_proj": EXPERT_LINEAR of x c[M,I], whose rows are in the
     *  order of EXPERT_PLACES, and its first rows i32[n_experts+1]. Its tensor is module.weight,
     *  and adapters may wrap it; or the module's name alone, of LATHE_LAYOUT_FUSED_EXPERTS, which
     *  is no site of adapters. */
    lathe_status (*experts)(void *ctx, int32_t layer, const char *module, int32_t n_experts,
                            lathe_val first, lathe_val x, lathe_val *out);
    /** [build] As report, with a mean over the tokens of the batch instead of a sum: the value
     * shown is the mean over a step, each batch weighted by its count, and an auxiliary loss adds
     *  weight * mean to the mean loss. */
    lathe_status (*report_mean)(void *ctx, const char *name, lathe_val mean, double weight);
    /** [build] f32[N]: 1 for a token of the batch, 0 for padding. LATHE_NONE where nothing is
     *  reported, or nothing is padded. */
    lathe_status (*token_mask)(void *ctx, lathe_val *out);
    /** [build] Factor on the attention scores that the settings of describe()'s ropes[index] ask
     *  for: (0.1 mscale_all_dim ln(factor) + 1)^2 with LATHE_ROPE_SCORES, else 1. */
    lathe_status (*score_factor)(void *ctx, int32_t index, double *out);
    /** Settings of [moe] for a mixture of experts. Report "router_aux_loss" and "router_z_loss",
     *  whose weights they are: a setting of which no report tells is refused. */
    double balance_loss;      /* factor of the load balancing loss; NaN: as config.json says */
    double router_z_loss;     /* factor of the z-loss; NaN: it is not computed */
    int32_t balance_by_layer; /* 1: the mean of the layers' losses; 0: of all layers together */
    int32_t reserved_2;       /* 0 */
    /** [build] Tells how many tokens of the batch chose each expert: chosen f32[E], without
     * padding. `correction` is the tensor f32[E] of role BUFFER whose values count in that choice:
     * training moves it by these numbers, if [moe] bias_rate is set. Call it once for each such
     * tensor. */
    lathe_status (*expert_load)(void *ctx, const char *correction, lathe_val chosen);
} lathe_model_builder;
LATHE_ABI_SIZE(lathe_model_builder, 208);

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
    /** Models of several towers whose text model the plugin serves; NULL: none. Several plugins
     *  may list one: that which serves the inner configuration is used. */
    const lathe_model_wrapper *wrappers; /* [n_wrappers] */
    /** For each entry of `types` an object of JSON, or NULL: values that the class of transformers
     *  gives to keys that a wrapper's inner configuration leaves out, where they are not the
     *  schema's defaults. NULL: no type has any. */
    const char *const *defaults; /* [n_types] */
    int32_t n_wrappers;
    int32_t reserved; /* 0 */
} lathe_model_v1;
LATHE_ABI_SIZE(lathe_model_v1, 80);

#endif
