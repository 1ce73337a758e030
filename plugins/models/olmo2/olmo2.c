/* OLMo 2: Llama with the norms after attention and MLP, and with RMSNorm over all heads of q
 * together and of k together. */
#include <lathe/kit/decoder_family.h>
#include <lathe/kit/wrappers.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("olmo2", "false"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish", "activation of the MLP"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
};

static const lathe_model_type types[] = {{"olmo2", "Olmo2ForCausalLM"}};

/* Olmo2Config of transformers 5.24, where they are not the defaults of the fields. */
static const char *const defaults[] = {
    "{\"vocab_size\": 50304, \"hidden_size\": 4096, \"intermediate_size\": 11008, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
    "\"eos_token_id\": 50279, \"pad_token_id\": 1}"};

static const lathe_model_wrapper wrappers[] = {LATHE_AUTO_WRAPPERS};

static const lathe_layer_names names = {LATHE_LINEAR_NAMES, LATHE_QK_NORM_NAMES,
                                        .attention_out_norm = "post_attention_layernorm",
                                        .mlp_out_norm = "post_feedforward_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names;
        l->whole_qk_norm = 1;
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY_IN_WRAPPERS(
    olmo2, types, defaults, wrappers, NULL, 0, read, .version = "1.0.0",
    .summary = "OLMo 2: norms after attention and MLP, normed queries and keys",
    .source = "arXiv:2501.00656; transformers", .license = "Apache-2.0");
