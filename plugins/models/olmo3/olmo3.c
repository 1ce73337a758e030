/* OLMo 3: OLMo 2 with a sliding window in most layers, which have rotary settings of their own. */
#include <lathe/kit/decoder_family.h>

#define THETA 500000.0 /* of both types of layers */

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("olmo3", "false"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_POSITIVE("rope_theta", "500000.0", 1e18,
                   "base of the rotary frequencies of layers without a window; those with one have "
                   "500000, unless rope_parameters says otherwise"),
    LATHE_FIELD_TABLE("rope_scaling",
                      "RoPE scaling of the layers without a window: rope_type, factor, ..."),
    LATHE_FIELD_TABLE("rope_parameters",
                      "the newer form: { sliding_attention = {...}, full_attention = {...} }"),
    LATHE_HIDDEN_ACT_FIELD,
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_WINDOW_FIELD("4096", "keys that a query sees in a layer with a window, itself included"),
    LATHE_FIELD_STRINGS("layer_types", "sliding_attention or full_attention for each layer; unset: "
                                       "every fourth layer has no window"),
};

static const lathe_model_type types[] = {{"olmo3", "Olmo3ForCausalLM"}};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, LATHE_QK_NORM_NAMES,
                                        .attention_out_norm = "post_attention_layernorm",
                                        .mlp_out_norm = "post_feedforward_layernorm"};

static void set_ropes(lathe_decoder *d)
{
    const int32_t dims = d->shapes[0].head_dim;
    d->ropes[0] = (lathe_rope_use){.layer_type = "sliding_attention",
                                   .theta = THETA,
                                   .dims = dims,
                                   .flags = LATHE_ROPE_UNSCALED | LATHE_ROPE_FIXED_THETA};
    d->ropes[1] = (lathe_rope_use){.layer_type = "full_attention", .theta = THETA, .dims = dims};
    d->info.n_ropes = 2;
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    LATHE_TRY(lathe_layer_types_check(k, d->info.n_layers, "sliding_attention|full_attention",
                                      "expected sliding_attention or full_attention"));
    set_ropes(d);
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        const int slides = lathe_layer_is(k, i, "sliding_attention", (i + 1) % 4 != 0);
        d->shapes[i].window = slides ? (int32_t)lathe_key_int(k, "sliding_window") : 0;
        l->rope = slides ? 0 : 1;
        l->names = &names;
        l->whole_qk_norm = 1;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(olmo3, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "OLMo 3: OLMo 2 with local and global layers",
                     .source = "arXiv:2512.13961; transformers", .license = "Apache-2.0");
