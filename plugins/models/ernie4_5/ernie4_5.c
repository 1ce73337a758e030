/* ERNIE 4.5, the dense models: Llama with interleaved rotary positions. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("ernie4_5", "true"),
    LATHE_DECODER_FIELDS_OF("131072", LATHE_KV_HEADS_FIELD("2"), LATHE_NULL_HEAD_DIM_FIELD("128")),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("500000.0"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("use_bias", "false", "biases in all projections"),
};

static const lathe_model_type types[] = {{"ernie4_5", "Ernie4_5ForCausalLM"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 500000.0);
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->interleaved = 1;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = l->mlp_bias = (int32_t)lathe_key_int(k, "use_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(ernie4_5, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "ERNIE 4.5 (dense): Llama with interleaved rotary positions",
                     .source = "Baidu 2025, ERNIE 4.5 Technical Report; transformers",
                     .license = "Apache-2.0");
