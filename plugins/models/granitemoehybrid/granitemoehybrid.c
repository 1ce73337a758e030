/* Granite 4: Granite whose layers have the state space of Mamba-2 or attention, and an MLP that all
 * tokens pass, beside a mixture of experts or alone. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("granitemoehybrid", "false"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    {"position_embedding_type", LATHE_T_STRING, LATHE_FIELD_NULLABLE, NULL, LATHE_NO_RANGE,
     "rope|nope", NULL, "rope: rotary positions in the attention; nope, or null: none"},
    LATHE_FIELD_STRINGS("layer_types",
                        "mamba or attention for each layer, or linear_attention or full_attention; "
                        "unset: all mamba"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", LATHE_ACTIVATIONS,
                       "activation of MLP, experts and convolution"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_POSITIVE("embedding_multiplier", "1.0", 1e9, "factor of the token embeddings"),
    LATHE_POSITIVE("attention_multiplier", "1.0", 1e9, "factor of the attention scores"),
    LATHE_POSITIVE("residual_multiplier", "1.0", 1e9,
                   "factor of each module before it is added to the residual stream"),
    LATHE_POSITIVE("logits_scaling", "1.0", 1e9, "logits are divided by it"),
    LATHE_MAMBA_FIELDS,
    LATHE_FIELD_INT("mamba_expand", "2", 1, 1024.0, "1",
                    "channels of a state space for each of hidden_size"),
    LATHE_FIELD_INT("num_local_experts", "8", 0, 65536.0, "experts",
                    "experts of a layer; 0: only the MLP of all tokens"),
    LATHE_FIELD_INT("shared_intermediate_size", "1024", 1, 16777216.0, "channels",
                    "width inside the MLP of all tokens"),
    LATHE_EXPERT_FIELDS("2", "0.001"),
};

static const lathe_model_type types[] = {{"granitemoehybrid", "GraniteMoeHybridForCausalLM"}};
static const lathe_key_alias aliases[] = {{"layer_types", "layers_block_type"}};

static const lathe_layer_names names = {.q = "self_attn.q_proj",
                                        .k = "self_attn.k_proj",
                                        .v = "self_attn.v_proj",
                                        .o = "self_attn.o_proj",
                                        .gate_up = "shared_mlp.input_linear",
                                        .down = "shared_mlp.output_linear",
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};

/* Files hold the experts of a layer as one tensor. */
static lathe_status read_experts(lathe_decoder *d, const lathe_keys *k)
{
    lathe_expert_layer *e = &d->experts;
    if (lathe_key_int(k, "num_local_experts") == 0) {
        d->info.ffn = lathe_key_int(k, "shared_intermediate_size");
        return LATHE_OK;
    }
    LATHE_TRY(lathe_decoder_use_experts(d, "num_local_experts"));
    e->router = "block_sparse_moe.router.layer";
    e->gate_up = "block_sparse_moe.input_linear";
    e->down = "block_sparse_moe.output_linear";
    e->layout = LATHE_LAYOUT_STACKED;
    e->ffn = d->info.ffn;
    e->softmax_chosen = 1;
    e->shared_ffn = lathe_key_int(k, "shared_intermediate_size");
    e->shared_gate_up = "shared_mlp.input_linear";
    e->shared_down = "shared_mlp.output_linear";
    return LATHE_OK;
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    LATHE_TRY(lathe_layer_types_check(k, d->info.n_layers,
                                      "mamba|attention|linear_attention|full_attention",
                                      "expected mamba or attention"));
    LATHE_TRY(lathe_decoder_read_mamba(d, lathe_key_int(k, "mamba_expand") * d->info.width));
    LATHE_TRY(read_experts(d, k));
    d->embed_scale = lathe_key_float(k, "embedding_multiplier");
    d->info.head_scale = 1.0 / lathe_key_float(k, "logits_scaling");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names;
        if (lathe_layer_is(k, i, "mamba", 1) || lathe_layer_is(k, i, "linear_attention", 1))
            l->mamba = &d->mamba;
        l->rope = lathe_key_is(k, "position_embedding_type", "rope") ? 0 : -1;
        l->attention_scale = (float)lathe_key_float(k, "attention_multiplier");
        l->residual_scale = (float)lathe_key_float(k, "residual_multiplier");
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(granitemoehybrid, types, aliases, 1, read, .version = "1.0.0",
                     .summary = "Granite 4: Mamba-2 and attention, with and without experts",
                     .source = "Granite 4.0, IBM 2025; arXiv:2405.21060; transformers",
                     .license = "Apache-2.0");
