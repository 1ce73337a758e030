/* Apertus: Llama with an MLP without a gate, whose activation xIELU has numbers of its own in each
 * layer, and norms of queries and keys. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("apertus", "false"),
    LATHE_DECODER_FIELDS("65536"),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_POSITIVE("rope_theta", "12000000.0", 1e18, "base of the rotary frequencies"),
    LATHE_FIELD_TABLE("rope_scaling", "RoPE scaling: rope_type, factor, ...; without it and "
                                      "rope_parameters: llama3, 8 times 8192 positions"),
    LATHE_FIELD_TABLE("rope_parameters",
                      "the newer form of rope_scaling, which holds rope_theta too"),
    LATHE_FIELD_STRING("hidden_act", "\"xielu\"", "xielu|" LATHE_ACTIVATIONS,
                       "activation of the MLP"),
    LATHE_FIELD_BOOL("attention_bias", "false", "biases in the attention projections"),
};

static const lathe_model_type types[] = {{"apertus", "ApertusForCausalLM"}};

static const lathe_layer_names names = {.q = "self_attn.q_proj",
                                        .k = "self_attn.k_proj",
                                        .v = "self_attn.v_proj",
                                        .o = "self_attn.o_proj",
                                        LATHE_QK_NORM_NAMES,
                                        .up = "mlp.up_proj",
                                        .down = "mlp.down_proj",
                                        .xielu = "mlp.act_fn",
                                        .attention_norm = "attention_layernorm",
                                        .mlp_norm = "feedforward_layernorm"};

/* ApertusConfig of transformers 5.24, without rope_parameters. */
static const char settings[] =
    "{\"rope_type\": \"llama3\", \"rope_theta\": 12000000.0, \"factor\": 8.0, "
    "\"original_max_position_embeddings\": 8192, \"low_freq_factor\": 1.0, "
    "\"high_freq_factor\": 4.0}";

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 12000000.0);
    d->ropes[0].settings = settings;
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        l->names = &names;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(apertus, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "Apertus: xIELU with numbers of its own in each layer",
                     .source = "arXiv:2509.14233, arXiv:2411.13010; transformers",
                     .license = "Apache-2.0");
