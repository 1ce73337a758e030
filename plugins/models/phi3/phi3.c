/* Phi-3: Llama with one projection for q, k and v, one for gate and up, and longrope. */
#include <lathe/kit/decoder_family.h>
#include <lathe/kit/wrappers.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("phi3", "false"),
    LATHE_DECODER_FIELDS("4096"),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_INT(
        "original_max_position_embeddings", NULL, 1, LATHE_ANY_POSITIONS, "tokens",
        "longrope: batches with longer rows use its long factors, all others its short factors"),
    LATHE_POSITIVE("partial_rotary_factor", "1.0", 1.0,
                   "share of the channels of each head that are rotated, from the first on"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish", "activation of the MLP"),
    {"sliding_window", LATHE_T_INT, LATHE_FIELD_NULLABLE, NULL, 1, LATHE_ANY_POSITIONS, NULL,
     "tokens", "keys that a query sees, itself included; null: all"},
    LATHE_FIELD_FLOAT("embd_pdrop", "0.0", 0.0, 1.0, "1",
                      "dropout of the embeddings; training applies none"),
    LATHE_FIELD_FLOAT("resid_pdrop", "0.0", 0.0, 1.0, "1",
                      "dropout of the residual stream; training applies none"),
};

static const lathe_model_type types[] = {{"phi3", "Phi3ForCausalLM"}};

/* Phi3Config of transformers 5.24, where they are not the defaults of the fields. */
static const char *const defaults[] = {
    "{\"vocab_size\": 32064, \"hidden_size\": 3072, \"intermediate_size\": 8192, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"bos_token_id\": 1, "
    "\"eos_token_id\": 32000, \"pad_token_id\": 32000, "
    "\"original_max_position_embeddings\": 4096}"};

static const lathe_model_wrapper wrappers[] = {LATHE_AUTO_WRAPPERS};

static const lathe_layer_names names = {.qkv = "self_attn.qkv_proj",
                                        .o = "self_attn.o_proj",
                                        .gate_up = "mlp.gate_up_proj",
                                        .down = "mlp.down_proj",
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    lathe_decoder_partial_rope(d, "partial_rotary_factor", 1.0);
    d->ropes[0].flags = LATHE_ROPE_LONG_ONLY;
    lathe_decoder_dropout(d, "embd_pdrop");
    lathe_decoder_dropout(d, "resid_pdrop");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        d->layers[i].names = &names;
        d->shapes[i].window = (int32_t)lathe_key_int(k, "sliding_window");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY_IN_WRAPPERS(phi3, types, defaults, wrappers, NULL, 0, read, .version = "1.0.0",
                                 .summary = "Phi-3: fused projections, longrope",
                                 .source = "arXiv:2404.14219; transformers",
                                 .license = "Apache-2.0");
