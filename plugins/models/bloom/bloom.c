/* Bloom: ALiBi, a norm of the embeddings, one projection with q, k and v of each head in turn,
 * LayerNorm, biases. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("bloom", "true"),
    LATHE_FIELD_INT("hidden_size", "64", 1, 1048576.0, "channels", "width of the residual stream"),
    LATHE_FIELD_INT("n_layer", "2", 1, 10000.0, "layers", "number of layers"),
    LATHE_FIELD_INT("n_head", "8", 1, 65536.0, "heads", "heads"),
    LATHE_FIELD_INT("seq_length", "2048", 1, LATHE_ANY_POSITIONS, "tokens",
                    "longest sequence that the model was trained with"),
    LATHE_POSITIVE("layer_norm_epsilon", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_FIELD_BOOL("apply_residual_connection_post_layernorm", "false",
                     "attention and MLP are added to the normed states that they read"),
    LATHE_FIELD_FLOAT("attention_dropout", "0.0", 0.0, 1.0, "1",
                      "dropout of the attention weights; training applies none"),
    LATHE_FIELD_FLOAT("hidden_dropout", "0.0", 0.0, 1.0, "1",
                      "dropout of what attention and MLP add; training applies none"),
};

static const lathe_model_type types[] = {{"bloom", "BloomForCausalLM"}};
static const lathe_key_alias aliases[] = {{"hidden_size", "n_embed"},
                                          {"n_layer", "num_hidden_layers"},
                                          {"n_head", "num_attention_heads"}};

static const lathe_layer_names names = {.qkv = "self_attention.query_key_value",
                                        .o = "self_attention.dense",
                                        .up = "mlp.dense_h_to_4h",
                                        .down = "mlp.dense_4h_to_h",
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const int64_t heads = lathe_key_int(k, "n_head");
    d->info.width = lathe_key_int(k, "hidden_size");
    if (heads < 1 || d->info.width % heads != 0)
        return lathe_key_refuse(k, "hidden_size", "it must be a multiple of n_head");
    if (d->info.width / heads > 1024)
        return lathe_key_refuse(k, "hidden_size", "expected heads of at most 1024 channels");
    LATHE_TRY(lathe_decoder_layers(d, lathe_key_int(k, "n_layer")));
    d->info.vocab = lathe_key_int(k, "vocab_size");
    d->info.ffn = 4 * d->info.width;
    d->info.max_positions = lathe_key_int(k, "seq_length");
    d->info.tied = (int32_t)lathe_key_int(k, "tie_word_embeddings");
    d->info.warns_of_dropout = 1;
    d->info.prefix = "transformer.";
    d->info.embedding = "transformer.word_embeddings.weight";
    d->embedding_norm = "transformer.word_embeddings_layernorm";
    d->layer_prefix = "transformer.h.";
    d->final_norm = "transformer.ln_f";
    d->init_range = lathe_key_float(k, "initializer_range");
    d->norm_eps = lathe_key_float(k, "layer_norm_epsilon");
    d->norms_order = LATHE_NORMS_BEFORE_MODULES;
    lathe_decoder_dropout(d, "attention_dropout");
    lathe_decoder_dropout(d, "hidden_dropout");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        d->shapes[i] = (lathe_model_layer){.n_heads = (int32_t)heads,
                                           .n_kv_heads = (int32_t)heads,
                                           .head_dim = (int32_t)(d->info.width / heads)};
        l->names = &names;
        l->norm = LATHE_OP_LAYERNORM;
        l->activation = LATHE_ACT_GELU_TANH;
        l->alibi = 8.0f;
        l->qkv_by_head = l->qkv_bias = l->out_bias = l->mlp_bias = 1;
        l->normed_residual = (int32_t)lathe_key_int(k, "apply_residual_connection_post_layernorm");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(bloom, types, aliases, LATHE_N_FIELDS(aliases), read, .version = "1.0.0",
                     .summary = "Bloom: ALiBi, a norm of the embeddings, biases",
                     .source = "arXiv:2211.05100; transformers", .license = "Apache-2.0");
