/* Describes a decoder. A model family fills in the description from the keys of config.json;
 * each layer has its own choices. decoder_tensors.h lists the tensors, decoder_graph.h and
 * decoder_layer.h build the graph, decoder_family.h makes the plugin. */
#ifndef LATHE_KIT_DECODER_H
#define LATHE_KIT_DECODER_H

#include <math.h>
#include <stdlib.h>

#include "model_kit.h"

/** Names of a layer's modules, without "model.layers.3."; NULL: the layer has no such module. */
typedef struct lathe_layer_names {
    const char *q, *k, *v;               /* projections to queries, keys, values; or */
    const char *qkv;                     /* one fused projection: see qkv_by_head */
    const char *o;                       /* back into the residual stream */
    const char *q_norm, *k_norm;         /* norms of queries and of keys */
    const char *sinks;                   /* attention sinks: "self_attn.sinks" */
    const char *gate, *up;               /* projections of the MLP, or */
    const char *gate_up;                 /* one fused projection: rows of gate, then up */
    const char *down;                    /* back into the residual stream */
    const char *xielu;                   /* has the numbers of LATHE_ACT_XIELU: "mlp.act_fn" */
    const char *attention_norm;          /* before the attention */
    const char *attention_out_norm;      /* after the attention, before the residual sum */
    const char *mlp_norm, *mlp_out_norm; /* the same for the MLP; a parallel MLP without mlp_norm
                                            reads what the attention reads */
} lathe_layer_names;

enum {
    LATHE_NORMS_LAST = 0,
    LATHE_NORMS_BEFORE_MODULES = 1, /* each norm before its attention or MLP */
    LATHE_NORMS_FIRST = 2,
    LATHE_NORMS_LAST_BY_PLACE = 3,  /* last: those before the modules, then those after them */
    LATHE_NORMS_LAST_MLP_FIRST = 4, /* last: those of the MLP, then those of the attention */
};

/** A mixture of experts instead of an MLP. Names as in lathe_layer_names; those of the experts are
 *  without the expert's number: "mlp.experts.gate_proj".
 *
 *  A token's probabilities p are softmax(s) or sigmoid(s) of its scores s. It chooses the K experts
 *  of the largest p, or of the largest p + correction; these have the weights p, without the
 *  correction. */
typedef struct lathe_expert_layer {
    const char *router;           /* linear layer [E, C] that scores the experts */
    const char *gate, *up, *down; /* of the experts */
    /* one projection instead of two: all rows of gate, then all rows of up; with limit above 0, row
     * 2j is gate and row 2j+1 is up */
    const char *gate_up;
    int32_t n_experts, n_chosen; /* E, K */
    int64_t ffn;                 /* width inside an expert */
    int32_t normalize;           /* 1: the K weights of a token are divided by their sum */
    int32_t softmax_chosen;      /* 1: softmax of the K largest scores; 0: K largest of softmax */
    int32_t bias;                /* 1: the router, gate_up and down have biases */
    double alpha, limit;         /* of SWIGLU_CLAMPED, the activation of pairs; limit 0: no pairs */
    double aux_loss;             /* factor of the load balancing loss; 0: it is only shown */
    int32_t sigmoid;             /* 1: sigmoid instead of softmax */
    int32_t no_balance;          /* 1: the family has no load balancing loss */
    /* Groups of E / n_groups experts each: a token chooses among the experts of its n_chosen_groups
     * best groups, by the sum of the two largest p + correction of each. 0 or 1: no groups */
    int32_t n_groups, n_chosen_groups;
    const char *correction; /* tensor f32[E] that never trains; NULL: none */
    double sum_plus;        /* added to the sum that `normalize` divides by */
    double sum_least;       /* least value of that sum; 0: none */
    double weight_scale;    /* factor on the weights; 0: 1 */
    /* An MLP that every token passes, added to the sum of the experts; NULL: none. Its output is
     * multiplied by the sigmoid of the linear layer shared_score [1, C], if there is one. */
    const char *shared_gate, *shared_up, *shared_down, *shared_score;
    const char *shared_gate_up; /* one fused projection instead of two */
    int64_t shared_ffn;         /* width inside it */
    int32_t shared_bias;
    int32_t correction_layout; /* LATHE_LAYOUT_* of the correction in files */
    int32_t layout;            /* LATHE_LAYOUT_* of the experts in files */
    int32_t reserved;
} lathe_expert_layer;

