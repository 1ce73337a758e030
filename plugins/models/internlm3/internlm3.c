/* InternLM3: Llama with names of its own for the keys of the biases. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("internlm3", "false"),
    LATHE_DECODER_FIELDS_OF("32768", LATHE_KV_HEADS_FIELD("2"), LATHE_NULL_HEAD_DIM_FIELD("128")),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("attention_bias", "false",
                     "biases in the attention projections (qkv_bias in published files)"),
    LATHE_FIELD_BOOL("mlp_bias", "false",
                     "biases in the MLP (bias in published files); as attention_bias"),
};

static const lathe_model_type types[] = {{"internlm3", "InternLM3ForCausalLM"}};
static const lathe_key_alias aliases[] = {{"attention_bias", "qkv_bias"}, {"mlp_bias", "bias"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const int32_t bias = (int32_t)lathe_key_int(k, "attention_bias");
    LATHE_TRY(lathe_decoder_shape(d, 0));
    LATHE_TRY(lathe_key_only(k, "mlp_bias", (double)bias,
                             "expected the value of attention_bias (qkv_bias), as in transformers: "
                             "one key stands for the biases of all projections"));
    lathe_decoder_rope(d, 10000.0);
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = l->mlp_bias = bias;
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(internlm3, types, aliases, LATHE_N_FIELDS(aliases), read, .version = "1.0.0",
                     .summary = "InternLM3: Llama with names of its own for two keys",
                     .source = "Shanghai AI Laboratory 2025, InternLM3-8B; transformers",
                     .license = "Apache-2.0");
