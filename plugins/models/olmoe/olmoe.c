/* OLMoE: Llama with a mixture of experts, and with RMSNorm over all heads of q together and of k
 * together. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("olmoe", "false"),
    LATHE_DECODER_FIELDS("4096"),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish", "activation of the experts"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_POSITIVE("clip_qkv", NULL, 1e9,
                   "bound of queries, keys and values; only null, for none, is supported"),
    LATHE_FIELD_INT("num_experts", "64", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_BOOL("norm_topk_prob", "false",
                     "the weights of a token's experts are divided by their sum"),
    LATHE_EXPERT_FIELDS("8", "0.01"),
};

static const lathe_model_type types[] = {{"olmoe", "OlmoeForCausalLM"}};
static const lathe_key_alias aliases[] = {{"num_experts", "num_local_experts"}};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, LATHE_QK_NORM_NAMES,
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    LATHE_TRY(lathe_decoder_use_experts(d, "num_experts"));
    if (lathe_key_is_set(k, "clip_qkv"))
        return lathe_key_refuse(k, "clip_qkv", "only null is supported");
    d->experts.router = "mlp.gate";
    LATHE_EXPERT_NAMES(&d->experts, "mlp.experts.");
    d->experts.ffn = d->info.ffn;
    d->experts.normalize = (int32_t)lathe_key_int(k, "norm_topk_prob");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names;
        l->whole_qk_norm = 1;
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(olmoe, types, aliases, 1, read, .version = "1.0.0",
                     .summary = "OLMoE: a mixture of experts, normed queries and keys",
                     .source = "arXiv:2409.02060; transformers", .license = "Apache-2.0");
