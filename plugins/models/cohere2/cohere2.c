/* Command R7B and Command A: Command R with rotary positions and a sliding window in most layers,
 * and neither of them in the others. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("cohere2", "true"),
    LATHE_DECODER_FIELDS("8192"),
    LATHE_POSITIVE("layer_norm_eps", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_POSITIVE("logit_scale", "0.0625", 1e9, "factor of the logits"),
    LATHE_WINDOW_FIELD("4096", "keys that a query sees in a layer with a window, itself included; "
                               "null: all, and no layer has rotary positions"),
    LATHE_FIELD_INT("sliding_window_pattern", "4", 1, 10000.0, "layers",
                    "each layer whose number is a multiple of this has neither window nor rotary "
                    "positions, where layer_types is unset"),
    LATHE_FIELD_STRINGS(
        "layer_types",
        "sliding_attention or full_attention for each layer; unset: by sliding_window_pattern"),
};

static const lathe_model_type types[] = {{"cohere2", "Cohere2ForCausalLM"}};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, .attention_norm = "input_layernorm"};

static void set_layer(lathe_decoder *d, const lathe_keys *k, int32_t i)
{
    lathe_decoder_layer *l = &d->layers[i];
    const int64_t pattern = lathe_key_int(k, "sliding_window_pattern");
    if (lathe_layer_is(k, i, "sliding_attention", pattern > 0 && (i + 1) % pattern != 0))
        d->shapes[i].window = (int32_t)lathe_key_int(k, "sliding_window");
    l->names = &names;
    l->rope = d->shapes[i].window > 0 ? 0 : -1;
    l->norm = LATHE_OP_LAYERNORM;
    l->norm_no_bias = l->parallel = l->interleaved = 1;
    l->activation = lathe_key_activation(k, "hidden_act");
    l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    LATHE_TRY(lathe_layer_types_check(k, d->info.n_layers, "sliding_attention|full_attention",
                                      "expected sliding_attention or full_attention"));
    lathe_decoder_rope(d, 10000.0);
    d->norm_eps = lathe_key_float(k, "layer_norm_eps");
    d->info.head_scale = lathe_key_float(k, "logit_scale");
    for (int32_t i = 0; i < d->info.n_layers; i++)
        set_layer(d, k, i);
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(cohere2, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Command R7B, Command A: local layers, and global ones without "
                                "positions",
                     .source = "arXiv:2504.00698; transformers", .license = "Apache-2.0");
