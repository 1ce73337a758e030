/* Qwen3.5-MoE: Qwen3.5 with a mixture of experts beside a gated MLP of all tokens, in all layers.
 */
#include <lathe/kit/decoder_family.h>
#include <lathe/kit/wrappers.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("qwen3_5_moe_text", "false"),
    LATHE_WIDTH_FIELD,
    LATHE_LAYER_FIELDS_OF("32768", LATHE_KV_HEADS_FIELD("2"),
                          LATHE_HEAD_DIM_FIELD("256", "size of a head, whatever the width")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    {"partial_rotary_factor", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_NULLABLE,
     "0.25", 0.0, 1.0, NULL, "1",
     "share of the channels of each head that are rotated, from the first on; null: all"},
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish",
                       "activation of the experts and of the convolution"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_DELTA_FIELDS,
    LATHE_FIELD_INT("num_experts", "256", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_INT("moe_intermediate_size", "512", 1, 16777216.0, "channels",
                    "width inside an expert"),
    LATHE_FIELD_INT("shared_expert_intermediate_size", "512", 1, 16777216.0, "channels",
                    "width inside the MLP of all tokens"),
    LATHE_EXPERT_FIELDS("8", "0.001"),
};

static const lathe_model_type types[] = {{"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"}};

/* Qwen3_5MoeTextConfig of transformers 5.24, where it is not the defaults of the fields. */
#define DEFAULTS                                                                                   \
    "{\"vocab_size\": 248320, \"hidden_size\": 2048, \"num_hidden_layers\": 40, "                  \
    "\"num_attention_heads\": 16}"
static const char *const defaults[] = {DEFAULTS};

static const lathe_model_wrapper wrappers[] = {
    {.model_type = "qwen3_5_moe",
     .architecture = "Qwen3_5MoeForConditionalGeneration",
     .text_key = "text_config",
     .serves = "qwen3_5_moe_text",
     .names = lathe_language_model_names,
     .n_names = LATHE_N_FIELDS(lathe_language_model_names),
     .flags = LATHE_WRAPPER_MROPE},
};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, LATHE_QK_NORM_NAMES,
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    lathe_expert_layer *e = &d->experts;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    lathe_decoder_partial_rope(d, "partial_rotary_factor",
                               lathe_key_is_set(k, "partial_rotary_factor") ? 0.25 : 1.0);
    LATHE_TRY(lathe_decoder_use_delta(d));
    LATHE_TRY(lathe_decoder_use_experts(d, "num_experts"));
    e->router = "mlp.gate";
    e->normalize = 1;
    LATHE_EXPERT_NAMES(e, "mlp.experts.");
    LATHE_SHARED_NAMES(e, "mlp.shared_expert.");
    e->shared_score = "mlp.shared_expert_gate";
    e->shared_ffn = lathe_key_int(k, "shared_expert_intermediate_size");
    e->ffn = d->info.ffn = lathe_key_int(k, "moe_intermediate_size");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names;
        l->norm_offset_one = l->gated_queries = 1;
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY_IN_WRAPPERS(qwen3_5_moe, types, defaults, wrappers, NULL, 0, read,
                                 .version = "1.0.0",
                                 .summary = "Qwen3.5-MoE: Qwen3.5 with a mixture of experts",
                                 .source = "arXiv:2412.06464; transformers",
                                 .license = "Apache-2.0");
