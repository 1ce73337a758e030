/* Schema fields that most model families share. */
#ifndef LATHE_KIT_MODEL_FIELDS_H
#define LATHE_KIT_MODEL_FIELDS_H

#include "../schema.h"

/* Names that transformers gives the activations of an MLP without a gate. gelu_new, gelu_fast and
 * gelu_pytorch_tanh are the same function, and so are silu and swish. */
#define LATHE_ACTIVATIONS                                                                          \
    "gelu|gelu_new|gelu_fast|gelu_pytorch_tanh|relu|relu2|relu6|silu|swish|quick_gelu|tanh"

#define LATHE_POSITIVE(key, def, hi, doc)                                                          \
    {                                                                                              \
        key, LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, def, 0.0, hi, NULL, "1", doc                \
    }
/* A BOOL whose null is false and not the default. */
#define LATHE_NULLABLE_BOOL(key, def, doc)                                                         \
    {                                                                                              \
        key, LATHE_T_BOOL, LATHE_FIELD_NULLABLE, def, LATHE_NO_RANGE, NULL, NULL, doc              \
    }
#define LATHE_REQUIRED_INT(key, lo, hi, unit, doc)                                                 \
    {                                                                                              \
        key, LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, lo, hi, NULL, unit, doc                      \
    }
#define LATHE_FIELD_TABLE(key, doc)                                                                \
    {                                                                                              \
        key, LATHE_T_TABLE, 0, NULL, LATHE_NO_RANGE, NULL, NULL, doc                               \
    }
#define LATHE_FIELD_STRINGS(key, doc)                                                              \
    {                                                                                              \
        key, LATHE_T_STRING_LIST, 0, NULL, LATHE_NO_RANGE, NULL, NULL, doc                         \
    }

#define LATHE_ANY_POSITIONS 2147483647.0

/** sliding_window; null switches it off. */
#define LATHE_WINDOW_FIELD(def, doc)                                                               \
    {                                                                                              \
        "sliding_window", LATHE_T_INT, LATHE_FIELD_NULLABLE, def, 1, LATHE_ANY_POSITIONS, NULL,    \
            "tokens", doc                                                                          \
    }

/** model_type (types: "qwen2|qwen3"), vocab_size, tie_word_embeddings (tied: "true"),
 *  initializer_range. */
#define LATHE_MODEL_FIELDS(types, tied)                                                            \
    LATHE_FIELD_STRING("model_type", NULL, types, "architecture of the family"),                   \
        LATHE_REQUIRED_INT("vocab_size", 1, 2147483647.0, "tokens",                                \
                           "size of the vocabulary; for a new model the tokenizer's, if unset"),   \
        LATHE_FIELD_BOOL("tie_word_embeddings", tied,                                              \
                         "the output head shares the token embedding"),                            \
        LATHE_FIELD_FLOAT("initializer_range", "0.02", 0.0, 10.0, "1",                             \
                          "standard deviation of the initial weights")

/** head_dim. def: its default, or NULL; doc: the text of the key, which says what is used if it
 *  is unset. */
#define LATHE_HEAD_DIM_FIELD(def, doc) LATHE_FIELD_INT("head_dim", def, 2, 1024.0, "channels", doc)

/** head_dim with the default `def`; null: hidden_size / num_attention_heads. */
#define LATHE_NULL_HEAD_DIM_FIELD(def)                                                             \
    {                                                                                              \
        "head_dim", LATHE_T_INT, LATHE_FIELD_NULLABLE, def, 2, 1024.0, NULL, "channels",           \
            "size of a head; null: hidden_size / num_attention_heads"                              \
    }

/** hidden_act of a family that takes any activation. */
#define LATHE_HIDDEN_ACT_FIELD                                                                     \
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", LATHE_ACTIVATIONS, "activation of the MLP")

/** Shape of a decoder with grouped attention, whose heads have hidden_size / num_attention_heads
 *  channels unless head_dim is set. positions: default of max_position_embeddings, or NULL. */
#define LATHE_DECODER_FIELDS(positions)                                                            \
    LATHE_DECODER_FIELDS_WITH(                                                                     \
        positions,                                                                                 \
        LATHE_HEAD_DIM_FIELD(NULL, "size of a head; unset: hidden_size / num_attention_heads"))

/** Like LATHE_DECODER_FIELDS, with the family's own field for head_dim (LATHE_HEAD_DIM_FIELD). */
#define LATHE_DECODER_FIELDS_WITH(positions, head_dim_field)                                       \
    LATHE_DECODER_FIELDS_OF(positions,                                                             \
                            LATHE_FIELD_INT("num_key_value_heads", NULL, 1, 65536.0, "heads",      \
                                            "key and value heads; unset: as many as query heads"), \
                            head_dim_field)

