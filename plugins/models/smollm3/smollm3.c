/* SmolLM3: Llama in which some layers, every fourth one as a rule, have no rotary positions. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("smollm3", "true"),
    LATHE_DECODER_FIELDS_OF(
        "32768", LATHE_KV_HEADS_FIELD("4"),
        LATHE_HEAD_DIM_FIELD(NULL, "size of a head; unset: hidden_size / num_attention_heads")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("2000000.0"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_FIELD_BOOL("mlp_bias", "false", "biases in the MLP"),
    {"no_rope_layers", LATHE_T_FLOAT_LIST, LATHE_FIELD_WHOLE, NULL, LATHE_NO_RANGE, NULL, NULL,
     "0 for each layer without rotary positions, 1 for the others; unset: by "
     "no_rope_layer_interval"},
    LATHE_FIELD_INT("no_rope_layer_interval", "4", 1, 10000.0, "layers",
                    "each layer whose number is a multiple of this has no rotary positions"),
    LATHE_FIELD_BOOL("use_sliding_window", "false",
                     "layers without rotary positions have the window of sliding_window, where "
                     "layer_types is unset"),
    LATHE_WINDOW_FIELD(NULL, "keys that a query sees in a layer with a window, itself included"),
    LATHE_FIELD_STRINGS(
        "layer_types",
        "sliding_attention or full_attention for each layer; unset: by use_sliding_window"),
};

static const lathe_model_type types[] = {{"smollm3", "SmolLM3ForCausalLM"}};

static lathe_status check(const lathe_decoder *d, const lathe_keys *k)
{
    const lathe_value *rotates = lathe_key(k, "no_rope_layers");
    const int64_t window = lathe_key_int(k, "sliding_window");
    if (rotates->is_set && rotates->n < d->info.n_layers)
        return lathe_fail_at(d->host, LATHE_E_CONFIG, "no_rope_layers",
                             "no_rope_layers has %lld numbers for %d layers; expected one for each",
                             (long long)rotates->n, (int)d->info.n_layers);
    return lathe_layer_types_check(
        k, d->info.n_layers, window > 0 ? "full_attention|sliding_attention" : "full_attention",
        "only full_attention is supported without sliding_window");
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const lathe_value *rotates = lathe_key(k, "no_rope_layers");
    const int64_t interval = lathe_key_int(k, "no_rope_layer_interval");
    const int used = (int)lathe_key_int(k, "use_sliding_window");
    LATHE_TRY(lathe_decoder_shape(d, 0));
    LATHE_TRY(check(d, k));
    lathe_decoder_rope(d, 2000000.0);
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        const int has_rope = rotates->is_set ? rotates->nums[i] != 0.0 : (i + 1) % interval != 0;
        l->rope = has_rope ? 0 : -1;
        if (lathe_layer_is(k, i, "sliding_attention", used && !has_rope))
            d->shapes[i].window = (int32_t)lathe_key_int(k, "sliding_window");
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
        l->mlp_bias = (int32_t)lathe_key_int(k, "mlp_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(smollm3, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "SmolLM3: Llama with layers without rotary positions",
                     .source = "huggingface.co/blog/smollm3, arXiv:2501.18795; transformers",
                     .license = "Apache-2.0");
