/* Qwen3-Next: linear attention by the gated delta rule in most layers, attention whose output has a
 * gate in the others, and a mixture of experts beside a gated MLP of all tokens. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("qwen3_next", "false"),
    LATHE_DECODER_FIELDS_OF("32768", LATHE_KV_HEADS_FIELD("2"),
                            LATHE_HEAD_DIM_FIELD("256", "size of a head, whatever the width")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    {"partial_rotary_factor", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_NULLABLE,
     "0.25", 0.0, 1.0, NULL, "1",
     "share of the channels of each head that are rotated, from the first on; null: all"},
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish",
                       "activation of MLP, experts and convolution"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_DELTA_FIELDS,
    LATHE_FIELD_INT("num_experts", "512", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_INT("moe_intermediate_size", "512", 1, 16777216.0, "channels",
                    "width inside an expert"),
    LATHE_FIELD_INT("shared_expert_intermediate_size", "512", 1, 16777216.0, "channels",
                    "width inside the MLP of all tokens"),
    LATHE_FIELD_BOOL("norm_topk_prob", "true",
                     "the weights of a token's experts are divided by their sum"),
    LATHE_SPARSE_LAYER_FIELDS,
    LATHE_EXPERT_FIELDS("10", "0.001"),
};

static const lathe_model_type types[] = {{"qwen3_next", "Qwen3NextForCausalLM"}};

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
    d->delta.fused = 1;
    LATHE_TRY(lathe_decoder_use_experts(d, "num_experts"));
    e->router = "mlp.gate";
    e->ffn = lathe_key_int(k, "moe_intermediate_size");
    e->normalize = (int32_t)lathe_key_int(k, "norm_topk_prob");
    LATHE_EXPERT_NAMES(e, "mlp.experts.");
    LATHE_SHARED_NAMES(e, "mlp.shared_expert.");
    e->shared_score = "mlp.shared_expert_gate";
    e->shared_ffn = lathe_key_int(k, "shared_expert_intermediate_size");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names;
        l->norm_offset_one = l->gated_queries = 1;
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return lathe_decoder_sparse_layers(d);
}

LATHE_DECODER_FAMILY(qwen3_next, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Qwen3-Next: linear and gated attention, a mixture of experts",
                     .source = "arXiv:2412.06464; transformers", .license = "Apache-2.0");
