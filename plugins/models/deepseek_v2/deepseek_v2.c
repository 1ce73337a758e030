/* DeepSeek-V2-Lite: latent attention, and from some layer on a mixture of experts, chosen by
 * softmax, beside an MLP that all tokens pass. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("deepseek_v2", "false"),
    LATHE_DECODER_FIELDS_OF("2048",
                            LATHE_FIELD_INT("num_key_value_heads", NULL, 1, 65536.0, "heads",
                                            "only num_attention_heads; unset: as many")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_LATENT_FIELDS("1536"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", LATHE_ACTIVATIONS,
                       "activation of MLP and experts"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases on q_a, kv_a and o"),
    LATHE_FIELD_BOOL("mlp_bias", "false", "biases of the MLP, not of experts"),
    LATHE_FIELD_INT("n_routed_experts", "64", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_REQUIRED_INT("num_experts_per_tok", 1, 65536.0, "experts",
                       "experts that compute each token"),
    LATHE_FIELD_INT("moe_intermediate_size", "1407", 1, 16777216.0, "channels",
                    "width inside an expert"),
    LATHE_FIELD_INT("n_shared_experts", "2", 1, 65536.0, "experts",
                    "the MLP of all tokens is as wide as so many experts"),
    LATHE_FIELD_INT("first_k_dense_replace", "0", 0, 10000.0, "layers",
                    "so many layers, from the first on, have an MLP"),
    LATHE_POSITIVE("routed_scaling_factor", "1.0", 1e6, "factor of the weights of the experts"),
    LATHE_FIELD_BOOL("norm_topk_prob", "false", "only false, as DeepSeek's models have it"),
    LATHE_FIELD_STRING("topk_method", "\"greedy\"", "greedy",
                       "how experts are chosen; group_limited_greedy is not supported"),
    LATHE_FIELD_INT("n_group", NULL, 0, 65536.0, "groups", "changes nothing with greedy"),
    LATHE_FIELD_INT("topk_group", NULL, 0, 65536.0, "groups", "changes nothing with greedy"),
    LATHE_FIELD_STRING("scoring_func", "\"softmax\"", "softmax", "function of the router's scores"),
    LATHE_FIELD_INT("moe_layer_freq", "1", 1, 1, "layers", "layers of experts follow each other"),
    LATHE_FIELD_BOOL("output_router_logits", "false",
                     "changes nothing: moe.balance_loss adds a load balancing loss"),
};

static const lathe_model_type types[] = {{"deepseek_v2", "DeepseekV2ForCausalLM"}};
static const lathe_key_alias aliases[] = {{"n_routed_experts", "num_experts"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    lathe_expert_layer *e = &d->experts;
    const int32_t mlp_bias = (int32_t)lathe_key_int(k, "mlp_bias");
    if (lathe_key_int(k, "norm_topk_prob"))
        return lathe_key_refuse(k, "norm_topk_prob", "only false is supported");
    LATHE_TRY(lathe_decoder_use_latent(d, 10000.0));
    if (d->info.width % d->shapes[0].n_heads != 0) /* as in transformers */
        return lathe_key_refuse(k, "hidden_size", "it must be a multiple of num_attention_heads");
    LATHE_TRY(lathe_decoder_use_experts(d, "n_routed_experts"));
    lathe_decoder_dense_first(d, lathe_key_int(k, "first_k_dense_replace"));
    e->ffn = lathe_key_int(k, "moe_intermediate_size");
    e->shared_ffn = e->ffn * lathe_key_int(k, "n_shared_experts");
    e->shared_bias = mlp_bias;
    e->weight_scale = lathe_key_float(k, "routed_scaling_factor");
    e->router = "mlp.gate";
    LATHE_EXPERT_NAMES(e, "mlp.experts.");
    LATHE_SHARED_NAMES(e, "mlp.shared_experts.");
    d->latent.bias = (int32_t)lathe_key_int(k, "attention_bias");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        d->layers[i].activation = lathe_key_activation(k, "hidden_act");
        d->layers[i].interleaved = 1;
        d->layers[i].mlp_bias = mlp_bias;
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(deepseek_v2, types, aliases, 1, read, .version = "1.0.0",
                     .summary = "DeepSeek-V2-Lite: latent attention, a mixture of experts",
                     .source = "arXiv:2405.04434; transformers", .license = "Apache-2.0");
