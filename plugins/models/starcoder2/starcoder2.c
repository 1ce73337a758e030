/* StarCoder2: grouped attention with rotary positions, LayerNorm, an MLP without a gate, biases. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("starcoder2", "true"),
    LATHE_DECODER_FIELDS_OF(
        "4096", LATHE_KV_HEADS_FIELD("2"),
        LATHE_HEAD_DIM_FIELD(NULL, "size of a head; unset: hidden_size / num_attention_heads")),
    LATHE_POSITIVE("norm_epsilon", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_STRING("hidden_act", "\"gelu_pytorch_tanh\"", LATHE_ACTIVATIONS,
                       "activation of the MLP"),
    LATHE_FIELD_BOOL("use_bias", "true", "biases in all linear layers"),
    LATHE_WINDOW_FIELD(NULL, "keys that a query sees, itself included; null: all"),
    LATHE_FIELD_FLOAT("residual_dropout", "0.0", 0.0, 1.0, "1",
                      "dropout of what attention and MLP add; training applies none"),
    LATHE_FIELD_FLOAT("embedding_dropout", "0.0", 0.0, 1.0, "1",
                      "dropout of the embeddings; training applies none"),
};

static const lathe_model_type types[] = {{"starcoder2", "Starcoder2ForCausalLM"}};

static const lathe_layer_names names = {.q = "self_attn.q_proj",
                                        .k = "self_attn.k_proj",
                                        .v = "self_attn.v_proj",
                                        .o = "self_attn.o_proj",
                                        .up = "mlp.c_fc",
                                        .down = "mlp.c_proj",
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    d->norm_eps = lathe_key_float(k, "norm_epsilon");
    /* the published models have dropouts with which few fine-tune */
    d->info.warns_of_dropout = 1;
    lathe_decoder_dropout(d, "residual_dropout");
    lathe_decoder_dropout(d, "embedding_dropout");
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        d->shapes[i].window = (int32_t)lathe_key_int(k, "sliding_window");
        l->names = &names;
        l->norm = LATHE_OP_LAYERNORM;
        l->activation = lathe_key_activation(k, "hidden_act");
        l->qkv_bias = l->out_bias = l->mlp_bias = (int32_t)lathe_key_int(k, "use_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(starcoder2, types, NULL, 0, read, .version = "1.0.0",
                     .summary = "StarCoder2: LayerNorm, biases, an MLP without a gate",
                     .source = "arXiv:2402.19173; transformers", .license = "Apache-2.0");