/** A gated delta rule instead of attention (decoder_delta.h). */
typedef struct lathe_delta_layer {
    int32_t n_key_heads, n_heads; /* number of heads of q and k; of v, a multiple of it */
    int32_t key_dim, value_dim;   /* size of a head of q and k; of v */
    int32_t taps;                 /* tokens that the convolution before the rule reads */
    int32_t fused; /* 1: in_proj_qkvz and in_proj_ba, whose rows lie by key head; 0: in_proj_qkv,
                      in_proj_z, in_proj_b and in_proj_a */
} lathe_delta_layer;

/** Latent attention instead of plain attention (decoder_latent.h). A head of q and k has key_dim
 *  channels of its own, then rope_dim channels that are rotated; those of k are the same for all
 *  heads. */
typedef struct lathe_latent_layer {
    int32_t q_rank, kv_rank; /* width of the latents of q, and of k and v; q_rank 0: q_proj */
    int32_t key_dim, rope_dim, value_dim;
    int32_t bias;   /* 1: q_a_proj, kv_a_proj_with_mqa and o_proj have biases */
    float norm_eps; /* of the norms of the latents */
} lathe_latent_layer;

enum {
    LATHE_MAMBA_GATE_FIRST = 0, /* norm(y silu(z)) */
    LATHE_MAMBA_NORM_FIRST = 1, /* norm(y) silu(z) */
    LATHE_MAMBA_NO_NORM = 2,    /* y silu(z) */
};

/** The state space of Mamba-2, instead of attention or beside it (decoder_mamba.h). */
typedef struct lathe_mamba_layer {
    const char *module;                   /* "mamba" */
    int32_t n_heads, head_dim;            /* H, P: H*P channels */
    int32_t n_groups, state;              /* of B and C, each for H/G heads; size of a state */
    int32_t taps;                         /* tokens that the convolution reads */
    int32_t norm;                         /* LATHE_MAMBA_*: each group of channels by itself */
    int32_t conv_bias, in_bias, out_bias; /* biases of the convolution and the projections */
    int32_t beside;                       /* 1: beside the attention, both of one norm */
    double dt_min, dt_max;                /* limits of dt; dt_max 0: none */
    double in_factor, out_factor;         /* of what it reads, and of its output; 0: 1 */
    double factors[5];                    /* of z, x, B, C and dt after the projection; 0: 1 */
} lathe_mamba_layer;

