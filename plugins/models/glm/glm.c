/* GLM-4: interleaved rotary positions for a part of each head, one projection for gate and up,
 * biases on q, k and v; glm4 has norms after attention and MLP, too. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("glm|glm4", "false"),
    LATHE_DECODER_FIELDS_OF("131072", LATHE_KV_HEADS_FIELD("2"),
                            LATHE_HEAD_DIM_FIELD("128", "size of a head, whatever the width")),
    LATHE_POSITIVE("rms_norm_eps", "1.5625e-7", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    {"partial_rotary_factor", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_NULLABLE,
     "0.5", 0.0, 1.0, NULL, "1",
     "share of the channels of each head that are rotated, from the first on; null: all"},
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("attention_bias", "true", "biases on q, k and v"),
};

static const lathe_model_type types[] = {{"glm", "GlmForCausalLM"}, {"glm4", "Glm4ForCausalLM"}};

#define PROJECTIONS                                                                                \
    .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj",                     \
    .o = "self_attn.o_proj", .gate_up = "mlp.gate_up_proj", .down = "mlp.down_proj"

static const lathe_layer_names glm_names = {PROJECTIONS, .attention_norm = "input_layernorm",
                                            .mlp_norm = "post_attention_layernorm"};
static const lathe_layer_names glm4_names = {PROJECTIONS, .attention_norm = "input_layernorm",
                                             .attention_out_norm = "post_self_attn_layernorm",
                                             .mlp_norm = "post_attention_layernorm",
                                             .mlp_out_norm = "post_mlp_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const int is_glm4 = lathe_key_is(k, "model_type", "glm4");
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    lathe_decoder_partial_rope(d, "partial_rotary_factor",
                               lathe_key_is_set(k, "partial_rotary_factor") ? 0.5 : 1.0);
    d->norms_order = LATHE_NORMS_LAST_BY_PLACE;
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = is_glm4 ? &glm4_names : &glm_names;
        l->interleaved = 1;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(glm, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "GLM-4: interleaved partial rotary positions, fused gate and up",
                     .source = "arXiv:2406.12793; transformers", .license = "Apache-2.0");
