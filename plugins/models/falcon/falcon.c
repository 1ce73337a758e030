/* Falcon: one projection for q, k and v, rotary positions or ALiBi, LayerNorm; attention and MLP in
 * parallel except in the oldest models. The new decoder architecture has grouped key heads and a
 * norm of its own before the MLP. */
#include <lathe/kit/decoder_family.h>

#define FIELD_NULL_INT(key, def, lo, hi, unit, doc)                                                \
    {                                                                                              \
        key, LATHE_T_INT, LATHE_FIELD_NULLABLE, def, lo, hi, NULL, unit, doc                       \
    }
#define FIELD_NULL_BOOL(key, def, doc)                                                             \
    {                                                                                              \
        key, LATHE_T_BOOL, LATHE_FIELD_NULLABLE, def, LATHE_NO_RANGE, NULL, NULL, doc              \
    }

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("falcon", "true"),
    LATHE_REQUIRED_INT("hidden_size", 1, 1048576.0, "channels", "width of the residual stream"),
    LATHE_REQUIRED_INT("num_hidden_layers", 1, 10000.0, "layers", "number of layers"),
    LATHE_REQUIRED_INT("num_attention_heads", 1, 65536.0, "heads", "query heads"),
    FIELD_NULL_INT("num_kv_heads", NULL, 1, 65536.0, "heads",
                   "key and value heads of the new decoder architecture; unset: as many as query "
                   "heads"),
    FIELD_NULL_INT("ffn_hidden_size", NULL, 1, 16777216.0, "channels",
                   "width inside the MLP; unset: 4 hidden_size"),
    LATHE_FIELD_INT("max_position_embeddings", "2048", 1, LATHE_ANY_POSITIONS, "tokens",
                    "longest sequence"),
    LATHE_POSITIVE("layer_norm_epsilon", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    FIELD_NULL_BOOL("alibi", "false", "ALiBi instead of rotary positions"),
    FIELD_NULL_BOOL("new_decoder_architecture", "false",
                    "grouped key heads, and a parallel block with two norms"),
    FIELD_NULL_BOOL("multi_query", "true",
                    "one key head for all query heads, in the older architecture"),
    FIELD_NULL_BOOL("parallel_attn", "true",
                    "the MLP reads the layer's input, not the attention's result"),
    FIELD_NULL_INT("num_ln_in_parallel_attn", NULL, 1, 2, "norms",
                   "norms of a parallel block: 2 are supported in the new architecture alone; "
                   "unset: 2 there, else 1"),
    FIELD_NULL_BOOL("bias", "false", "biases in the linear layers"),
    LATHE_FIELD_STRING("activation", "\"gelu\"", LATHE_ACTIVATIONS, "activation of the MLP"),
    LATHE_FIELD_FLOAT("attention_dropout", "0.0", 0.0, 1.0, "1",
                      "dropout of the attention weights; training applies none"),
    LATHE_FIELD_FLOAT("hidden_dropout", "0.0", 0.0, 1.0, "1",
                      "dropout of what a layer adds; training applies none"),
};

static const lathe_model_type types[] = {{"falcon", "FalconForCausalLM"}};
static const lathe_key_alias aliases[] = {{"hidden_size", "n_embed"}};

#define NAMES                                                                                      \
    .qkv = "self_attention.query_key_value", .o = "self_attention.dense",                          \
    .up = "mlp.dense_h_to_4h", .down = "mlp.dense_4h_to_h"

static const lathe_layer_names serial_names = {NAMES, .attention_norm = "input_layernorm",
                                               .mlp_norm = "post_attention_layernorm"};
static const lathe_layer_names one_norm_names = {NAMES, .attention_norm = "input_layernorm"};
static const lathe_layer_names two_norms_names = {NAMES, .attention_norm = "ln_attn",
                                                  .mlp_norm = "ln_mlp"};

