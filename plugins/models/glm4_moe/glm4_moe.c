/* GLM-4.5: Llama with partial rotary positions, and from some layer on a mixture of experts beside
 * an MLP that all tokens pass; the router is DeepSeek-V3's. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("glm4_moe", "false"),
    LATHE_DECODER_FIELDS_OF(
        "131072",
        LATHE_FIELD_INT("num_key_value_heads", "8", 1, 65536.0, "heads", "key and value heads"),
        LATHE_HEAD_DIM_FIELD(NULL, "size of a head; unset: hidden_size / num_attention_heads")),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    {"partial_rotary_factor", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_NULLABLE,
     "0.5", 0.0, 1.0, NULL, "1",
     "share of the channels of each head that are rotated, from the first on; null: all"},
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", LATHE_ACTIVATIONS,
                       "activation of MLP and experts"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases on q, k and v"),
    LATHE_FIELD_BOOL("use_qk_norm", "false", "RMSNorm over each head of q and k"),
    LATHE_FIELD_INT("n_routed_experts", "128", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_INT("num_experts_per_tok", "8", 1, 65536.0, "experts",
                    "experts that compute each token"),
    LATHE_FIELD_INT("moe_intermediate_size", "1408", 1, 16777216.0, "channels",
                    "width inside an expert"),
    LATHE_FIELD_INT("n_shared_experts", "1", 1, 65536.0, "experts",
                    "the MLP of all tokens is as wide as so many experts"),
    LATHE_FIELD_INT("first_k_dense_replace", "1", 0, 10000.0, "layers",
                    "so many layers, from the first on, have an MLP"),
    LATHE_GROUPED_ROUTER_FIELDS("1", "1", "1.0"),
};

static const lathe_model_type types[] = {{"glm4_moe", "Glm4MoeForCausalLM"}};
static const lathe_key_alias aliases[] = {{"n_routed_experts", "num_local_experts"},
                                          {"num_nextn_predict_layers", "num_mtp_layers"}};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};
static const lathe_layer_names normed_names = {LATHE_LINEAR_NAMES, LATHE_QK_NORM_NAMES,
                                               .attention_norm = "input_layernorm",
                                               .mlp_norm = "post_attention_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    lathe_expert_layer *e = &d->experts;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    lathe_decoder_partial_rope(d, "partial_rotary_factor",
                               lathe_key_is_set(k, "partial_rotary_factor") ? 0.5 : 1.0);
    LATHE_TRY(lathe_decoder_use_experts(d, "n_routed_experts"));
    LATHE_TRY(lathe_decoder_use_groups(d));
    lathe_decoder_dense_first(d, lathe_key_int(k, "first_k_dense_replace"));
    e->ffn = lathe_key_int(k, "moe_intermediate_size");
    e->shared_ffn = e->ffn * lathe_key_int(k, "n_shared_experts");
    e->router = "mlp.gate";
    e->correction = "mlp.gate.e_score_correction_bias";
    LATHE_EXPERT_NAMES(e, "mlp.experts.");
    LATHE_SHARED_NAMES(e, "mlp.shared_experts.");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = lathe_key_int(k, "use_qk_norm") ? &normed_names : &names;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(glm4_moe, types, aliases, 2, read, .version = "1.0.0",
                     .summary = "GLM-4.5: a mixture of experts with DeepSeek-V3's router",
                     .source = "arXiv:2508.06471; transformers", .license = "Apache-2.0");
