/* Gemma: norms that multiply by 1+w, an embedding scaled by the root of the width, gated tanh-GELU.
 */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("gemma", "true"),
    LATHE_DECODER_FIELDS_OF("8192", LATHE_KV_HEADS_FIELD("16"),
                            LATHE_HEAD_DIM_FIELD("256", "size of a head, whatever the width")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"gelu_pytorch_tanh\"", LATHE_ACTIVATIONS,
                       "activation of the MLP; gelu means the tanh form, as in transformers"),
    LATHE_FIELD_STRING("hidden_activation", NULL, NULL,
                       "changes nothing: transformers reads hidden_act"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_FIELD_BOOL("use_bidirectional_attention", "false", "only false is supported"),
};

static const lathe_model_type types[] = {{"gemma", "GemmaForCausalLM"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    int32_t activation = lathe_key_activation(k, "hidden_act");
    LATHE_TRY(lathe_decoder_shape(d, 0));
    LATHE_TRY(lathe_key_only(k, "use_bidirectional_attention", 0.0, "only false is supported"));
    lathe_decoder_rope(d, 10000.0);
    d->embed_scale = sqrt((double)d->info.width);
    /* early files name the exact form, but the models were trained with the other one */
    if (activation == LATHE_ACT_GELU)
        activation = LATHE_ACT_GELU_TANH;
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->norm_offset_one = 1;
        l->activation = activation;
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(gemma, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Gemma: norms of 1+w, scaled embedding, gated tanh-GELU",
                     .source = "arXiv:2403.08295; transformers", .license = "Apache-2.0");