/** Choices of one layer. */
typedef struct lathe_decoder_layer {
    const lathe_layer_names *names;
    const lathe_expert_layer *experts; /* NULL: an MLP */
    const lathe_delta_layer *delta;    /* NULL: attention */
    const lathe_latent_layer *latent;  /* NULL: plain attention; its names are fixed */
    const lathe_mamba_layer *mamba;    /* NULL: attention */
    int32_t rope;                      /* index of describe()'s ropes; -1: no rotary positions */
    int32_t norm;                      /* LATHE_OP_RMSNORM or LATHE_OP_LAYERNORM */
    int32_t norm_offset_one;           /* RMSNORM multiplies by 1+w; w begins at 0 */
    int32_t norm_no_bias;              /* the norms of kind LATHE_OP_LAYERNORM have no bias */
    int32_t whole_qk_norm;             /* 1: q_norm and k_norm span all heads; 0: each head */
    int32_t qk_norm_by_head;           /* 1: LayerNorm of queries and keys without bias, with a
                                          weight for each head; files number these: q_norm is
                                          "self_attn.q_layernorm.norms" */
    int32_t qk_norm_last;              /* 1: q_norm and k_norm come after the rotation */
    int32_t interleaved;               /* 1: channels 2i and 2i+1 of a head rotate together */
    int32_t activation;                /* LATHE_ACT_* */
    int32_t qkv_bias, out_bias, mlp_bias;
    int32_t qkv_by_head; /* rows of qkv: 1: for each key head in turn its query heads, k and v;
                            0: all of q, then k, then v */
    int32_t
        normed_residual;   /* 1: y = norm(x) + attention(norm(x)), and z = norm(y) + mlp(norm(y)) */
    int32_t parallel;      /* 1: x + attention(norm(x)) + mlp(norm(x)) */
    float attention_scale; /* factor on q k^T; 0: 1/sqrt(head_dim) */
    float softcap;         /* cap of the attention scores; 0: none */
    float qkv_clip;        /* the output of qkv is limited to -qkv_clip .. qkv_clip; 0: it is not */
    float residual_scale;  /* s of x + s attention(x) and of x + s mlp(x); 0: 1 */
    float alibi;           /* exponent of the smallest of the ALiBi slopes, 8 as a rule; 0: none */
    float alibi_scale;     /* factor on the slopes; 0: 1 */
    int32_t alibi_bf16;    /* 1: the slopes are rounded to bf16 before the factor */
    /* factors of what the attention reads, of its output, of the output of gate before the
     * activation, and of the MLP's output; 0: 1 */
    float attention_in_scale, attention_out_scale, gate_scale, down_scale;
    int32_t gated_queries; /* 1: q has for each head its queries, then a gate, whose sigmoid is a
                              factor of the head's output */
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
    const char *embedding_norm;               /* norm of the token embeddings; NULL: none */
    const char *final_norm;                   /* "model.norm" */
    double norm_eps, init_range, embed_scale; /* embed_scale 0: no scaling */
    int32_t transposed;                       /* files hold matrices as [in, out] */
    int32_t residual_init;                    /* o and down: init divided by sqrt(2 n_layers) */
    int32_t norms_order; /* LATHE_NORMS_*: place of a layer's norms in the list of tensors */
    int32_t reserved;
    lathe_expert_layer experts; /* for layers[].experts */
    lathe_delta_layer delta;    /* for layers[].delta */
    lathe_latent_layer latent;  /* for layers[].latent */
    lathe_mamba_layer mamba;    /* for layers[].mamba */
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

/* Names of the projections of experts, and of the MLP of all tokens, after a prefix. */
#define LATHE_EXPERT_NAMES(e, prefix)                                                              \
    ((e)->gate = prefix "gate_proj", (e)->up = prefix "up_proj", (e)->down = prefix "down_proj")
#define LATHE_SHARED_NAMES(e, prefix)                                                              \
    ((e)->shared_gate = prefix "gate_proj", (e)->shared_up = prefix "up_proj",                     \
     (e)->shared_down = prefix "down_proj")

/** Reads the keys of LATHE_EXPERT_FIELDS into d->experts, with the number of experts that the key
 *  `count_key` has, and gives all layers a mixture of experts. The caller sets names and widths. A
 *  family without router_aux_loss_coef has no load balancing loss. */
static inline lathe_status lathe_decoder_use_experts(lathe_decoder *d, const char *count_key)
{
    const lathe_keys *k = &d->keys;
    const int64_t n = lathe_key_int(k, count_key);
    if (lathe_key_int(k, "num_experts_per_tok") > n)
        return lathe_key_refuse(k, "num_experts_per_tok", "there are fewer experts");
    d->experts.n_experts = (int32_t)n;
    d->experts.n_chosen = (int32_t)lathe_key_int(k, "num_experts_per_tok");
    d->experts.no_balance = lathe_key(k, "router_aux_loss_coef") == NULL;
    if (lathe_key_int(k, "output_router_logits"))
        d->experts.aux_loss = lathe_key_float(k, "router_aux_loss_coef");
    for (int32_t i = 0; i < d->info.n_layers; i++)
        d->layers[i].experts = &d->experts;
    return LATHE_OK;
}

/** Reads the keys of LATHE_GROUPED_ROUTER_FIELDS: how DeepSeek-V3 routes, without groups where
 *  n_group is unset or 1. */
static inline lathe_status lathe_decoder_use_groups(lathe_decoder *d)
{
    const lathe_keys *k = &d->keys;
    lathe_expert_layer *e = &d->experts;
    const int64_t groups = lathe_key_int(k, "n_group"), open = lathe_key_int(k, "topk_group");
    e->sigmoid = 1;
    e->normalize = (int32_t)lathe_key_int(k, "norm_topk_prob");
    e->sum_plus = 1e-20;
    e->weight_scale = lathe_key_float(k, "routed_scaling_factor");
    if (groups < 2)
        return LATHE_OK;
    if (e->n_experts % groups != 0 || e->n_experts / groups < 2 || groups > 256)
        return lathe_key_refuse(k, "n_group",
                                "it must divide the experts into at most 256 groups of at least 2");
    if (open > groups || open * (e->n_experts / groups) < e->n_chosen)
        return lathe_key_refuse(k, "topk_group",
                                "it must be at most n_group, and so many groups must have "
                                "num_experts_per_tok experts");
    e->n_groups = (int32_t)groups;
    e->n_chosen_groups = (int32_t)open;
    return LATHE_OK;
}

/** The first n layers have an MLP instead of experts. */
static inline void lathe_decoder_dense_first(lathe_decoder *d, int64_t n)
{
    for (int64_t i = 0; i < d->info.n_layers && i < n; i++)
        d->layers[i].experts = NULL;
}

/** Gives an MLP to the layers that mlp_only_layers names, and to all but every
 *  decoder_sparse_step-th layer. */
static inline lathe_status lathe_decoder_sparse_layers(lathe_decoder *d)
{
    const lathe_keys *k = &d->keys;
    const int64_t step = lathe_key_int(k, "decoder_sparse_step");
    const lathe_value *v = lathe_key(k, "mlp_only_layers");
    for (int64_t i = 0; v != NULL && v->is_set && i < v->n; i++) {
        if (v->nums[i] != floor(v->nums[i]) || v->nums[i] >= (double)d->info.n_layers)
            return lathe_fail_at(d->host, LATHE_E_CONFIG, "mlp_only_layers",
                                 "mlp_only_layers names layer %g; expected whole numbers from 0 to "
                                 "%d",
                                 v->nums[i], (int)d->info.n_layers - 1);
        d->layers[(int64_t)v->nums[i]].experts = NULL;
    }
    for (int64_t i = 0; step > 0 && i < d->info.n_layers; i++)
        if ((i + 1) % step != 0)
            d->layers[i].experts = NULL;
    return LATHE_OK;
}

/** Fills in the description as lathe_decoder_shape does, from LATHE_LATENT_FIELDS too, and gives
 * all layers latent attention, with rotary positions of base theta. The caller sets d->latent.bias
 * and the layers' `interleaved`. */
static inline lathe_status lathe_decoder_use_latent(lathe_decoder *d, double theta)
{
    const lathe_keys *k = &d->keys;
    const int32_t rope = (int32_t)lathe_key_int(k, "qk_rope_head_dim");
    d->latent = (lathe_latent_layer){
        .q_rank = (int32_t)lathe_key_int(k, "q_lora_rank"), /* null: 0 */
        .kv_rank = (int32_t)lathe_key_int(k, "kv_lora_rank"),
        .key_dim = (int32_t)lathe_key_int(k, "qk_nope_head_dim"),
        .rope_dim = rope,
        .value_dim = (int32_t)lathe_key_int(k, "v_head_dim"),
        .norm_eps = 1e-6f, /* the default of the class in transformers, which is given no other */
    };
    const int32_t size = d->latent.key_dim + rope;
    if (rope % 2 != 0)
        return lathe_key_refuse(k, "qk_rope_head_dim", "rotary positions need an even number");
    if (lathe_key_is_set(k, "head_dim") && lathe_key_int(k, "head_dim") != rope)
        return lathe_key_refuse(k, "head_dim", "expected qk_rope_head_dim");
    if (lathe_key_fill(k, "qk_head_dim", size) != size)
        return lathe_key_refuse(k, "qk_head_dim", "expected qk_nope_head_dim + qk_rope_head_dim");
    LATHE_TRY(lathe_decoder_shape(d, rope));
    if (d->shapes[0].n_kv_heads != d->shapes[0].n_heads)
        return lathe_key_refuse(k, "num_key_value_heads", "expected num_attention_heads");
    lathe_decoder_rope(d, theta);
    d->ropes[0].flags = LATHE_ROPE_SCORES;
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        d->shapes[i].head_dim = size;
        d->shapes[i].value_dim = d->latent.value_dim;
        d->layers[i].latent = &d->latent;
    }
    return LATHE_OK;
}

