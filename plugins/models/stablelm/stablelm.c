/* StableLM: Llama with LayerNorm and rotary positions for a part of each head; in some models
 * attention and MLP are in parallel, and each head of queries and keys has a norm of its own. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("stablelm", "false"),
    LATHE_DECODER_FIELDS_OF(
        "4096", LATHE_KV_HEADS_FIELD("32"),
        LATHE_HEAD_DIM_FIELD(
            NULL, "size of a head; only hidden_size / num_attention_heads is supported")),
    LATHE_POSITIVE("layer_norm_eps", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_POSITIVE("partial_rotary_factor", "0.25", 1.0,
                   "share of the channels of each head that are rotated, from the first on"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("use_qkv_bias", "false", "biases on q, k and v"),
    LATHE_FIELD_BOOL("qk_layernorm", "false",
                     "LayerNorm of queries and keys, with a weight for each head"),
    LATHE_FIELD_BOOL("use_parallel_residual", "false",
                     "the MLP reads what the attention reads, not its result"),
    LATHE_FIELD_FLOAT("hidden_dropout", "0.0", 0.0, 1.0, "1",
                      "dropout of what the MLP adds; training applies none"),
};

static const lathe_model_type types[] = {{"stablelm", "StableLmForCausalLM"}};

#define OTHERS LATHE_LINEAR_NAMES, .attention_norm = "input_layernorm"
#define QK_NORMS .q_norm = "self_attn.q_layernorm.norms", .k_norm = "self_attn.k_layernorm.norms"

/* Indexed by qk_layernorm and use_parallel_residual. */
static const lathe_layer_names names[2][2] = {
    {{OTHERS, .mlp_norm = "post_attention_layernorm"}, {OTHERS}},
    {{OTHERS, QK_NORMS, .mlp_norm = "post_attention_layernorm"}, {OTHERS, QK_NORMS}},
};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const int32_t qk = lathe_key_int(k, "qk_layernorm") != 0;
    const int32_t parallel = lathe_key_int(k, "use_parallel_residual") != 0;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    if (d->info.width != (int64_t)d->shapes[0].n_heads * d->shapes[0].head_dim)
        return lathe_key_refuse(k, "head_dim", "expected hidden_size / num_attention_heads");
    lathe_decoder_rope(d, 10000.0);
    lathe_decoder_partial_rope(d, "partial_rotary_factor", 0.25);
    d->norm_eps = lathe_key_float(k, "layer_norm_eps");
    lathe_decoder_dropout(d, "hidden_dropout");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names[qk][parallel];
        l->norm = LATHE_OP_LAYERNORM;
        l->qk_norm_by_head = qk;
        l->parallel = parallel;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = (int32_t)lathe_key_int(k, "use_qkv_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(stablelm, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "StableLM: LayerNorm, partial rotary positions, norms by head",
                     .source = "arXiv:2402.17834; transformers", .license = "Apache-2.0");
