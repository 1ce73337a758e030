/* MPT: ALiBi, one projection for q, k and v whose output may be clipped, LayerNorm without bias, no
 * biases at all. */
#include <stdlib.h>

#include <lathe/kit/decoder_family.h>
#include <lathe/kit/json_text.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("mpt", "true"),
    LATHE_FIELD_INT("d_model", "2048", 1, 1048576.0, "channels", "width of the residual stream"),
    LATHE_FIELD_INT("n_layers", "24", 1, 10000.0, "layers", "number of layers"),
    LATHE_FIELD_INT("n_heads", "16", 1, 65536.0, "heads", "heads"),
    LATHE_FIELD_INT("expansion_ratio", "4", 1, 1024.0, "1",
                    "width inside the MLP / d_model; only 4 is supported"),
    LATHE_FIELD_INT("max_seq_len", "2048", 1, LATHE_ANY_POSITIONS, "tokens", "longest sequence"),
    LATHE_POSITIVE("layer_norm_epsilon", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_FIELD_TABLE(
        "attn_config",
        "{ clip_qkv, softmax_scale, attn_pdrop }; of alibi_bias_max, attn_type, alibi, "
        "prefix_lm, qk_ln and attn_uses_sequence_id only the defaults are supported"),
    LATHE_FIELD_BOOL("no_bias", "true", "no biases; only true is supported"),
    {"logit_scale", LATHE_T_FLOAT, LATHE_FIELD_NULLABLE | LATHE_FIELD_OR_TEXT, NULL, LATHE_NO_RANGE,
     NULL, "1", "factor of the logits; only null is supported"},
    LATHE_FIELD_FLOAT("resid_pdrop", "0.0", 0.0, 1.0, "1",
                      "dropout of the residual stream; training applies none"),
    LATHE_FIELD_FLOAT("emb_pdrop", "0.0", 0.0, 1.0, "1",
                      "dropout of the embeddings; training applies none"),
};

static const lathe_model_type types[] = {{"mpt", "MptForCausalLM"}};
static const lathe_key_alias aliases[] = {{"d_model", "hidden_size"},
                                          {"n_layers", "num_hidden_layers"},
                                          {"n_heads", "num_attention_heads"}};

static const lathe_layer_names names = {.qkv = "attn.Wqkv",
                                        .o = "attn.out_proj",
                                        .up = "ffn.up_proj",
                                        .down = "ffn.down_proj",
                                        .attention_norm = "norm_1",
                                        .mlp_norm = "norm_2"};

typedef struct attention_keys {
    double bias_max, clip, scale, dropout; /* clip, scale 0: none, the usual one */
} attention_keys;

static lathe_status refuse(const lathe_keys *k, lathe_json_members it, const char *why)
{
    const lathe_chars key = lathe_json_inside(it.key);
    return lathe_fail_at(k->host, LATHE_E_CONFIG, "attn_config", "attn_config.%.*s is %.*s; %s",
                         (int)key.bytes, key.data, (int)it.value.bytes, it.value.data, why);
}

static double number_of(lathe_chars value)
{
    char text[64];
    const int64_t n = value.bytes < 63 ? value.bytes : 63;
    memcpy(text, value.data, (size_t)n);
    text[n] = '\0';
    return strtod(text, NULL);
}

static int is_text(lathe_chars value, const char *text)
{
    return value.bytes == (int64_t)strlen(text) &&
           memcmp(value.data, text, (size_t)value.bytes) == 0;
}

