/* GPT-2: LayerNorm, learned positions, one projection for q, k and v, tanh-GELU. Files store its
 * Conv1D weights as [in, out]. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("gpt2", "true"),
    LATHE_FIELD_INT("n_embd", "768", 1, 1048576.0, "channels", "width of the residual stream"),
    LATHE_FIELD_INT("n_layer", "12", 1, 10000.0, "layers", "number of layers"),
    LATHE_FIELD_INT("n_head", "12", 1, 65536.0, "heads", "heads"),
    LATHE_FIELD_INT("n_positions", "1024", 1, LATHE_ANY_POSITIONS, "tokens", "longest sequence"),
    LATHE_FIELD_INT("n_ctx", NULL, 1, LATHE_ANY_POSITIONS, "tokens",
                    "older name of n_positions, which is not read"),
    LATHE_FIELD_INT("n_inner", NULL, 1, 16777216.0, "channels",
                    "width inside the MLP; unset: 4 n_embd"),
    LATHE_POSITIVE("layer_norm_epsilon", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_FIELD_STRING("activation_function", "\"gelu_new\"", LATHE_ACTIVATIONS,
                       "activation of the MLP"),
    LATHE_FIELD_BOOL("scale_attn_weights", "true",
                     "scores are divided by the root of the head size; only true is supported"),
    LATHE_FIELD_BOOL("scale_attn_by_inverse_layer_idx", "false", "only false is supported"),
    LATHE_FIELD_BOOL("add_cross_attention", "false", "only false is supported"),
    LATHE_FIELD_FLOAT("attn_pdrop", "0.0", 0.0, 1.0, "1",
                      "dropout of the attention weights; training applies none"),
    LATHE_FIELD_FLOAT("embd_pdrop", "0.0", 0.0, 1.0, "1",
                      "dropout of the embeddings; training applies none"),
    LATHE_FIELD_FLOAT("resid_pdrop", "0.0", 0.0, 1.0, "1",
                      "dropout of the residual stream; training applies none"),
};

static const lathe_model_type types[] = {{"gpt2", "GPT2LMHeadModel"}};
static const lathe_key_alias aliases[] = {{"n_embd", "hidden_size"},
                                          {"n_layer", "num_hidden_layers"},
                                          {"n_head", "num_attention_heads"},
                                          {"n_positions", "max_position_embeddings"}};

static const lathe_layer_names names = {.qkv = "attn.c_attn",
                                        .o = "attn.c_proj",
                                        .up = "mlp.c_fc",
                                        .down = "mlp.c_proj",
                                        .attention_norm = "ln_1",
                                        .mlp_norm = "ln_2"};

static lathe_status check(const lathe_keys *k)
{
    const int64_t heads = lathe_key_int(k, "n_head");
    if (heads < 1 || lathe_key_int(k, "n_embd") % heads != 0)
        return lathe_key_refuse(k, "n_embd", "it must be a multiple of the number of heads");
    LATHE_TRY(lathe_key_only(k, "scale_attn_weights", 1.0, "only true is supported"));
    LATHE_TRY(lathe_key_only(k, "scale_attn_by_inverse_layer_idx", 0.0, "only false is supported"));
    return lathe_key_only(k, "add_cross_attention", 0.0, "only false is supported");
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(check(k));
    LATHE_TRY(lathe_decoder_layers(d, lathe_key_int(k, "n_layer")));
    const int32_t heads = (int32_t)lathe_key_int(k, "n_head");
    d->info.vocab = lathe_key_int(k, "vocab_size");
    d->info.width = lathe_key_int(k, "n_embd");
    d->info.ffn = lathe_key_fill(k, "n_inner", 4 * d->info.width);
    d->info.max_positions = lathe_key_int(k, "n_positions");
    d->info.tied = (int32_t)lathe_key_int(k, "tie_word_embeddings");
    d->info.warns_of_dropout = 1;
    d->info.prefix = "transformer.";
    d->info.embedding = "transformer.wte.weight";
    d->positions = "transformer.wpe.weight";
    d->layer_prefix = "transformer.h.";
    d->final_norm = "transformer.ln_f";
    d->init_range = lathe_key_float(k, "initializer_range");
    d->norm_eps = lathe_key_float(k, "layer_norm_epsilon");
    d->transposed = d->residual_init = 1;
    d->norms_order = LATHE_NORMS_BEFORE_MODULES;
    (void)lathe_key_fill(k, "n_ctx", d->info.max_positions);
    lathe_decoder_dropout(d, "attn_pdrop");
    lathe_decoder_dropout(d, "embd_pdrop");
    lathe_decoder_dropout(d, "resid_pdrop");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        d->shapes[i].n_heads = d->shapes[i].n_kv_heads = heads;
        d->shapes[i].head_dim = (int32_t)(d->info.width / heads);
        d->layers[i].names = &names;
        d->layers[i].norm = LATHE_OP_LAYERNORM;
        d->layers[i].activation = lathe_key_activation(k, "activation_function");
        d->layers[i].qkv_bias = d->layers[i].out_bias = d->layers[i].mlp_bias = 1;
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(gpt2, types, aliases, LATHE_N_FIELDS(aliases), read, .version = "1.0.0",
                     .summary = "GPT-2: LayerNorm, learned positions, tanh-GELU",
                     .source = "Radford et al. 2019; transformers", .license = "Apache-2.0");
