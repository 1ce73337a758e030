/* The interface of adapter plugins (fine-tuning methods), which choose the parameters to train and
 * wrap the model's linear layers.
 *
 * An adapter changes the graph while it is built. It has no kernels of its own, so it runs on every
 * device. Its parameters are ordinary parameters of the core.
 */
#ifndef LATHE_ADAPTER_H
#define LATHE_ADAPTER_H

#include "graph.h"
#include "host.h"

#define LATHE_ADAPTER_REVISION 1

/* Kinds of sites. */
enum {
    LATHE_SITE_LINEAR = 0,
    LATHE_SITE_EMBEDDING = 1, /* the token embedding: weight [V,C], in_features V, out_features C */
    LATHE_SITE_HEAD = 2,      /* the head over the vocabulary: weight [V,C], in_features C,
                                 out_features V */
};

/** A site: one linear layer of the model, its token embedding or its head. */
typedef struct lathe_site {
    uint32_t size;
    int32_t layer;      /* -1 outside the layers */
    const char *module; /* "model.layers.0.self_attn.q_proj" */
    int64_t in_features, out_features;
    lathe_val weight, bias;     /* bias: LATHE_NONE if there is none */
    int32_t weight_quantized;   /* 0: no; 1: by [quant]; 2: its planes are in the model's folder */
    int32_t transposed_on_file; /* 1: Conv1D, the file holds [in, out] */
    int32_t kind;               /* LATHE_SITE_* */
    /* E > 0: a linear layer of E experts, whose weight [E*O, I] has their matrices one below the
     * other; in_features and out_features are those of one expert. In wrap, param() declares a
     * matrix for each of them, and linear() multiplies each row with that of its expert; other ops
     * on these matrices are refused. In merge, the site is one expert's. 0: a plain layer */
    int32_t n_experts;
    const char *tied; /* EMBEDDING, HEAD: the module of the other one, if both have one weight
                         (tie_word_embeddings); else NULL */
} lathe_site;
LATHE_ABI_SIZE(lathe_site, 64);

/** The adapter's parameters of one site, for merging: host memory, f32. */
typedef struct lathe_site_param {
    const char *name; /* as declared */
    const float *data;
    lathe_desc desc;
} lathe_site_param;
LATHE_ABI_SIZE(lathe_site_param, 56);