/** num_key_value_heads of a family in which an unset key means `def` heads. */
#define LATHE_KV_HEADS_FIELD(def)                                                                  \
    {                                                                                              \
        "num_key_value_heads", LATHE_T_INT, LATHE_FIELD_NULLABLE, def, 1, 65536.0, NULL, "heads",  \
            "key and value heads; null: as many as query heads"                                    \
    }

/** Like LATHE_DECODER_FIELDS, with the family's own fields for num_key_value_heads and head_dim. */
#define LATHE_DECODER_FIELDS_OF(positions, ...)                                                    \
    LATHE_WIDTH_FIELD,                                                                             \
        LATHE_REQUIRED_INT("intermediate_size", 1, 16777216.0, "channels",                         \
                           "width inside the MLP"),                                                \
        LATHE_LAYER_FIELDS_OF(positions, __VA_ARGS__)

#define LATHE_WIDTH_FIELD                                                                          \
    LATHE_REQUIRED_INT("hidden_size", 1, 1048576.0, "channels", "width of the residual stream")

/** LATHE_DECODER_FIELDS_OF without hidden_size (LATHE_WIDTH_FIELD) and intermediate_size, for a
 *  family whose layers all have experts. */
#define LATHE_LAYER_FIELDS_OF(positions, ...)                                                      \
    LATHE_REQUIRED_INT("num_hidden_layers", 1, 10000.0, "layers", "number of layers"),             \
        LATHE_REQUIRED_INT("num_attention_heads", 1, 65536.0, "heads", "query heads"),             \
        __VA_ARGS__,                                                                               \
        LATHE_FIELD_INT("max_position_embeddings", positions, 1, LATHE_ANY_POSITIONS, "tokens",    \
                        "longest sequence"),                                                       \
        LATHE_FIELD_FLOAT("attention_dropout", "0.0", 0.0, 1.0, "1",                               \
                          "dropout of the attention weights; training applies none")

/** Keys of a mixture of experts. coef: default of router_aux_loss_coef. */
#define LATHE_EXPERT_FIELDS(chosen, coef)                                                          \
    LATHE_FIELD_INT("num_experts_per_tok", chosen, 1, 65536.0, "experts",                          \
                    "experts that compute each token"),                                            \
        LATHE_FIELD_BOOL("output_router_logits", "false",                                          \
                         "training adds the load balancing loss of the experts"),                  \
        LATHE_FIELD_FLOAT("router_aux_loss_coef", coef, 0.0, 1e6, "1",                             \
                          "factor of the load balancing loss, with output_router_logits")

/** decoder_sparse_step and mlp_only_layers: which layers have experts. */
#define LATHE_SPARSE_LAYER_FIELDS                                                                  \
    LATHE_FIELD_INT("decoder_sparse_step", "1", 1, 10000.0, "layers",                              \
                    "layers n, 2n, 3n, .. (counted from 1) have experts, the others an MLP"),      \
    {                                                                                              \
        "mlp_only_layers", LATHE_T_FLOAT_LIST, 0, NULL, 0.0, 9999.0, NULL, "layers",               \
            "layers, from 0 on, that have an MLP"                                                  \
    }

/** Keys of a router by sigmoid with groups of experts, for lathe_decoder_use_groups, and keys of
 *  these families that change nothing in training. */
#define LATHE_GROUPED_ROUTER_FIELDS(groups, open, scale)                                           \
    LATHE_GROUPED_ROUTER_FIELDS_OF(                                                                \
        groups, open, scale,                                                                       \
        LATHE_FIELD_BOOL("norm_topk_prob", "true",                                                 \
                         "the weights of a token's experts are divided by their sum"))

/** Like LATHE_GROUPED_ROUTER_FIELDS, with the family's own field for norm_topk_prob. */
#define LATHE_GROUPED_ROUTER_FIELDS_OF(groups, open, scale, norm_field)                            \
    LATHE_FIELD_INT("n_group", groups, 1, 65536.0, "groups", "groups of experts"),                 \
        LATHE_FIELD_INT("topk_group", open, 1, 65536.0, "groups",                                  \
                        "groups whose experts a token may choose"),                                \
        norm_field,                                                                                \
        LATHE_POSITIVE("routed_scaling_factor", scale, 1e6,                                        \
                       "factor of the weights of the experts"),                                    \
        LATHE_FIELD_BOOL("output_router_logits", "false",                                          \
                         "changes nothing: moe.balance_loss adds a load balancing loss"),          \
        LATHE_FIELD_INT("num_nextn_predict_layers", "1", 0, 10000.0, "layers",                     \
                        "layers of multi-token prediction after the others; they are not "         \
                        "computed, and not saved")

