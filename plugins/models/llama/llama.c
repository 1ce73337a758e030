/* Llama: RMSNorm, rotary positions, grouped attention, SwiGLU. */
#include <lathe/kit/decoder_family.h>
#include <lathe/kit/wrappers.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("llama", "false"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish", "activation of the MLP"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
    LATHE_FIELD_BOOL("mlp_bias", "false", "biases in the MLP"),
    LATHE_FIELD_INT("sliding_window", NULL, 1, LATHE_ANY_POSITIONS, "tokens",
                    "changes nothing: Llama has no window"),
    LATHE_FIELD_STRINGS("layer_types", "full_attention for every layer"),
};

static const lathe_model_type types[] = {{"llama", "LlamaForCausalLM"}};

/* LlamaConfig of transformers 5.24, where they are not the defaults of the fields. */
static const char *const defaults[] = {
    "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 11008, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"bos_token_id\": 1, "
    "\"eos_token_id\": 2}"};

static const lathe_model_wrapper wrappers[] = {LATHE_AUTO_WRAPPERS};

/* Llama's attention has no window, but config.json may have the key, taken over from another
 * model. transformers evaluates such a model without a window, and generates with a window in
 * its cache. */
static void warn_of_window(const lathe_decoder *d, const lathe_keys *k)
{
    const int64_t window = lathe_key_int(k, "sliding_window");
    if (window > 0 && window < d->info.max_positions)
        lathe_warn(d->host,
                   "sliding_window is %lld and changes nothing: the attention of model_type llama "
                   "has no window",
                   (long long)window);
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    warn_of_window(d, k);
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
        l->mlp_bias = (int32_t)lathe_key_int(k, "mlp_bias");
    }
    return lathe_layer_types_check(k, d->info.n_layers, "full_attention",
                                   "only full_attention is supported");
}

LATHE_DECODER_FAMILY_IN_WRAPPERS(
    llama, types, defaults, wrappers, NULL, 0, read, .version = "1.0.0",
    .summary = "Llama: RMSNorm, rotary positions, grouped attention, SwiGLU",
    .source = "arXiv:2302.13971; transformers", .license = "Apache-2.0");
