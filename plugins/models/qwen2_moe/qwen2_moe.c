/* Qwen2-MoE: Qwen2 with a mixture of experts beside an MLP that all tokens pass through a gate, in
 * all layers or in some. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("qwen2_moe", "false"),
    LATHE_DECODER_FIELDS_OF(
        "32768", LATHE_KV_HEADS_FIELD("16"),
        LATHE_HEAD_DIM_FIELD(NULL, "size of a head; unset: hidden_size / num_attention_heads")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", LATHE_ACTIVATIONS,
                       "activation of MLP and experts"),
    LATHE_FIELD_BOOL("qkv_bias", "true", "biases on q, k and v"),
    LATHE_FIELD_BOOL("use_sliding_window", "false",
                     "some layers have the window of "
                     "sliding_window"),
    {"sliding_window", LATHE_T_INT, LATHE_FIELD_NULLABLE, "4096", 0, LATHE_ANY_POSITIONS, NULL,
     "tokens", "keys that a query sees, itself included; 0 and null: all"},
    LATHE_FIELD_INT("max_window_layers", "28", 0, 10000.0, "layers",
                    "with use_sliding_window: every other layer below it, from the first on, has "
                    "the window"),
    LATHE_FIELD_STRINGS("layer_types", "for each layer sliding_attention or full_attention; unset: "
                                       "as max_window_layers says"),
    LATHE_FIELD_INT("num_experts", "60", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_INT("moe_intermediate_size", "1408", 1, 16777216.0, "channels",
                    "width inside an expert"),
    LATHE_FIELD_INT("shared_expert_intermediate_size", "5632", 1, 16777216.0, "channels",
                    "width inside the MLP of all tokens"),
    LATHE_FIELD_BOOL("norm_topk_prob", "false",
                     "the weights of a token's experts are divided by their sum"),
    LATHE_SPARSE_LAYER_FIELDS,
    LATHE_EXPERT_FIELDS("4", "0.001"),
};

static const lathe_model_type types[] = {{"qwen2_moe", "Qwen2MoeForCausalLM"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const int has_windows =
        lathe_key_int(k, "use_sliding_window") != 0 && lathe_key_int(k, "sliding_window") > 0;
    lathe_expert_layer *e = &d->experts;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    LATHE_TRY(lathe_decoder_use_experts(d, "num_experts"));
    LATHE_TRY(lathe_layer_types_check(
        k, d->info.n_layers, has_windows ? "full_attention|sliding_attention" : "full_attention",
        "expected full_attention, or sliding_attention with use_sliding_window and "
        "sliding_window"));
    e->router = "mlp.gate";
    e->ffn = lathe_key_int(k, "moe_intermediate_size");
    e->normalize = (int32_t)lathe_key_int(k, "norm_topk_prob");
    LATHE_EXPERT_NAMES(e, "mlp.experts.");
    LATHE_SHARED_NAMES(e, "mlp.shared_expert.");
    e->shared_score = "mlp.shared_expert_gate";
    e->shared_ffn = lathe_key_int(k, "shared_expert_intermediate_size");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        const int below = i % 2 == 0 && i < lathe_key_int(k, "max_window_layers");
        lathe_decoder_layer *l = &d->layers[i];
        l->qkv_bias = (int32_t)lathe_key_int(k, "qkv_bias");
        l->activation = lathe_key_activation(k, "hidden_act");
        if (lathe_layer_is(k, i, "sliding_attention", has_windows && below))
            d->shapes[i].window = (int32_t)lathe_key_int(k, "sliding_window");
    }
    return lathe_decoder_sparse_layers(d);
}

LATHE_DECODER_FAMILY(qwen2_moe, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Qwen2-MoE: a mixture of experts beside a gated MLP of all tokens",
                     .source = "arXiv:2407.10671; transformers", .license = "Apache-2.0");
