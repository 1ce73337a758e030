/* Phi-1, Phi-1.5 and Phi-2: attention and MLP in parallel behind one LayerNorm, rotary positions
 * for a part of each head, biases everywhere, in the head too. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("phi", "false"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("layer_norm_eps", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_POSITIVE("partial_rotary_factor", "0.5", 1.0,
                   "share of the channels of each head that are rotated, from the first on"),
    LATHE_FIELD_STRING("hidden_act", "\"gelu_new\"", LATHE_ACTIVATIONS, "activation of the MLP"),
    LATHE_FIELD_BOOL("qk_layernorm", "false", "LayerNorm of queries and keys"),
    LATHE_FIELD_FLOAT("embd_pdrop", "0.0", 0.0, 1.0, "1",
                      "dropout of the embeddings; training applies none"),
    LATHE_FIELD_FLOAT("resid_pdrop", "0.0", 0.0, 1.0, "1",
                      "dropout of what attention and MLP add; training applies none"),
};

static const lathe_model_type types[] = {{"phi", "PhiForCausalLM"}};

#define NAMES                                                                                      \
    .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj",                     \
    .o = "self_attn.dense", .up = "mlp.fc1", .down = "mlp.fc2",                                    \
    .attention_norm = "input_layernorm"

static const lathe_layer_names names = {NAMES};
static const lathe_layer_names normed_names = {NAMES, .q_norm = "self_attn.q_layernorm",
                                               .k_norm = "self_attn.k_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const int is_normed = lathe_key_int(k, "qk_layernorm") != 0;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    /* transformers gives these norms hidden_size / num_attention_heads channels */
    if (is_normed && d->info.width != (int64_t)d->shapes[0].n_heads * d->shapes[0].head_dim)
        return lathe_key_refuse(k, "head_dim",
                                "with qk_layernorm expected hidden_size / num_attention_heads");
    lathe_decoder_rope(d, 10000.0);
    lathe_decoder_partial_rope(d, "partial_rotary_factor", 0.5);
    d->norm_eps = lathe_key_float(k, "layer_norm_eps");
    d->final_norm = "model.final_layernorm";
    d->info.head_bias = "lm_head.bias";
    /* the published models have a dropout with which few fine-tune */
    d->info.warns_of_dropout = 1;
    lathe_decoder_dropout(d, "embd_pdrop");
    lathe_decoder_dropout(d, "resid_pdrop");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = is_normed ? &normed_names : &names;
        l->norm = LATHE_OP_LAYERNORM;
        l->parallel = 1;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = l->mlp_bias = 1;
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(phi, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Phi-1, Phi-1.5, Phi-2: parallel block, biases, a head with one",
                     .source = "arXiv:2306.11644, arXiv:2309.05463; transformers",
                     .license = "Apache-2.0");
