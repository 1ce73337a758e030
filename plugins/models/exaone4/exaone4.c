/* EXAONE 4: norms after attention and MLP, RMSNorm of queries and keys; where some layers have a
 * window, the others have no rotary positions. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("exaone4", "false"),
    LATHE_DECODER_FIELDS_OF(
        "2048", LATHE_KV_HEADS_FIELD("32"),
        LATHE_HEAD_DIM_FIELD(NULL, "size of a head; unset: hidden_size / num_attention_heads")),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_WINDOW_FIELD("4096", "keys that a query sees in a layer with a window, itself included; "
                               "null: no layer has one, and all have rotary positions"),
    {"sliding_window_pattern", LATHE_T_INT, LATHE_FIELD_NULLABLE | LATHE_FIELD_OR_TEXT, "4", 0,
     10000.0, NULL, "layers",
     "each layer whose number is a multiple of this has neither window nor rotary positions, where "
     "layer_types is unset, 0: none; with layer_types also a text such as \"LLLG\", which is not "
     "read"},
    LATHE_FIELD_STRINGS(
        "layer_types",
        "sliding_attention or full_attention for each layer; unset: by sliding_window_pattern"),
};

static const lathe_model_type types[] = {{"exaone4", "Exaone4ForCausalLM"}};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, LATHE_QK_NORM_NAMES,
                                        .attention_out_norm = "post_attention_layernorm",
                                        .mlp_out_norm = "post_feedforward_layernorm"};

static lathe_status check(const lathe_decoder *d, const lathe_keys *k)
{
    const lathe_value *pattern = lathe_key(k, "sliding_window_pattern");
    const int windowed = lathe_key_is_set(k, "sliding_window");
    if (windowed && pattern->is_set && pattern->type == LATHE_T_STRING &&
        !lathe_key_is_set(k, "layer_types"))
        return lathe_key_refuse(k, "sliding_window_pattern",
                                "expected a number, or layer_types beside it");
    return lathe_layer_types_check(
        k, d->info.n_layers, windowed ? "sliding_attention|full_attention" : "full_attention",
        windowed ? "expected sliding_attention or full_attention"
                 : "only full_attention is supported without sliding_window");
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const int64_t window = lathe_key_int(k, "sliding_window");
    const int64_t pattern = window > 0 ? lathe_key_int(k, "sliding_window_pattern") : 0;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    LATHE_TRY(check(d, k));
    lathe_decoder_rope(d, 10000.0);
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        if (lathe_layer_is(k, i, "sliding_attention", pattern > 0 && (i + 1) % pattern != 0))
            d->shapes[i].window = (int32_t)window;
        l->names = &names;
        l->rope = window == 0 || d->shapes[i].window > 0 ? 0 : -1;
        l->activation = lathe_key_activation(k, "hidden_act");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(exaone4, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "EXAONE 4: local layers, and global ones without positions",
                     .source = "arXiv:2507.11407; transformers", .license = "Apache-2.0");
