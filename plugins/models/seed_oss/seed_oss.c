/* Seed-OSS: Llama with biases on q, k and v. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("seed_oss", "false"),
    LATHE_REQUIRED_INT("hidden_size", 1, 1048576.0, "channels", "width of the residual stream"),
    LATHE_REQUIRED_INT("intermediate_size", 1, 16777216.0, "channels", "width inside the MLP"),
    LATHE_REQUIRED_INT("num_hidden_layers", 1, 10000.0, "layers", "number of layers"),
    LATHE_REQUIRED_INT("num_attention_heads", 1, 65536.0, "heads", "query heads"),
    LATHE_KV_HEADS_FIELD("8"),
    LATHE_NULL_HEAD_DIM_FIELD("128"),
    LATHE_FIELD_INT("max_position_embeddings", "524288", 1, LATHE_ANY_POSITIONS, "tokens",
                    "longest sequence"),
    LATHE_FIELD_FLOAT("attention_dropout", "0.1", 0.0, 1.0, "1",
                      "dropout of the attention weights; training applies none"),
    LATHE_FIELD_FLOAT("residual_dropout", "0.1", 0.0, 1.0, "1",
                      "dropout of attention and MLP before the residual sums; training applies "
                      "none"),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("attention_bias", "true", "biases on q, k and v"),
    LATHE_FIELD_BOOL("attention_out_bias", "false", "a bias in the attention's output projection"),
    LATHE_FIELD_BOOL("mlp_bias", "false", "biases in the MLP"),
};

static const lathe_model_type types[] = {{"seed_oss", "SeedOssForCausalLM"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    lathe_decoder_dropout(d, "residual_dropout");
    d->info.warns_of_dropout = 1; /* the published models have 0.1 */
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = (int32_t)lathe_key_int(k, "attention_bias");
        l->out_bias = (int32_t)lathe_key_int(k, "attention_out_bias");
        l->mlp_bias = (int32_t)lathe_key_int(k, "mlp_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(seed_oss, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Seed-OSS: Llama with biases on q, k and v",
                     .source = "ByteDance Seed 2025, Seed-OSS-36B; transformers",
                     .license = "Apache-2.0");
