/* Qwen3-MoE: Qwen3 with a mixture of experts instead of the MLP, in all layers or in some. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("qwen3_moe", "false"),
    LATHE_DECODER_FIELDS("32768"),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish", "activation of MLP and experts"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_FIELD_BOOL("use_sliding_window", "false", "all layers have the window of sliding_window"),
    LATHE_WINDOW_FIELD("4096", "keys that a query sees, itself included; null: all"),
    LATHE_FIELD_INT("num_experts", "128", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_INT("moe_intermediate_size", "768", 1, 16777216.0, "channels",
                    "width inside an expert"),
    LATHE_FIELD_BOOL("norm_topk_prob", "false",
                     "the weights of a token's experts are divided by their sum"),
    LATHE_SPARSE_LAYER_FIELDS,
    LATHE_EXPERT_FIELDS("8", "0.001"),
};

static const lathe_model_type types[] = {{"qwen3_moe", "Qwen3MoeForCausalLM"}};
static const lathe_key_alias aliases[] = {{"num_experts", "num_local_experts"}};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, LATHE_QK_NORM_NAMES,
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    LATHE_TRY(lathe_decoder_use_experts(d, "num_experts"));
    d->experts.router = "mlp.gate";
    LATHE_EXPERT_NAMES(&d->experts, "mlp.experts.");
    d->experts.ffn = lathe_key_int(k, "moe_intermediate_size");
    d->experts.normalize = (int32_t)lathe_key_int(k, "norm_topk_prob");
    const int has_window = lathe_key_int(k, "use_sliding_window") != 0;
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names;
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
        d->shapes[i].window = has_window ? (int32_t)lathe_key_int(k, "sliding_window") : 0;
    }
    return lathe_decoder_sparse_layers(d);
}

LATHE_DECODER_FAMILY(qwen3_moe, types, aliases, 1, read, .version = "1.0.0",
                     .summary = "Qwen3-MoE: Qwen3 with a mixture of experts",
                     .source = "arXiv:2505.09388; transformers", .license = "Apache-2.0");
