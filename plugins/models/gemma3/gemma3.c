/* Gemma 3: as Gemma 2, but with normed queries and keys instead of caps, and with separate rotary
 * frequencies for layers with a sliding window. In a folder with a vision tower, the text model. */
#include <lathe/kit/decoder_family.h>
#include <lathe/kit/wrappers.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("gemma3_text", "true"),
    LATHE_DECODER_FIELDS_WITH("131072",
                              LATHE_HEAD_DIM_FIELD("256", "size of a head, whatever the width")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_POSITIVE("rope_theta", "1000000.0", 1e18,
                   "base of the rotary frequencies of layers without a window"),
    LATHE_POSITIVE("rope_local_base_freq", "10000.0", 1e18, "the same of layers with a window"),
    LATHE_FIELD_TABLE("rope_scaling",
                      "RoPE scaling of the layers without a window: rope_type, factor, ..."),
    LATHE_FIELD_TABLE("rope_parameters",
                      "the newer form: { sliding_attention = {...}, full_attention = {...} }"),
    LATHE_FIELD_STRING("hidden_activation", "\"gelu_pytorch_tanh\"", "gelu_pytorch_tanh",
                       "activation of the MLP"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_FIELD_INT("query_pre_attn_scalar", "256", 1, 1e9, "1", "scores are divided by its root"),
    LATHE_WINDOW_FIELD("4096", "keys that a query sees in a layer with a window, itself included"),
    LATHE_FIELD_INT(
        "sliding_window_pattern", "6", 1, 10000.0, "layers",
        "each layer whose number is a multiple of this has no window, where layer_types is unset"),
    LATHE_FIELD_STRINGS(
        "layer_types",
        "sliding_attention or full_attention for each layer; unset: by sliding_window_pattern"),
    {"attn_logit_softcapping", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_NULLABLE,
     NULL, 0.0, 1e9, NULL, "1", "changes nothing: Gemma 3 norms queries and keys instead"},
    {"final_logit_softcapping", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_NULLABLE,
     NULL, 0.0, 1e9, NULL, "1", "logits are c tanh(logit/c); null: as they are"},
    LATHE_FIELD_BOOL("use_bidirectional_attention", "false", "only false is supported"),
};

static const lathe_model_type types[] = {{"gemma3_text", "Gemma3ForCausalLM"}};

/* Gemma3TextConfig of transformers 5.24, where they are not the defaults of the fields. */
static const char *const defaults[] = {
    "{\"vocab_size\": 262208, \"hidden_size\": 2304, \"intermediate_size\": 9216, "
    "\"num_hidden_layers\": 26, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 4, \"bos_token_id\": 2, \"eos_token_id\": 1, "
    "\"pad_token_id\": 0}"};

static const lathe_model_wrapper wrappers[] = {
    {.model_type = "gemma3",
     .architecture = "Gemma3ForConditionalGeneration",
     .text_key = "text_config",
     .serves = "gemma3_text",
     .names = lathe_language_model_names,
     .n_names = LATHE_N_FIELDS(lathe_language_model_names),
     .flags = LATHE_WRAPPER_TIED},
    LATHE_AUTO_WRAPPERS};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES,
                                        LATHE_QK_NORM_NAMES,
                                        .attention_norm = "input_layernorm",
                                        .attention_out_norm = "post_attention_layernorm",
                                        .mlp_norm = "pre_feedforward_layernorm",
                                        .mlp_out_norm = "post_feedforward_layernorm"};

/* Layers with a window use the first table, the others the second. */
static void set_ropes(lathe_decoder *d)
{
    const int32_t dims = d->shapes[0].head_dim;
    d->ropes[0] = (lathe_rope_use){.layer_type = "sliding_attention",
                                   .theta_key = "rope_local_base_freq",
                                   .theta = 10000.0,
                                   .dims = dims,
                                   .flags = LATHE_ROPE_UNSCALED};
    d->ropes[1] =
        (lathe_rope_use){.layer_type = "full_attention", .theta = 1000000.0, .dims = dims};
    d->info.n_ropes = 2;
}

static void set_layer(lathe_decoder *d, const lathe_keys *k, int32_t i)
{
    lathe_decoder_layer *l = &d->layers[i];
    const int64_t pattern = lathe_key_int(k, "sliding_window_pattern");
    const int slides =
        lathe_layer_is(k, i, "sliding_attention", pattern < 1 || (i + 1) % pattern != 0);
    d->shapes[i].window = slides ? (int32_t)lathe_key_int(k, "sliding_window") : 0;
    l->rope = slides ? 0 : 1;
    l->names = &names;
    l->norm_offset_one = 1;
    l->activation = LATHE_ACT_GELU_TANH;
    l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    l->attention_scale = (float)(1.0 / sqrt((double)lathe_key_int(k, "query_pre_attn_scalar")));
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    LATHE_TRY(lathe_key_only(k, "use_bidirectional_attention", 0.0, "only false is supported"));
    LATHE_TRY(lathe_layer_types_check(k, d->info.n_layers, "sliding_attention|full_attention",
                                      "expected sliding_attention or full_attention"));
    if (lathe_key_is_set(k, "attn_logit_softcapping"))
        lathe_warn(d->host,
                   "attn_logit_softcapping is %g and changes nothing: transformers caps no "
                   "scores of gemma3_text",
                   lathe_key_float(k, "attn_logit_softcapping"));
    set_ropes(d);
    d->embed_scale = sqrt((double)d->info.width);
    d->info.head_softcap = lathe_key_float(k, "final_logit_softcapping");
    for (int32_t i = 0; i < d->info.n_layers; i++)
        set_layer(d, k, i);
    return LATHE_OK;
}

LATHE_DECODER_FAMILY_IN_WRAPPERS(
    gemma3, types, defaults, wrappers, NULL, 0, read, .version = "1.0.0",
    .summary = "Gemma 3 (text): normed queries and keys, local and global layers",
    .source = "arXiv:2503.19786; transformers", .license = "Apache-2.0");
