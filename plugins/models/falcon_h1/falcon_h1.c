/* Falcon-H1: each layer has the state space of Mamba-2 and attention side by side, with factors of
 * nearly everything. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("falcon_h1", "false"),
    LATHE_DECODER_FIELDS_OF(
        "8192", LATHE_KV_HEADS_FIELD("8"),
        LATHE_HEAD_DIM_FIELD(NULL, "size of a head; unset: hidden_size / num_attention_heads")),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", LATHE_ACTIVATIONS,
                       "activation of MLP and convolution"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_FIELD_BOOL("mlp_bias", "false", "biases in the MLP"),
    LATHE_FIELD_BOOL("projectors_bias", "false", "bias of the state space's output projection"),
    LATHE_MAMBA_FIELDS,
    {"mamba_d_ssm", LATHE_T_INT, LATHE_FIELD_REQUIRED | LATHE_FIELD_NULLABLE, NULL, 1, 1048576.0,
     NULL, "channels", "channels of a state space; null: mamba_expand times hidden_size"},
    LATHE_FIELD_INT("mamba_expand", "2", 1, 1024.0, "1",
                    "channels of a state space for each of hidden_size, without mamba_d_ssm"),
    LATHE_FIELD_BOOL("mamba_rms_norm", "false", "norm of the state space's output"),
    {"mamba_norm_before_gate", LATHE_T_BOOL, LATHE_FIELD_NULLABLE, "true", LATHE_NO_RANGE, NULL,
     NULL, "with mamba_rms_norm: the norm comes before the gate, not after it; null: after it"},
    {"num_logits_to_keep", LATHE_T_INT, LATHE_FIELD_NULLABLE, "1", 0, 2147483647.0, NULL, "tokens",
     "changes nothing: a setting of generation in older versions of transformers"},
    LATHE_POSITIVE("lm_head_multiplier", "1.0", 1e9, "factor of the logits"),
    LATHE_POSITIVE("embedding_multiplier", "1.0", 1e9, "factor of the token embeddings"),
    LATHE_POSITIVE("key_multiplier", "1.0", 1e9, "factor of the keys"),
    LATHE_POSITIVE("attention_in_multiplier", "1.0", 1e9, "factor of what the attention reads"),
    LATHE_POSITIVE("attention_out_multiplier", "1.0", 1e9, "factor of the attention's output"),
    LATHE_POSITIVE("ssm_in_multiplier", "1.0", 1e9, "factor of what the state space reads"),
    LATHE_POSITIVE("ssm_out_multiplier", "1.0", 1e9, "factor of the state space's output"),
    {"ssm_multipliers", LATHE_T_FLOAT_LIST, LATHE_FIELD_MIN_EXCLUSIVE, NULL, 0.0, 1e9, NULL, "1",
     "factors of z, x, B, C and dt after the state space's projection; unset: 1"},
    {"mlp_multipliers", LATHE_T_FLOAT_LIST, LATHE_FIELD_MIN_EXCLUSIVE, NULL, 0.0, 1e9, NULL, "1",
     "factors of gate, before the activation, and of the MLP's output; unset: 1"},
};

static const lathe_model_type types[] = {{"falcon_h1", "FalconH1ForCausalLM"}};

static const lathe_layer_names names = {.q = "self_attn.q_proj",
                                        .k = "self_attn.k_proj",
                                        .v = "self_attn.v_proj",
                                        .o = "self_attn.o_proj",
                                        .gate = "feed_forward.gate_proj",
                                        .up = "feed_forward.up_proj",
                                        .down = "feed_forward.down_proj",
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "pre_ff_layernorm"};

static lathe_status read_mamba(lathe_decoder *d, const lathe_keys *k)
{
    lathe_mamba_layer *m = &d->mamba;
    const lathe_value *factors = lathe_key(k, "ssm_multipliers");
    const int64_t expanded = lathe_key_int(k, "mamba_expand") * d->info.width;
    LATHE_TRY(lathe_decoder_read_mamba(d, lathe_key_fill(k, "mamba_d_ssm", expanded)));
    m->beside = 1;
    m->out_bias = (int32_t)lathe_key_int(k, "projectors_bias");
    m->norm = !lathe_key_int(k, "mamba_rms_norm")          ? LATHE_MAMBA_NO_NORM
              : lathe_key_int(k, "mamba_norm_before_gate") ? LATHE_MAMBA_NORM_FIRST
                                                           : LATHE_MAMBA_GATE_FIRST;
    m->in_factor = lathe_key_float(k, "ssm_in_multiplier");
    m->out_factor = lathe_key_float(k, "ssm_out_multiplier");
    if (factors->is_set && factors->n != 5)
        return lathe_key_refuse(k, "ssm_multipliers", "expected five numbers");
    for (int i = 0; i < 5 && factors->is_set; i++)
        m->factors[i] = factors->nums[i];
    return LATHE_OK;
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const lathe_value *mlp = lathe_key(k, "mlp_multipliers");
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    LATHE_TRY(read_mamba(d, k));
    if (mlp->is_set && mlp->n != 2)
        return lathe_key_refuse(k, "mlp_multipliers", "expected two numbers");
    d->final_norm = "model.final_layernorm";
    d->embed_scale = lathe_key_float(k, "embedding_multiplier");
    d->info.head_scale = lathe_key_float(k, "lm_head_multiplier");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names;
        l->mamba = &d->mamba;
        l->attention_scale =
            (float)(lathe_key_float(k, "key_multiplier") / sqrt((double)d->shapes[i].head_dim));
        l->attention_in_scale = (float)lathe_key_float(k, "attention_in_multiplier");
        l->attention_out_scale = (float)lathe_key_float(k, "attention_out_multiplier");
        l->gate_scale = mlp->is_set ? (float)mlp->nums[0] : 1.0f;
        l->down_scale = mlp->is_set ? (float)mlp->nums[1] : 1.0f;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
        l->mlp_bias = (int32_t)lathe_key_int(k, "mlp_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(falcon_h1, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Falcon-H1: Mamba-2 and attention side by side",
                     .source = "arXiv:2507.22448, arXiv:2405.21060; transformers",
                     .license = "Apache-2.0");