/** Reads the keys of LATHE_DELTA_FIELDS into d->delta, and replaces the attention of linear layers
 *  by it. */
static inline lathe_status lathe_decoder_use_delta(lathe_decoder *d)
{
    const lathe_keys *k = &d->keys;
    const int64_t interval = lathe_key_int(k, "full_attention_interval");
    d->delta = (lathe_delta_layer){
        .n_key_heads = (int32_t)lathe_key_int(k, "linear_num_key_heads"),
        .n_heads = (int32_t)lathe_key_int(k, "linear_num_value_heads"),
        .key_dim = (int32_t)lathe_key_int(k, "linear_key_head_dim"),
        .value_dim = (int32_t)lathe_key_int(k, "linear_value_head_dim"),
        .taps = (int32_t)lathe_key_int(k, "linear_conv_kernel_dim"),
    };
    if (d->delta.n_key_heads < 1 || d->delta.n_heads % d->delta.n_key_heads != 0)
        return lathe_key_refuse(k, "linear_num_value_heads",
                                "expected a multiple of linear_num_key_heads");
    LATHE_TRY(lathe_layer_types_check(k, d->info.n_layers, "linear_attention|full_attention",
                                      "expected linear_attention or full_attention"));
    for (int32_t i = 0; i < d->info.n_layers; i++)
        if (lathe_layer_is(k, i, "linear_attention", interval > 0 && (i + 1) % interval != 0))
            d->layers[i].delta = &d->delta;
    return LATHE_OK;
}

