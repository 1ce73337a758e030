/* Granite-MoE: Granite with a mixture of experts, in granitemoeshared beside an MLP that all tokens
 * pass. Files hold the experts of a layer as one tensor. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("granitemoe|granitemoeshared", "false"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", LATHE_ACTIVATIONS, "activation of the experts"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_POSITIVE("embedding_multiplier", "1.0", 1e9, "factor of the token embeddings"),
    LATHE_POSITIVE("attention_multiplier", "1.0", 1e9, "factor of the attention scores"),
    LATHE_POSITIVE("residual_multiplier", "1.0", 1e9,
                   "factor of attention and experts before they are added to the residual stream"),
    LATHE_POSITIVE("logits_scaling", "1.0", 1e9, "logits are divided by it"),
    LATHE_FIELD_INT("num_local_experts", "8", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_INT("shared_intermediate_size", "0", 0, 16777216.0, "channels",
                    "of granitemoeshared: width inside the MLP of all tokens; 0: there is none"),
    LATHE_EXPERT_FIELDS("2", "0.001"),
};

static const lathe_model_type types[] = {{"granitemoe", "GraniteMoeForCausalLM"},
                                         {"granitemoeshared", "GraniteMoeSharedForCausalLM"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    lathe_expert_layer *e = &d->experts;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    LATHE_TRY(lathe_decoder_use_experts(d, "num_local_experts"));
    d->embed_scale = lathe_key_float(k, "embedding_multiplier");
    d->info.head_scale = 1.0 / lathe_key_float(k, "logits_scaling");
    e->router = "block_sparse_moe.router.layer";
    e->gate_up = "block_sparse_moe.input_linear";
    e->down = "block_sparse_moe.output_linear";
    e->layout = LATHE_LAYOUT_STACKED;
    e->ffn = d->info.ffn;
    e->softmax_chosen = 1;
    if (lathe_key_is(k, "model_type", "granitemoeshared"))
        e->shared_ffn = lathe_key_int(k, "shared_intermediate_size");
    if (e->shared_ffn > 0) {
        e->shared_gate_up = "shared_mlp.input_linear";
        e->shared_down = "shared_mlp.output_linear";
    }
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->attention_scale = (float)lathe_key_float(k, "attention_multiplier");
        l->residual_scale = (float)lathe_key_float(k, "residual_multiplier");
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(granitemoe, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Granite-MoE: Granite with a mixture of experts",
                     .source = "Granite 3.0 Language Models, IBM 2024; transformers",
                     .license = "Apache-2.0");
