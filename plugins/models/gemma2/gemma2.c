/* Gemma 2: norms before and after attention and MLP, which multiply by 1+w, a scaled embedding,
 * gated tanh-GELU, capped scores and logits, a sliding window in every other layer. */
#include <lathe/kit/decoder_family.h>
#include <lathe/kit/wrappers.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("gemma2", "true"),
    LATHE_DECODER_FIELDS_WITH("8192",
                              LATHE_HEAD_DIM_FIELD("256", "size of a head, whatever the width")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_activation", "\"gelu_pytorch_tanh\"", "gelu_pytorch_tanh",
                       "activation of the MLP"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_FIELD_INT("query_pre_attn_scalar", "256", 1, 1e9, "1", "scores are divided by its root"),
    LATHE_WINDOW_FIELD("4096", "keys that a query sees in a layer with a window, itself included"),
    LATHE_FIELD_STRINGS("layer_types", "sliding_attention or full_attention for each layer; unset: "
                                       "they alternate, the first one has a window"),
    {"attn_logit_softcapping", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_NULLABLE,
     "50.0", 0.0, 1e9, NULL, "1", "scores are c tanh(score/c); null: as they are"},
    {"final_logit_softcapping", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_NULLABLE,
     "30.0", 0.0, 1e9, NULL, "1", "logits are c tanh(logit/c); null: as they are"},
    LATHE_FIELD_BOOL("use_bidirectional_attention", "false", "only false is supported"),
};

static const lathe_model_type types[] = {{"gemma2", "Gemma2ForCausalLM"}};

/* Gemma2Config of transformers 5.24, where they are not the defaults of the fields. */
static const char *const defaults[] = {
    "{\"vocab_size\": 256000, \"hidden_size\": 2304, \"intermediate_size\": 9216, "
    "\"num_hidden_layers\": 26, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 4, \"bos_token_id\": 2, \"eos_token_id\": 1, "
    "\"pad_token_id\": 0}"};

static const lathe_model_wrapper wrappers[] = {LATHE_AUTO_WRAPPERS};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, .attention_norm = "input_layernorm",
                                        .attention_out_norm = "post_attention_layernorm",
                                        .mlp_norm = "pre_feedforward_layernorm",
                                        .mlp_out_norm = "post_feedforward_layernorm"};

static void set_layer(lathe_decoder *d, const lathe_keys *k, int32_t i)
{
    lathe_decoder_layer *l = &d->layers[i];
    if (lathe_layer_is(k, i, "sliding_attention", i % 2 == 0))
        d->shapes[i].window = (int32_t)lathe_key_int(k, "sliding_window");
    l->names = &names;
    l->norm_offset_one = 1;
    l->activation = LATHE_ACT_GELU_TANH;
    l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    l->attention_scale = (float)(1.0 / sqrt((double)lathe_key_int(k, "query_pre_attn_scalar")));
    l->softcap = (float)lathe_key_float(k, "attn_logit_softcapping");
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    LATHE_TRY(lathe_key_only(k, "use_bidirectional_attention", 0.0, "only false is supported"));
    LATHE_TRY(lathe_layer_types_check(k, d->info.n_layers, "sliding_attention|full_attention",
                                      "expected sliding_attention or full_attention"));
    lathe_decoder_rope(d, 10000.0);
    d->embed_scale = sqrt((double)d->info.width);
    d->info.head_softcap = lathe_key_float(k, "final_logit_softcapping");
    for (int32_t i = 0; i < d->info.n_layers; i++)
        set_layer(d, k, i);
    return LATHE_OK;
}

LATHE_DECODER_FAMILY_IN_WRAPPERS(
    gemma2, types, defaults, wrappers, NULL, 0, read, .version = "1.0.0",
    .summary = "Gemma 2: sandwich norms, soft-caps, local and global layers",
    .source = "arXiv:2408.00118; transformers", .license = "Apache-2.0");
