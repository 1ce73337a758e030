/* Qwen2, with biases on q, k and v, and Qwen3, with RMSNorm over each head of q and k; otherwise as
 * Llama. Layers from max_window_layers on may have a sliding window. */
#include <lathe/kit/decoder_family.h>
#include <lathe/kit/wrappers.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("qwen2|qwen3", "false"),
    LATHE_DECODER_FIELDS_WITH(
        "32768",
        LATHE_HEAD_DIM_FIELD(
            NULL,
            "size of a head; unset: 128 in qwen3, hidden_size / num_attention_heads in qwen2")),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish", "activation of the MLP"),
    LATHE_FIELD_BOOL("attention_bias", "false",
                     "qwen3: biases in the attention projections; qwen2 has them on q, k and v"),
    LATHE_FIELD_BOOL("use_sliding_window", "false",
                     "layers from max_window_layers on have the window of sliding_window"),
    LATHE_WINDOW_FIELD("4096", "keys that a query sees, itself included; null: all"),
    LATHE_FIELD_INT("max_window_layers", "28", 0, LATHE_ANY_POSITIONS, "layers",
                    "first layer with a window"),
    LATHE_FIELD_STRINGS(
        "layer_types",
        "full_attention or sliding_attention for each layer; unset: by max_window_layers"),
};

static const lathe_model_type types[] = {{"qwen2", "Qwen2ForCausalLM"},
                                         {"qwen3", "Qwen3ForCausalLM"}};

/* Qwen2Config and Qwen3Config of transformers 5.24, where they are not the defaults of the fields.
 */
#define DEFAULTS                                                                                   \
    "{\"vocab_size\": 151936, \"hidden_size\": 4096, \"intermediate_size\": 22016, "               \
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "                                     \
    "\"num_key_value_heads\": 32}"
static const char *const defaults[] = {DEFAULTS, DEFAULTS};

/* The files of Qwen2-VL and Qwen2.5-VL name the text model as one without towers. */
static const lathe_tower_names vl_names[] = {{"model.language_model.", ""}, {"model.", ""}};

/* Qwen2VLTextConfig and Qwen2_5_VLTextConfig. */
#define QWEN2_VL_DEFAULTS                                                                          \
    "{\"vocab_size\": 152064, \"hidden_size\": 8192, \"intermediate_size\": 29568, "               \
    "\"num_hidden_layers\": 80, \"num_attention_heads\": 64, "                                     \
    "\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, "                                        \
    "\"rope_theta\": 1000000.0, \"max_window_layers\": 80, "                                       \
    "\"bos_token_id\": 151643, \"eos_token_id\": 151645}"

/* Qwen3VLTextConfig. */
#define QWEN3_VL_DEFAULTS                                                                          \
    "{\"vocab_size\": 151936, \"hidden_size\": 4096, \"intermediate_size\": 22016, "               \
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "                                     \
    "\"num_key_value_heads\": 32, \"max_position_embeddings\": 128000, "                           \
    "\"rope_theta\": 500000.0}"

static const lathe_model_wrapper wrappers[] = {
    {.model_type = "qwen2_vl",
     .architecture = "Qwen2VLForConditionalGeneration",
     .text_key = "text_config",
     .serves = "qwen2",
     .defaults = QWEN2_VL_DEFAULTS,
     .names = vl_names,
     .n_names = LATHE_N_FIELDS(vl_names),
     .flags = LATHE_WRAPPER_FLAT | LATHE_WRAPPER_MROPE | LATHE_WRAPPER_TIED_BY_TEXT},
    {.model_type = "qwen2_5_vl",
     .architecture = "Qwen2_5_VLForConditionalGeneration",
     .text_key = "text_config",
     .serves = "qwen2",
     .defaults = QWEN2_VL_DEFAULTS,
     .names = vl_names,
     .n_names = LATHE_N_FIELDS(vl_names),
     .flags = LATHE_WRAPPER_FLAT | LATHE_WRAPPER_MROPE | LATHE_WRAPPER_TIED_BY_TEXT},
    {.model_type = "qwen3_vl",
     .architecture = "Qwen3VLForConditionalGeneration",
     .text_key = "text_config",
     .serves = "qwen3",
     .defaults = QWEN3_VL_DEFAULTS,
     .names = lathe_language_model_names,
     .n_names = LATHE_N_FIELDS(lathe_language_model_names),
     .flags = LATHE_WRAPPER_MROPE},
    LATHE_AUTO_WRAPPERS};

static const lathe_layer_names qwen3_names = {LATHE_LINEAR_NAMES, LATHE_QK_NORM_NAMES,
                                              .attention_norm = "input_layernorm",
                                              .mlp_norm = "post_attention_layernorm"};

/* Sets the window of each layer. A window that covers all of the model's positions has no
 * effect. */
static lathe_status read_windows(lathe_decoder *d, const lathe_keys *k)
{
    const int64_t asked = lathe_key_int(k, "sliding_window");
    const int used = lathe_key_int(k, "use_sliding_window") && asked > 0;
    const int64_t first = lathe_key_int(k, "max_window_layers");
    const int32_t window = used && asked < d->info.max_positions ? (int32_t)asked : 0;
    LATHE_TRY(lathe_layer_types_check(
        k, d->info.n_layers, used ? "full_attention|sliding_attention" : "full_attention",
        "only full_attention is supported without use_sliding_window and sliding_window"));
    for (int32_t i = 0; i < d->info.n_layers; i++)
        if (lathe_layer_is(k, i, "sliding_attention", used && i >= first))
            d->shapes[i].window = window;
    return LATHE_OK;
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    const lathe_value *type = lathe_key(k, "model_type");
    const int is_qwen3 = type->is_set && strcmp(type->s, "qwen3") == 0;
    /* independent of the width, as in transformers */
    LATHE_TRY(lathe_decoder_shape(d, is_qwen3 ? 128 : 0));
    lathe_decoder_rope(d, 10000.0);
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->out_bias = is_qwen3 && lathe_key_int(k, "attention_bias");
        l->qkv_bias = is_qwen3 ? l->out_bias : 1;
        if (is_qwen3)
            l->names = &qwen3_names;
    }
    return read_windows(d, k);
}

LATHE_DECODER_FAMILY_IN_WRAPPERS(
    qwen, types, defaults, wrappers, NULL, 0, read, .version = "1.0.0",
    .summary = "Qwen2 and Qwen3: Llama with biases or normed queries and keys",
    .source = "arXiv:2407.10671, arXiv:2505.09388; transformers", .license = "Apache-2.0");
