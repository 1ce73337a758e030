/* Hunyuan, the dense models: Llama with RMSNorm over each head of q and k after the rotation, and
 * rotary frequencies of a base that alpha enlarges. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("hunyuan_v1_dense", "false"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
};

static const lathe_model_type types[] = {{"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"}};

static const lathe_layer_names names = {
    LATHE_LINEAR_NAMES, .q_norm = "self_attn.query_layernorm", .k_norm = "self_attn.key_layernorm",
    .attention_norm = "input_layernorm", .mlp_norm = "post_attention_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    d->ropes[0].flags = LATHE_ROPE_ALPHA;
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names;
        l->qk_norm_last = 1;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(hunyuan, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Hunyuan (dense): queries and keys normed after the rotation",
                     .source = "Tencent 2025, Hunyuan-7B; transformers", .license = "Apache-2.0");
