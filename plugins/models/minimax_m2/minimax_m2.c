/* MiniMax-M2: Llama with a mixture of experts that are chosen by sigmoid and a correction, RMSNorm
 * over all heads of q together and of k together, and partial rotary positions. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("minimax_m2", "false"),
    LATHE_DECODER_FIELDS_OF(
        "196608",
        LATHE_FIELD_INT("num_key_value_heads", "8", 1, 65536.0, "heads", "key and value heads"),
        LATHE_HEAD_DIM_FIELD("128", "size of a head, whatever the width")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("5000000.0"),
    LATHE_POSITIVE("partial_rotary_factor", NULL, 1.0,
                   "share of the channels of each head that are rotated, from the first on; unset: "
                   "as rotary_dim says"),
    LATHE_FIELD_INT("rotary_dim", NULL, 2, 1024.0, "channels",
                    "channels of each head that are rotated, from the first on; unset: all"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", LATHE_ACTIVATIONS, "activation of the experts"),
    LATHE_FIELD_INT("num_local_experts", "256", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_FLOAT("router_jitter_noise", "0.0", 0.0, 1.0, "1",
                      "noise on the input of the router in training; only 0 is supported"),
    LATHE_EXPERT_FIELDS("8", "0.001"),
};

static const lathe_model_type types[] = {{"minimax_m2", "MiniMaxM2ForCausalLM"}};
static const lathe_key_alias aliases[] = {{"num_local_experts", "num_experts"}};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, LATHE_QK_NORM_NAMES,
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    lathe_expert_layer *e = &d->experts;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 5000000.0);
    const double head = (double)d->shapes[0].head_dim;
    lathe_decoder_partial_rope(
        d, "partial_rotary_factor",
        lathe_key_is_set(k, "rotary_dim") ? lathe_key_float(k, "rotary_dim") / head : 1.0);
    LATHE_TRY(lathe_decoder_use_experts(d, "num_local_experts"));
    LATHE_TRY(lathe_key_only(k, "router_jitter_noise", 0.0,
                             "noise on the router's input is not supported; set it to 0"));
    e->router = "block_sparse_moe.gate";
    e->correction = "block_sparse_moe.e_score_correction_bias";
    e->gate = "block_sparse_moe.experts.w1";
    e->up = "block_sparse_moe.experts.w3";
    e->down = "block_sparse_moe.experts.w2";
    e->ffn = d->info.ffn;
    e->sigmoid = 1;
    e->normalize = 1;
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        d->layers[i].names = &names;
        d->layers[i].whole_qk_norm = 1;
        d->layers[i].activation = lathe_key_activation(k, "hidden_act");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(minimax_m2, types, aliases, 1, read, .version = "1.0.0",
                     .summary = "MiniMax-M2: experts chosen by sigmoid and a correction",
                     .source = "MiniMax 2025, MiniMax-M2; transformers", .license = "Apache-2.0");
