/* A decoder that reports the sum of squares of its hidden states, as a figure and as an auxiliary
 * loss, or reports what the core must refuse. */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("reporter", "false"),
    LATHE_DECODER_FIELDS("64"),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_FIELD_FLOAT("penalty", "0.0", -1.0, 1.0, "1", "weight of the auxiliary loss"),
    LATHE_FIELD_STRING("fault", "\"none\"", "none|twice|unnamed|row|nine", "what is wrong"),
};

static const lathe_model_type types[] = {{"reporter", "ReporterForCausalLM"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    (void)k;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    return LATHE_OK;
}

static lathe_status report_faulty(const lathe_model_builder *b, const char *fault, lathe_val square,
                                  lathe_val sum)
{
    char name[16];
    if (strcmp(fault, "twice") == 0)
        return b->report(b->ctx, "square", sum, 0.0);
    if (strcmp(fault, "unnamed") == 0)
        return b->report(b->ctx, "", sum, 0.0);
    if (strcmp(fault, "row") == 0)
        return b->report(b->ctx, "row", square, 0.0);
    for (int i = 0; strcmp(fault, "nine") == 0 && i < 8; i++) {
        (void)snprintf(name, sizeof name, "figure_%d", i);
        LATHE_TRY(b->report(b->ctx, name, sum, 0.0));
    }
    return LATHE_OK;
}

static lathe_status build(void *self, const lathe_model_builder *b, lathe_val *out)
{
    const lathe_decoder *d = self;
    const lathe_decoder_at at = {.d = d, .b = b, .layer = -1};
    const lathe_op_attrs to_f32 = {.dtype = LATHE_F32};
    lathe_val h, sum;
    LATHE_TRY(lathe_decoder_build(self, b, out));
    LATHE_TRY(lathe_decoder_node(&at, LATHE_OP_CAST, &to_f32, out, 1, "hidden", &h));
    const lathe_val pair[2] = {h, h};
    LATHE_TRY(lathe_decoder_node(&at, LATHE_OP_MUL, NULL, pair, 2, "square", &h));
    LATHE_TRY(lathe_decoder_node(&at, LATHE_OP_SUM, NULL, &h, 1, "square", &sum));
    LATHE_TRY(b->report(b->ctx, "square", sum, 0.0));
    if (lathe_key_float(&d->keys, "penalty") != 0.0)
        LATHE_TRY(b->report(b->ctx, "penalty", sum, lathe_key_float(&d->keys, "penalty")));
    return report_faulty(b, lathe_key(&d->keys, "fault")->s, h, sum);
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
    .name = "reporter",
    .version = "1.0.0",
    .summary = "a decoder with a penalty on its hidden states",
    .source = "a test",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
    .destroy = lathe_decoder_destroy,
    LATHE_PLUGIN_FIELDS,
};