typedef struct lathe_adapter_v1 {
    uint32_t size;
    uint32_t revision;

    /* ---- what is trained ---- */
    /** [pure] Decides whether a parameter of the model is trained, and its optimizer group
     *  (default 0). Beside a frozen base (base_is_frozen), the adapter's file holds those that are
     *  trained, so file_key must name them. */
    lathe_status (*select)(void *self, const lathe_param_info *param, int32_t *out_trainable,
                           int32_t *out_group);
    /** [pure] Factor of the optimizer's learning rate for a trained parameter, > 0 and finite. An
     *  `lr` in optimizer.groups replaces the product. NULL: 1 for all. */
    double (*rate)(void *self, const char *param_name);
    /** [open] Checks that every pattern of the configuration matches a name. modules: all linear
     *  sites ("model.layers.0.self_attn.q_proj"); params: all parameters ("model.norm.weight").
     *  With embed and head, modules[n_modules] and what follows up to NULL are the modules of the
     *  embedding and of the head.
     *  LATHE_E_NOT_FOUND: a pattern matches nothing; recorded with host->fail_at, whose key is that
     *  of the pattern ("target_pattern", or "target_modules.2" for an element of a list). The core
     *  adds the place and the names that the model has. LATHE_E_CONFIG: another error of a key.
     *  NULL: there are no patterns. */
    lathe_status (*check)(void *self, const char *const *modules, int32_t n_modules,
                          const char *const *params, int32_t n_params);

    /* ---- the base ---- */
    /** [pure] 1: the base is frozen, except what select() chooses: it serves as the reference
     *  model, with copies of the chosen parameters, and is not written to checkpoints. 0: the model
     *  trains; checkpoints hold all of it, and a reference needs its own copy. NULL: 0. */
    int32_t (*base_is_frozen)(void *self);
    /** [pure] 1: training begins with another model than the base, namely the base with the
     *  adapter's first values (INIT_LOFTQ_*): a reference model keeps copies of these. NULL: 0. */
    int32_t (*starts_elsewhere)(void *self);
    /** [pure] 1: it trains only beside a base of which at least one weight is quantized; the core
     *  refuses to train over another. NULL: 0. */
    int32_t (*needs_quantized_base)(void *self);

    /* ---- linear layers ---- */
    /** [pure] Nonzero if wrap (embed, head) is to be called for this site. NULL: for none. Asked
     *  about the embedding and the head only if there are embed and head. */
    int32_t (*targets)(void *self, const lathe_site *site);
    /** [build] Builds the site's output y for input x. enabled = 0: the model without the
     *  adapter (a reference model that shares the frozen weights). Called once per site and
     *  forward graph; it declares the same parameter names each time and gets the same
     *  parameters. NULL: the plain linear layer. */
    lathe_status (*wrap)(void *self, const lathe_graph_api *api, lathe_graph *g,
                         const lathe_site *site, lathe_val x, int32_t enabled, lathe_val *out_y);

    /* ---- embedding and head ---- */
    /** [pure] 1: it trains the embedding, the head or both of a model that has one matrix for them
     *  (tie_word_embeddings) as matrices of their own, so the model is built with two. The names
     *  are those of the weights. NULL: 0. */
    int32_t (*unties)(void *self, const char *embedding, const char *head);
    /** [build] Builds y c[N,C], the embeddings of the tokens i32[N]: rows of the site's weight and
     *  what the adapter adds to them. enabled and the calls as in wrap. NULL: embeddings stay. */
    lathe_status (*embed)(void *self, const lathe_graph_api *api, lathe_graph *g,
                          const lathe_site *site, lathe_val tokens, int32_t enabled,
                          lathe_val *out_y);
    /** [build] Builds what the adapter adds to the head: u c[N,R] and v c[V,R], with which the
     *  logits of x c[N,C] are x W^T + u v^T. Not called where the adapter is not enabled. NULL:
     *  the head stays, unless there is head_scaled. */
    lathe_status (*head)(void *self, const lathe_graph_api *api, lathe_graph *g,
                         const lathe_site *site, lathe_val x, lathe_val *out_u, lathe_val *out_v);
    /** [build] Instead of head, for an adapter that also scales: the logits are (x W^T + u v^T)
     * times s f32[V], column by column. NULL: head. */
    lathe_status (*head_scaled)(void *self, const lathe_graph_api *api, lathe_graph *g,
                                const lathe_site *site, lathe_val x, lathe_val *out_u,
                                lathe_val *out_v, lathe_val *out_s);

    /* ---- merging ---- */
    /** [between] Merges the adapter: adds its contribution at this site to w [out,in] f32, host
     *  memory. NULL: nothing to merge. */
    lathe_status (*merge)(void *self, const lathe_site *site, const lathe_site_param *params,
                          int32_t n_params, float *w);
    /** [pure] 1: it adds a vector to the output of each linear layer that it wraps, which is merged
     *  into the layer's bias by merge_bias. NULL: 0. */
    int32_t (*adds_bias)(void *self);
    /** [between] Adds that vector of the site to its bias b [out] f32, host memory. Called if
     *  adds_bias gives 1, beside merge; the core refuses to merge where the layer has no bias. */
    lathe_status (*merge_bias)(void *self, const lathe_site *site, const lathe_site_param *params,
                               int32_t n_params, float *b);

    /* ---- files of the adapter ---- */
    /** [pure] Writes the key of a parameter in the adapter's own file (PEFT), also of one of the
     *  model that is trained beside a frozen base; returns the bytes needed. Called after wrap.
     *  NULL: none. */
    int64_t (*file_key)(void *self, const char *param_name, char *out, int64_t capacity);
    /** [pure] Writes the JSON text of adapter_config.json; base: the model's name or path. NULL:
     *  none. */
    int64_t (*config_json)(void *self, const char *base, char *out, int64_t capacity);
} lathe_adapter_v1;
LATHE_ABI_SIZE(lathe_adapter_v1, 144);

#endif