/* One key of attn_config. */
static lathe_status read_member(const lathe_keys *k, lathe_json_members it, attention_keys *out)
{
    static const struct {
        const char *key, *value; /* the only one that is supported */
    } fixed[] = {{"attn_type", "\"multihead_attention\""},
                 {"alibi", "true"},
                 {"prefix_lm", "false"},
                 {"qk_ln", "false"},
                 {"attn_uses_sequence_id", "false"}};
    const struct {
        const char *key;
        double *to;
        double least; /* above it, or 0 itself with may_be_zero */
        int32_t may_be_zero, may_be_null;
    } numbers[] = {{"alibi_bias_max", &out->bias_max, 0.0, 0, 0},
                   {"clip_qkv", &out->clip, 0.0, 1, 1},
                   {"softmax_scale", &out->scale, 0.0, 0, 1},
                   {"attn_pdrop", &out->dropout, 0.0, 1, 0}};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (lathe_json_is(it.key, fixed[i].key) && !is_text(it.value, fixed[i].value)) {
            char why[80];
            (void)snprintf(why, sizeof why, "only %s is supported", fixed[i].value);
            return refuse(k, it, why);
        }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!lathe_json_is(it.key, numbers[i].key))
            continue;
        const int32_t kind = lathe_json_kind(it.value);
        if (kind == LATHE_JSON_NULL && numbers[i].may_be_null)
            continue;
        const double x = kind == LATHE_JSON_NUMBER ? number_of(it.value) : -1.0;
        if (!(x > numbers[i].least || (x == 0.0 && numbers[i].may_be_zero)) || x > 1e9)
            return refuse(k, it, "expected a number above 0");
        *numbers[i].to = x;
    }
    if (out->bias_max != 8.0)
        return refuse(k, it, "only 8 is supported: transformers computes with no other");
    return LATHE_OK;
}

static lathe_status read_attention(const lathe_keys *k, attention_keys *out)
{
    const lathe_value *table = lathe_key(k, "attn_config");
    *out = (attention_keys){.bias_max = 8.0};
    if (!table->is_set)
        return LATHE_OK;
    const lathe_chars text = {table->s, (int64_t)strlen(table->s)};
    lathe_json_members it = lathe_json_open(text);
    while (lathe_json_next(&it))
        LATHE_TRY(read_member(k, it, out));
    return LATHE_OK;
}

static lathe_status check(const lathe_keys *k)
{
    const int64_t heads = lathe_key_int(k, "n_heads");
    if (heads < 1 || lathe_key_int(k, "d_model") % heads != 0)
        return lathe_key_refuse(k, "d_model", "it must be a multiple of n_heads");
    if (lathe_key_int(k, "d_model") / heads > 1024)
        return lathe_key_refuse(k, "d_model", "expected heads of at most 1024 channels");
    if (lathe_key_is_set(k, "logit_scale"))
        return lathe_key_refuse(k, "logit_scale", "only null is supported");
    LATHE_TRY(lathe_key_only(k, "no_bias", 1.0, "only true is supported"));
    return lathe_key_only(k, "expansion_ratio", 4.0, "only 4 is supported");
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const int64_t heads = lathe_key_int(k, "n_heads");
    attention_keys a;
    LATHE_TRY(check(k));
    LATHE_TRY(read_attention(k, &a));
    LATHE_TRY(lathe_decoder_layers(d, lathe_key_int(k, "n_layers")));
    d->info.vocab = lathe_key_int(k, "vocab_size");
    d->info.width = lathe_key_int(k, "d_model");
    d->info.ffn = 4 * d->info.width;
    d->info.max_positions = lathe_key_int(k, "max_seq_len");
    d->info.tied = (int32_t)lathe_key_int(k, "tie_word_embeddings");
    d->info.warns_of_dropout = 1;
    d->info.prefix = "transformer.";
    d->info.embedding = "transformer.wte.weight";
    d->layer_prefix = "transformer.blocks.";
    d->final_norm = "transformer.norm_f";
    d->init_range = lathe_key_float(k, "initializer_range");
    d->norm_eps = lathe_key_float(k, "layer_norm_epsilon");
    d->norms_order = LATHE_NORMS_BEFORE_MODULES;
    d->info.dropout = a.dropout;
    d->info.dropout_key = a.dropout > 0.0 ? "attn_config.attn_pdrop" : NULL;
    lathe_decoder_dropout(d, "resid_pdrop");
    lathe_decoder_dropout(d, "emb_pdrop");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        d->shapes[i] = (lathe_model_layer){.n_heads = (int32_t)heads,
                                           .n_kv_heads = (int32_t)heads,
                                           .head_dim = (int32_t)(d->info.width / heads)};
        l->names = &names;
        l->norm = LATHE_OP_LAYERNORM;
        l->norm_no_bias = 1;
        l->activation = LATHE_ACT_GELU;
        l->alibi = (float)a.bias_max;
        l->qkv_clip = (float)a.clip;
        l->attention_scale = (float)a.scale;
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(mpt, types, aliases, LATHE_N_FIELDS(aliases), read, .version = "1.0.0",
                     .summary = "MPT: ALiBi, clipped q, k and v, no biases",
                     .source = "MosaicML 2023, mpt-7b; transformers", .license = "Apache-2.0");
