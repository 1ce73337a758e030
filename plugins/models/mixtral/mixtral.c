/* Mixtral: Mistral with a mixture of experts instead of the MLP. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("mixtral", "false"),
    LATHE_DECODER_FIELDS("131072"),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("1000000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish", "activation of the experts"),
    LATHE_WINDOW_FIELD(NULL, "keys that a query sees, itself included; null: all"),
    LATHE_FIELD_INT("num_local_experts", "8", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_FLOAT("router_jitter_noise", "0.0", 0.0, 1.0, "1",
                      "noise on the input of the router in training; only 0 is supported"),
    LATHE_EXPERT_FIELDS("2", "0.001"),
};

static const lathe_model_type types[] = {{"mixtral", "MixtralForCausalLM"}};
static const lathe_key_alias aliases[] = {{"num_local_experts", "num_experts"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 1000000.0);
    LATHE_TRY(lathe_decoder_use_experts(d, "num_local_experts"));
    LATHE_TRY(lathe_key_only(k, "router_jitter_noise", 0.0,
                             "noise on the router's input is not supported; set it to 0"));
    d->experts.router = "block_sparse_moe.gate";
    d->experts.gate = "block_sparse_moe.experts.w1";
    d->experts.up = "block_sparse_moe.experts.w3";
    d->experts.down = "block_sparse_moe.experts.w2";
    d->experts.ffn = d->info.ffn;
    d->experts.normalize = 1;
    for (int32_t i = 0; i < d->info.n_layers; i++)
        d->shapes[i].window = (int32_t)lathe_key_int(k, "sliding_window");
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(mixtral, types, aliases, 1, read, .version = "1.0.0",
                     .summary = "Mixtral: Mistral with a mixture of experts",
                     .source = "arXiv:2401.04088; transformers", .license = "Apache-2.0");
