/* braid: attention and MLP side by side, LayerNorm, rotary positions, tanh-GELU, and a penalty on
 * the hidden states. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("braid", "true"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the variance in LayerNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_FLOAT("hidden_penalty", "1e-4", 0.0, 1.0, "1",
                      "factor of the sum of squares of the last hidden states in the loss"),
};

static const lathe_model_type types[] = {{"braid", "BraidForCausalLM"}};

static const lathe_layer_names names = {.q = "self_attn.q_proj",
                                        .k = "self_attn.k_proj",
                                        .v = "self_attn.v_proj",
                                        .o = "self_attn.o_proj",
                                        .up = "mlp.up_proj",
                                        .down = "mlp.down_proj",
                                        .attention_norm = "norm_1",
                                        .mlp_norm = "norm_2"};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    (void)k;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        d->layers[i].names = &names;
        d->layers[i].norm = LATHE_OP_LAYERNORM;
        d->layers[i].activation = LATHE_ACT_GELU_TANH;
        d->layers[i].parallel = 1;
    }
    return LATHE_OK;
}

/* The decoder's graph, then the figure: sum of h^2 over all tokens and channels. */
static lathe_status build(void *self, const lathe_model_builder *b, lathe_val *out)
{
    const lathe_decoder *d = self;
    const lathe_decoder_at at = {.d = d, .b = b, .layer = -1};
    const lathe_op_attrs to_f32 = {.dtype = LATHE_F32};
    lathe_val h;
    LATHE_TRY(lathe_decoder_build(self, b, out));
    LATHE_TRY(lathe_decoder_node(&at, LATHE_OP_CAST, &to_f32, out, 1, "hidden", &h));
    const lathe_val pair[2] = {h, h};
    LATHE_TRY(lathe_decoder_node(&at, LATHE_OP_MUL, NULL, pair, 2, "hidden square", &h));
    LATHE_TRY(lathe_decoder_node(&at, LATHE_OP_SUM, NULL, &h, 1, "hidden square", &h));
    return b->report(b->ctx, "hidden_square", h, lathe_key_float(&d->keys, "hidden_penalty"));
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    return lathe_decoder_create(host, fields, values, n_values, read, out_self);
}

static const lathe_model_v1 table = {.size = (uint32_t)sizeof table,
                                     .revision = LATHE_MODEL_REVISION,
                                     .types = types,
                                     .n_types = LATHE_N_FIELDS(types),
                                     .describe = lathe_decoder_describe,
                                     .tensors = lathe_decoder_tensors,
                                     .build = build};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_MODEL,
    .revision = LATHE_MODEL_REVISION,
    .name = "braid",
    .version = "0.1.0",
    .summary = "attention and MLP side by side, with a penalty on the hidden states",
    .source = "an example",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
    .destroy = lathe_decoder_destroy,
    LATHE_PLUGIN_FIELDS,
};
