/* Granite 3: Llama with four multipliers: of the embedding, the attention scores, what each module
 * adds to the residual stream, and the logits. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("granite", "false"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_FIELD_BOOL("mlp_bias", "false", "biases in the MLP"),
    LATHE_POSITIVE("embedding_multiplier", "1.0", 1e9, "factor of the token embeddings"),
    LATHE_POSITIVE("attention_multiplier", "1.0", 1e9, "factor of the attention scores"),
    LATHE_POSITIVE("residual_multiplier", "1.0", 1e9,
                   "factor of attention and MLP before they are added to the residual stream"),
    LATHE_POSITIVE("logits_scaling", "1.0", 1e9, "logits are divided by it"),
};

static const lathe_model_type types[] = {{"granite", "GraniteForCausalLM"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    d->embed_scale = lathe_key_float(k, "embedding_multiplier");
    d->info.head_scale = 1.0 / lathe_key_float(k, "logits_scaling");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->attention_scale = (float)lathe_key_float(k, "attention_multiplier");
        l->residual_scale = (float)lathe_key_float(k, "residual_multiplier");
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
        l->mlp_bias = (int32_t)lathe_key_int(k, "mlp_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(granite, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Granite 3: Llama with four multipliers",
                     .source = "Granite 3.0 Language Models, IBM 2024; transformers",
                     .license = "Apache-2.0");