/** Reads time_step_limit into d->mamba: two numbers, of which the second may be infinity, as
 *  transformers writes it. */
static inline lathe_status lathe_decoder_read_limits(lathe_decoder *d)
{
    const lathe_keys *k = &d->keys;
    const lathe_value *v = lathe_key(k, "time_step_limit");
    const char *why = "expected a lower limit of at least 0 and an upper one that is not below it, "
                      "or {\"__float__\": \"Infinity\"}";
    if (v == NULL || !v->is_set)
        return LATHE_OK;
    char *end = NULL;
    const double low = v->s[0] == '[' ? strtod(v->s + 1, &end) : -1.0;
    if (!(low >= 0.0) || end == NULL || *end != ',')
        return lathe_key_refuse(k, "time_step_limit", why);
    d->mamba.dt_min = low;
    if (strcmp(end, ",{\"__float__\":\"Infinity\"}]") == 0)
        return LATHE_OK;
    d->mamba.dt_max = strtod(end + 1, &end);
    if (!(d->mamba.dt_max >= low && d->mamba.dt_max > 0.0) || strcmp(end, "]") != 0)
        return lathe_key_refuse(k, "time_step_limit", why);
    return LATHE_OK;
}

/** Reads the keys of LATHE_MAMBA_FIELDS into d->mamba, for `inner` channels; the caller gives it to
 *  layers. */
static inline lathe_status lathe_decoder_read_mamba(lathe_decoder *d, int64_t inner)
{
    const lathe_keys *k = &d->keys;
    const int64_t heads = lathe_key_int(k, "mamba_n_heads");
    const int64_t size = heads > 0 ? lathe_key_fill(k, "mamba_d_head", inner / heads) : 0;
    lathe_mamba_layer *m = &d->mamba;
    m->module = "mamba";
    m->n_heads = (int32_t)heads;
    m->head_dim = (int32_t)size;
    m->n_groups = (int32_t)lathe_key_int(k, "mamba_n_groups");
    m->state = (int32_t)lathe_key_int(k, "mamba_d_state");
    m->taps = (int32_t)lathe_key_int(k, "mamba_d_conv");
    m->conv_bias = (int32_t)lathe_key_int(k, "mamba_conv_bias");
    m->in_bias = m->out_bias = (int32_t)lathe_key_int(k, "mamba_proj_bias");
    if (heads < 1 || heads * size != inner)
        return lathe_fail_at(d->host, LATHE_E_CONFIG, "mamba_n_heads",
                             "mamba_n_heads times mamba_d_head is %lld; expected the %lld channels "
                             "of a state space",
                             (long long)(heads * size), (long long)inner);
    if (size > 512)
        return lathe_key_refuse(k, "mamba_d_head", "expected at most 512");
    if (m->n_groups < 1 || heads % m->n_groups != 0)
        return lathe_key_refuse(k, "mamba_n_groups", "it must divide mamba_n_heads");
    return lathe_decoder_read_limits(d);
}

#endif