/* The combinations that the class of transformers cannot compute. */
static lathe_status check(const lathe_keys *k)
{
    const int64_t heads = lathe_key_int(k, "num_attention_heads");
    const int64_t kv_heads = lathe_key_fill(k, "num_kv_heads", heads);
    const int is_new = lathe_key_int(k, "new_decoder_architecture") != 0;
    if (heads < 1 || lathe_key_int(k, "hidden_size") % heads != 0)
        return lathe_key_refuse(k, "hidden_size", "it must be a multiple of num_attention_heads");
    if (lathe_key_int(k, "hidden_size") / heads > 1024)
        return lathe_key_refuse(k, "hidden_size", "expected heads of at most 1024 channels");
    if (kv_heads < 1 || heads % kv_heads != 0)
        return lathe_key_refuse(k, "num_kv_heads", "it must divide num_attention_heads");
    if (!is_new && !lathe_key_int(k, "multi_query") && kv_heads != heads)
        return lathe_key_refuse(k, "num_kv_heads",
                                "without multi_query or new_decoder_architecture it must be "
                                "num_attention_heads");
    if (is_new && !lathe_key_int(k, "parallel_attn"))
        return lathe_key_refuse(k, "parallel_attn", "expected true with new_decoder_architecture");
    if (!is_new && lathe_key_int(k, "parallel_attn") &&
        lathe_key_int(k, "num_ln_in_parallel_attn") == 2)
        return lathe_key_refuse(k, "num_ln_in_parallel_attn",
                                "expected 1 without new_decoder_architecture");
    return LATHE_OK;
}

static const lathe_layer_names *names_of(const lathe_keys *k)
{
    if (!lathe_key_int(k, "parallel_attn"))
        return &serial_names;
    const int two = lathe_key_int(k, "new_decoder_architecture") != 0 &&
                    lathe_key_int(k, "num_ln_in_parallel_attn") != 1;
    return two ? &two_norms_names : &one_norm_names;
}

static void set_layer(lathe_decoder *d, const lathe_keys *k, int32_t i)
{
    lathe_decoder_layer *l = &d->layers[i];
    const int32_t heads = (int32_t)lathe_key_int(k, "num_attention_heads");
    const int is_new = lathe_key_int(k, "new_decoder_architecture") != 0;
    const int has_one_key = !is_new && lathe_key_int(k, "multi_query") != 0;
    d->shapes[i] = (lathe_model_layer){
        .n_heads = heads,
        .n_kv_heads = has_one_key ? 1 : (int32_t)lathe_key_int(k, "num_kv_heads"),
        .head_dim = heads > 0 ? (int32_t)(d->info.width / heads) : 0};
    l->names = names_of(k);
    l->norm = LATHE_OP_LAYERNORM;
    l->activation = lathe_key_activation(k, "activation");
    l->qkv_by_head = 1;
    l->qkv_bias = l->out_bias = l->mlp_bias = (int32_t)lathe_key_int(k, "bias");
    l->parallel = (int32_t)lathe_key_int(k, "parallel_attn");
    if (!lathe_key_int(k, "alibi")) {
        l->rope = 0;
        return;
    }
    l->alibi = 8.0f;
    l->alibi_bf16 = 1;
    /* the bias is added before the scores are scaled */
    l->alibi_scale = (float)(1.0 / sqrt((double)d->shapes[i].head_dim));
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(check(k));
    LATHE_TRY(lathe_decoder_layers(d, lathe_key_int(k, "num_hidden_layers")));
    d->info.vocab = lathe_key_int(k, "vocab_size");
    d->info.width = lathe_key_int(k, "hidden_size");
    d->info.ffn = lathe_key_fill(k, "ffn_hidden_size", 4 * d->info.width);
    d->info.max_positions = lathe_key_int(k, "max_position_embeddings");
    d->info.tied = (int32_t)lathe_key_int(k, "tie_word_embeddings");
    d->info.warns_of_dropout = 1;
    d->info.prefix = "transformer.";
    d->info.embedding = "transformer.word_embeddings.weight";
    d->layer_prefix = "transformer.h.";
    d->final_norm = "transformer.ln_f";
    d->init_range = lathe_key_float(k, "initializer_range");
    d->norm_eps = lathe_key_float(k, "layer_norm_epsilon");
    if (!lathe_key_int(k, "parallel_attn"))
        d->norms_order = LATHE_NORMS_LAST_MLP_FIRST;
    lathe_decoder_dropout(d, "attention_dropout");
    lathe_decoder_dropout(d, "hidden_dropout");
    for (int32_t i = 0; i < d->info.n_layers; i++)
        set_layer(d, k, i);
    if (lathe_key_int(k, "alibi"))
        return LATHE_OK;
    if (d->shapes[0].head_dim % 2 != 0)
        return lathe_key_refuse(k, "hidden_size",
                                "hidden_size / num_attention_heads must be even, for the rotary "
                                "positions");
    lathe_decoder_rope(d, 10000.0);
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(falcon, types, aliases, LATHE_N_FIELDS(aliases), read, .version = "1.0.0",
                     .summary = "Falcon: parallel block, one or few key heads, ALiBi in some",
                     .source = "arXiv:2311.16867; transformers", .license = "Apache-2.0");
