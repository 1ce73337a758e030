/* DeepSeek-V3 and Kimi K2: latent attention, and from some layer on a mixture of experts beside an
 * MLP that all tokens pass. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("deepseek_v3|kimi_k2", "false"),
    LATHE_DECODER_FIELDS_OF(
        "4096", LATHE_KV_HEADS_FIELD("128"),
        LATHE_HEAD_DIM_FIELD(NULL, "rotated channels of a head; only qk_rope_head_dim")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_LATENT_FIELDS("1536"),
    LATHE_NULLABLE_BOOL("rope_interleave", "true", "channels 2i and 2i+1 rotate together"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", LATHE_ACTIVATIONS,
                       "activation of MLP and experts"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases on q_a, kv_a and o"),
    LATHE_FIELD_INT("n_routed_experts", "256", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_INT("num_experts_per_tok", "8", 1, 65536.0, "experts",
                    "experts that compute each token"),
    LATHE_FIELD_INT("moe_intermediate_size", "2048", 1, 16777216.0, "channels",
                    "width inside an expert"),
    LATHE_FIELD_INT("n_shared_experts", "1", 1, 65536.0, "experts",
                    "the MLP of all tokens is as wide as so many experts"),
    LATHE_FIELD_INT("first_k_dense_replace", "3", 0, 10000.0, "layers",
                    "so many layers, from the first on, have an MLP"),
    LATHE_GROUPED_ROUTER_FIELDS_OF("8", "4", "2.5",
                                   LATHE_NULLABLE_BOOL("norm_topk_prob", "true",
                                                       "the weights of a token's experts are "
                                                       "divided by their sum")),
    LATHE_FIELD_STRING("scoring_func", "\"sigmoid\"", "sigmoid", "function of the router's scores"),
    LATHE_FIELD_STRING("topk_method", "\"noaux_tc\"", "noaux_tc", "how experts are chosen"),
    LATHE_FIELD_INT("moe_layer_freq", "1", 1, 1, "layers", "layers of experts follow each other"),
};

static const lathe_model_type types[] = {{"deepseek_v3", "DeepseekV3ForCausalLM"},
                                         {"kimi_k2", "DeepseekV3ForCausalLM"}};
static const lathe_key_alias aliases[] = {{"n_routed_experts", "num_local_experts"},
                                          {"num_nextn_predict_layers", "num_mtp_layers"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    lathe_expert_layer *e = &d->experts;
    LATHE_TRY(lathe_decoder_use_latent(d, 10000.0));
    LATHE_TRY(lathe_decoder_use_experts(d, "n_routed_experts"));
    LATHE_TRY(lathe_decoder_use_groups(d));
    lathe_decoder_dense_first(d, lathe_key_int(k, "first_k_dense_replace"));
    e->ffn = lathe_key_int(k, "moe_intermediate_size");
    e->shared_ffn = e->ffn * lathe_key_int(k, "n_shared_experts");
    e->router = "mlp.gate";
    e->correction = "mlp.gate.e_score_correction_bias";
    LATHE_EXPERT_NAMES(e, "mlp.experts.");
    LATHE_SHARED_NAMES(e, "mlp.shared_experts.");
    d->latent.bias = (int32_t)lathe_key_int(k, "attention_bias");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        d->layers[i].activation = lathe_key_activation(k, "hidden_act");
        d->layers[i].interleaved = (int32_t)lathe_key_int(k, "rope_interleave");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(deepseek_v3, types, aliases, 2, read, .version = "1.0.0",
                     .summary = "DeepSeek-V3, Kimi K2: latent attention, a mixture of experts",
                     .source = "arXiv:2412.19437; transformers", .license = "Apache-2.0");
