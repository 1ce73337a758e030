/* Mistral: Llama with a sliding window, in all layers or in those that layer_types names
 * (Ministral, which is how transformers reads a mistral with the key). */
#include <lathe/kit/decoder_family.h>
#include <lathe/kit/wrappers.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("mistral|ministral", "false"),
    LATHE_DECODER_FIELDS("131072"),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish", "activation of the MLP"),
    LATHE_WINDOW_FIELD("4096", "keys that a query sees, itself included; null: all"),
    LATHE_FIELD_STRINGS("layer_types", "sliding_attention or full_attention for each layer; unset: "
                                       "all layers have the window"),
};

static const lathe_model_type types[] = {{"mistral", "MistralForCausalLM"},
                                         {"ministral", "MinistralForCausalLM"}};

/* MistralConfig and MinistralConfig of transformers 5.24, where they are not the defaults of the
 * fields. */
#define DEFAULTS                                                                                   \
    "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 14336, "                \
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "                                     \
    "\"num_key_value_heads\": 8, \"bos_token_id\": 1, \"eos_token_id\": 2}"
static const char *const defaults[] = {DEFAULTS, DEFAULTS};

static const lathe_model_wrapper wrappers[] = {LATHE_AUTO_WRAPPERS};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    LATHE_TRY(lathe_layer_types_check(k, d->info.n_layers, "sliding_attention|full_attention",
                                      "expected sliding_attention or full_attention"));
    for (int32_t i = 0; i < d->info.n_layers; i++)
        if (lathe_layer_is(k, i, "sliding_attention", 1))
            d->shapes[i].window = (int32_t)lathe_key_int(k, "sliding_window");
    return LATHE_OK;
}

LATHE_DECODER_FAMILY_IN_WRAPPERS(mistral, types, defaults, wrappers, NULL, 0, read,
                                 .version = "1.0.0",
                                 .summary = "Mistral: Llama with a sliding window",
                                 .source = "arXiv:2310.06825; transformers",
                                 .license = "Apache-2.0");
