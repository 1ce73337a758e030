/* Command R: attention and MLP in parallel behind one LayerNorm without bias, interleaved rotary
 * positions, scaled logits. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("cohere", "true"),
    LATHE_DECODER_FIELDS("8192"),
    LATHE_POSITIVE("layer_norm_eps", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_ROPE_FIELDS("500000.0"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_FIELD_BOOL("use_qk_norm", "false",
                     "LayerNorm of queries and keys (Command R+); only false is supported"),
    LATHE_POSITIVE("logit_scale", "0.0625", 1e9, "factor of the logits"),
};

static const lathe_model_type types[] = {{"cohere", "CohereForCausalLM"}};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, .attention_norm = "input_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    LATHE_TRY(lathe_key_only(k, "use_qk_norm", 0.0, "only false is supported"));
    lathe_decoder_rope(d, 500000.0);
    d->norm_eps = lathe_key_float(k, "layer_norm_eps");
    d->info.head_scale = lathe_key_float(k, "logit_scale");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names;
        l->norm = LATHE_OP_LAYERNORM;
        l->norm_no_bias = l->parallel = l->interleaved = 1;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(cohere, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Command R: parallel block, LayerNorm without bias",
                     .source = "Cohere 2024, c4ai-command-r-v01; transformers",
                     .license = "Apache-2.0");