/** Keys of latent attention. q_rank: default of q_lora_rank. */
#define LATHE_LATENT_FIELDS(q_rank)                                                                \
    {"q_lora_rank", LATHE_T_INT, LATHE_FIELD_NULLABLE,                                             \
     q_rank,        1,           1048576.0,                                                        \
     NULL,          "channels",  "width between the two projections of q; null: one projection"},  \
        LATHE_FIELD_INT("kv_lora_rank", "512", 1, 1048576.0, "channels",                           \
                        "width from which k and v of all heads are computed"),                     \
        LATHE_FIELD_INT("qk_nope_head_dim", "128", 1, 1024.0, "channels",                          \
                        "channels of a head of q and k that are not rotated"),                     \
        LATHE_FIELD_INT("qk_rope_head_dim", "64", 2, 1024.0, "channels",                           \
                        "channels of a head of q, and of all heads of k together, that are "       \
                        "rotated"),                                                                \
        LATHE_FIELD_INT("v_head_dim", "128", 1, 1024.0, "channels", "size of a head of v"),        \
        LATHE_FIELD_INT("qk_head_dim", NULL, 1, 2048.0, "channels",                                \
                        "only qk_nope_head_dim + qk_rope_head_dim")

/** Keys of layers with the gated delta rule. */
#define LATHE_DELTA_FIELDS                                                                         \
    LATHE_FIELD_STRINGS("layer_types", "linear_attention or full_attention for each layer; "       \
                                       "unset: by full_attention_interval"),                       \
        LATHE_FIELD_INT("full_attention_interval", "4", 1, 10000.0, "layers",                      \
                        "layers n, 2n, 3n, .. (counted from 1) have full attention, the others "   \
                        "linear attention"),                                                       \
        LATHE_FIELD_INT("linear_conv_kernel_dim", "4", 1, 16.0, "tokens",                          \
                        "tokens that the convolution of a linear layer reads"),                    \
        LATHE_FIELD_INT("linear_key_head_dim", "128", 1, 512.0, "channels",                        \
                        "size of a head of queries and keys in a linear layer"),                   \
        LATHE_FIELD_INT("linear_value_head_dim", "128", 1, 512.0, "channels",                      \
                        "size of a head of values in a linear layer"),                             \
        LATHE_FIELD_INT("linear_num_key_heads", "16", 1, 65536.0, "heads",                         \
                        "heads of queries and keys in a linear layer"),                            \
        LATHE_FIELD_INT("linear_num_value_heads", "32", 1, 65536.0, "heads",                       \
                        "heads of values in a linear layer: a multiple of linear_num_key_heads")

/** Keys of layers with the state space of Mamba-2. */
#define LATHE_MAMBA_FIELDS                                                                         \
    LATHE_REQUIRED_INT("mamba_n_heads", 1, 65536.0, "heads", "heads of a state space"),            \
        LATHE_FIELD_INT("mamba_d_head", NULL, 1, 512.0, "channels",                                \
                        "size of a head of a state space; unset: its channels / mamba_n_heads"),   \
        LATHE_FIELD_INT("mamba_n_groups", "1", 1, 65536.0, "groups",                               \
                        "groups of heads, each with a B and a C of its own"),                      \
        LATHE_FIELD_INT("mamba_d_state", "256", 1, 512.0, "channels", "size of B and C"),          \
        LATHE_FIELD_INT("mamba_d_conv", "4", 1, 16.0, "tokens",                                    \
                        "tokens that the convolution of a state space reads"),                     \
        {"mamba_conv_bias",                                                                        \
         LATHE_T_BOOL,                                                                             \
         LATHE_FIELD_NULLABLE,                                                                     \
         "true",                                                                                   \
         LATHE_NO_RANGE,                                                                           \
         NULL,                                                                                     \
         NULL,                                                                                     \
         "bias of the convolution; null: none"},                                                   \
        LATHE_FIELD_BOOL("mamba_proj_bias", "false",                                               \
                         "biases in the projections of a state space"),                            \
        LATHE_FIELD_INT("mamba_chunk_size", "256", 1, 1e9, "tokens",                               \
                        "changes nothing: Lathe's chunks have 64 tokens"),                         \
        LATHE_FIELD_TABLE("time_step_limit",                                                       \
                          "lower and upper limit of the steps of a state space; unset: none")

/** Keys of rotary positions, which the core reads for describe()'s ropes. */
#define LATHE_ROPE_FIELDS(theta)                                                                   \
    LATHE_POSITIVE("rope_theta", theta, 1e18, "base of the rotary frequencies"),                   \
        LATHE_FIELD_TABLE("rope_scaling", "RoPE scaling: rope_type, factor, ..."),                 \
        LATHE_FIELD_TABLE("rope_parameters",                                                       \
                          "the newer form of rope_scaling, which holds rope_theta too")

#endif
