/* GPT-NeoX and Pythia: attention and MLP in parallel, rotary positions for a part of each head, one
 * projection with q, k and v of each head in turn, LayerNorm, biases. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("gpt_neox", "false"),
    LATHE_REQUIRED_INT("hidden_size", 1, 1048576.0, "channels", "width of the residual stream"),
    LATHE_REQUIRED_INT("intermediate_size", 1, 16777216.0, "channels", "width inside the MLP"),
    LATHE_REQUIRED_INT("num_hidden_layers", 1, 10000.0, "layers", "number of layers"),
    LATHE_REQUIRED_INT("num_attention_heads", 1, 65536.0, "heads", "heads"),
    LATHE_HEAD_DIM_FIELD(NULL, "size of a head; only hidden_size / num_attention_heads is "
                               "supported"),
    LATHE_FIELD_INT("max_position_embeddings", "2048", 1, LATHE_ANY_POSITIONS, "tokens",
                    "longest sequence"),
    LATHE_POSITIVE("layer_norm_eps", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_FIELD_STRING("hidden_act", "\"gelu\"", LATHE_ACTIVATIONS, "activation of the MLP"),
    LATHE_FIELD_BOOL("use_parallel_residual", "true",
                     "the MLP reads the layer's input, not the attention's result"),
    LATHE_FIELD_BOOL("attention_bias", "true", "biases in the attention projections"),
    LATHE_POSITIVE("rotary_pct", "0.25", 1.0,
                   "share of the channels of each head that are rotated, from the first on"),
    LATHE_POSITIVE("rotary_emb_base", "10000.0", 1e18, "base of the rotary frequencies"),
    LATHE_FIELD_TABLE("rope_scaling", "RoPE scaling: rope_type, factor, ..."),
    LATHE_FIELD_TABLE("rope_parameters",
                      "the newer form, which holds rope_theta and partial_rotary_factor too"),
    LATHE_FIELD_FLOAT("attention_dropout", "0.0", 0.0, 1.0, "1",
                      "dropout of the attention weights; training applies none"),
    LATHE_FIELD_FLOAT("hidden_dropout", "0.0", 0.0, 1.0, "1",
                      "dropout of embeddings and residual stream; training applies none"),
};

static const lathe_model_type types[] = {{"gpt_neox", "GPTNeoXForCausalLM"}};

static const lathe_layer_names names = {.qkv = "attention.query_key_value",
                                        .o = "attention.dense",
                                        .up = "mlp.dense_h_to_4h",
                                        .down = "mlp.dense_4h_to_h",
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};

static void set_layer(lathe_decoder *d, const lathe_keys *k, int32_t i)
{
    lathe_decoder_layer *l = &d->layers[i];
    const int32_t heads = (int32_t)lathe_key_int(k, "num_attention_heads");
    d->shapes[i].n_heads = d->shapes[i].n_kv_heads = heads;
    d->shapes[i].head_dim = heads > 0 ? (int32_t)(d->info.width / heads) : 0;
    l->names = &names;
    l->rope = 0;
    l->norm = LATHE_OP_LAYERNORM;
    l->activation = lathe_key_activation(k, "hidden_act");
    l->qkv_by_head = 1;
    l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    l->mlp_bias = 1;
    l->parallel = (int32_t)lathe_key_int(k, "use_parallel_residual");
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const int64_t heads = lathe_key_int(k, "num_attention_heads");
    d->info.width = lathe_key_int(k, "hidden_size");
    if (heads < 1 || d->info.width % heads != 0)
        return lathe_key_refuse(k, "hidden_size", "it must be a multiple of num_attention_heads");
    if (d->info.width / heads > 1024)
        return lathe_key_refuse(k, "hidden_size", "expected heads of at most 1024 channels");
    LATHE_TRY(lathe_key_only(k, "head_dim", (double)(d->info.width / heads),
                             "expected hidden_size / num_attention_heads"));
    LATHE_TRY(lathe_decoder_layers(d, lathe_key_int(k, "num_hidden_layers")));
    d->info.vocab = lathe_key_int(k, "vocab_size");
    d->info.ffn = lathe_key_int(k, "intermediate_size");
    d->info.max_positions = lathe_key_int(k, "max_position_embeddings");
    d->info.tied = (int32_t)lathe_key_int(k, "tie_word_embeddings");
    d->info.prefix = "gpt_neox.";
    d->info.embedding = "gpt_neox.embed_in.weight";
    d->info.head = "embed_out.weight";
    d->layer_prefix = "gpt_neox.layers.";
    d->final_norm = "gpt_neox.final_layer_norm";
    d->init_range = lathe_key_float(k, "initializer_range");
    d->norm_eps = lathe_key_float(k, "layer_norm_eps");
    d->norms_order = LATHE_NORMS_FIRST;
    lathe_decoder_dropout(d, "attention_dropout");
    lathe_decoder_dropout(d, "hidden_dropout");
    for (int32_t i = 0; i < d->info.n_layers; i++)
        set_layer(d, k, i);
    lathe_decoder_rope(d, 10000.0);
    lathe_decoder_partial_rope(d, "rotary_pct", 0.25);
    d->ropes[0].theta_key = "rotary_emb_base";
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(gpt_neox, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "GPT-NeoX, Pythia: parallel residual, partial rotary positions",
                     .source = "arXiv:2204.06745, arXiv:2304.01373; transformers",
                     .license = "Apache-2.0");
