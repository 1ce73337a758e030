/* ERNIE 4.5, the mixtures of experts: Llama with interleaved rotary positions and, in some layers,
 * experts that are chosen by softmax and a correction, beside an MLP that all tokens pass. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("ernie4_5_moe", "true"),
    LATHE_DECODER_FIELDS_OF(
        "131072",
        LATHE_FIELD_INT("num_key_value_heads", "4", 1, 65536.0, "heads", "key and value heads"),
        LATHE_HEAD_DIM_FIELD(NULL, "size of a head; unset: hidden_size / num_attention_heads")),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("500000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", LATHE_ACTIVATIONS,
                       "activation of MLP and experts"),
    LATHE_FIELD_BOOL("use_bias", "false",
                     "biases in all projections but those of experts, and of the head"),
    LATHE_FIELD_INT("moe_num_experts", "64", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_INT("moe_intermediate_size", "1536", 1, 16777216.0, "channels",
                    "width inside an expert"),
    LATHE_FIELD_INT("moe_num_shared_experts", "2", 0, 65536.0, "experts",
                    "the MLP of all tokens is as wide as so many experts; 0: there is none"),
    LATHE_FIELD_INT("moe_layer_start_index", "1", 0, 10000.0, "layers",
                    "first layer, from 0 on, that may have experts"),
    LATHE_FIELD_INT("moe_layer_end_index", "-1", -1, 10000.0, "layers",
                    "last layer that may have experts; -1: the last of the model"),
    LATHE_FIELD_INT("moe_layer_interval", "1", 1, 10000.0, "layers",
                    "layers n, 2n, 3n, .. (counted from 1) have experts, the others an MLP"),
    LATHE_FIELD_FLOAT("moe_norm_min", "1e-12", 0.0, 1e6, "1",
                      "least value of the sum by which the weights of a token's experts are "
                      "divided"),
    LATHE_FIELD_INT("num_nextn_predict_layers", "0", 0, 10000.0, "layers",
                    "layers of multi-token prediction after the others; they are not computed, and "
                    "not saved"),
    LATHE_EXPERT_FIELDS("6", "0.001"),
};

static const lathe_model_type types[] = {{"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"}};
static const lathe_key_alias aliases[] = {{"moe_num_experts", "num_experts"},
                                          {"num_experts_per_tok", "moe_k"}};

static int has_experts(const lathe_decoder *d, const lathe_keys *k, int64_t layer)
{
    const int64_t end = lathe_key_int(k, "moe_layer_end_index");
    const int64_t interval = lathe_key_int(k, "moe_layer_interval");
    return interval > 0 && (layer + 1) % interval == 0 &&
           layer >= lathe_key_int(k, "moe_layer_start_index") &&
           layer <= (end < 0 ? d->info.n_layers - 1 : end);
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const int64_t shared = lathe_key_int(k, "moe_num_shared_experts");
    const int32_t bias = (int32_t)lathe_key_int(k, "use_bias");
    lathe_expert_layer *e = &d->experts;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 500000.0);
    LATHE_TRY(lathe_decoder_use_experts(d, "moe_num_experts"));
    e->router = "mlp.gate";
    e->correction = "mlp.moe_statics.e_score_correction_bias";
    e->correction_layout = LATHE_LAYOUT_ROW;
    e->ffn = lathe_key_int(k, "moe_intermediate_size");
    e->normalize = 1;
    e->sum_least = lathe_key_float(k, "moe_norm_min");
    LATHE_EXPERT_NAMES(e, "mlp.experts.");
    if (shared > 0)
        LATHE_SHARED_NAMES(e, "mlp.shared_experts.");
    e->shared_ffn = e->ffn * shared;
    e->shared_bias = bias;
    d->info.head_bias = bias ? "lm_head.bias" : NULL;
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->interleaved = 1;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = l->mlp_bias = bias;
        if (!has_experts(d, k, i))
            l->experts = NULL;
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(ernie4_5_moe, types, aliases, 2, read, .version = "1.0.0",
                     .summary = "ERNIE 4.5: experts chosen by softmax and a correction",
                     .source = "Baidu 2025, ERNIE 4.5 Technical Report; transformers",
                     .license = "Apache-2.0");
