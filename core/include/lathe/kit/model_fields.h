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

/** Shape of a decoder with grouped attention, whose heads have hidden_size / num_attention_heads
 *  channels unless head_dim is set. positions: default of max_position_embeddings, or NULL. */
#define LATHE_DECODER_FIELDS(positions)                                                            \
    LATHE_DECODER_FIELDS_WITH(                                                                     \
        positions,                                                                                 \
        LATHE_HEAD_DIM_FIELD(NULL, "size of a head; unset: hidden_size / num_attention_heads"))

/** Like LATHE_DECODER_FIELDS, with the family's own field for head_dim (LATHE_HEAD_DIM_FIELD). */
#define LATHE_DECODER_FIELDS_WITH(positions, head_dim_field)                                       \
    LATHE_REQUIRED_INT("hidden_size", 1, 1048576.0, "channels", "width of the residual stream"),   \
        LATHE_REQUIRED_INT("intermediate_size", 1, 16777216.0, "channels",                         \
                           "width inside the MLP"),                                                \
        LATHE_REQUIRED_INT("num_hidden_layers", 1, 10000.0, "layers", "number of layers"),         \
        LATHE_REQUIRED_INT("num_attention_heads", 1, 65536.0, "heads", "query heads"),             \
        LATHE_FIELD_INT("num_key_value_heads", NULL, 1, 65536.0, "heads",                          \
                        "key and value heads; unset: as many as query heads"),                     \
        head_dim_field,                                                                            \
        LATHE_FIELD_INT("max_position_embeddings", positions, 1, LATHE_ANY_POSITIONS, "tokens",    \
                        "longest sequence"),                                                       \
        LATHE_FIELD_FLOAT("attention_dropout", "0.0", 0.0, 1.0, "1",                               \
                          "dropout of the attention weights; training applies none")

/** Keys of rotary positions, which the core reads for describe()'s ropes. */
#define LATHE_ROPE_FIELDS(theta)                                                                   \
    LATHE_POSITIVE("rope_theta", theta, 1e18, "base of the rotary frequencies"),                   \
        LATHE_FIELD_TABLE("rope_scaling", "RoPE scaling: rope_type, factor, ..."),                 \
        LATHE_FIELD_TABLE("rope_parameters",                                                       \
                          "the newer form of rope_scaling, which holds rope_theta too")

#endif
