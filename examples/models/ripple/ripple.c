/* ripple: a decoder whose last hidden states are mixed with those of the three tokens before, by
 * the op plugin short_conv. It keeps a state while text is generated, of which this file knows
 * nothing. */
#include <lathe/kit/decoder_family.h>

enum { TAPS = 4 };

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("ripple", "true"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
};

static const lathe_model_type types[] = {{"ripple", "RippleForCausalLM"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    (void)k;
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    return LATHE_OK;
}

/* The convolution's weight belongs to no linear layer: no adapter wraps it, no format encodes it.
 */
static lathe_status
tensors(void *self, lathe_status (*add)(void *ctx, const lathe_model_tensor *tensor), void *ctx)
{
    const lathe_decoder *d = self;
    const lathe_model_tensor taps = {.name = "model.ripple.weight",
                                     .rows = d->info.width,
                                     .cols = TAPS,
                                     .init_scale = 0.3,
                                     .role = LATHE_ROLE_CONV,
                                     .layer = -1,
                                     .init = LATHE_INIT_NORMAL};
    LATHE_TRY(lathe_decoder_tensors(self, add, ctx));
    return add(ctx, &taps);
}

static lathe_status build(void *self, const lathe_model_builder *b, lathe_val *out)
{
    lathe_val h, w, sum[2];
    lathe_desc d;
    LATHE_TRY(lathe_decoder_build(self, b, &h));
    LATHE_TRY(b->api->desc(b->graph, h, &d));
    LATHE_TRY(b->tensor(b->ctx, "model.ripple.weight", &w));
    const lathe_op_attr attrs[] = {LATHE_ATTR_INT("tokens", d.dims[0] / b->batch),
                                   LATHE_ATTR_STRING("activation", "silu")};
    const lathe_val in[4] = {h, w, LATHE_NONE, b->doc_start};
    LATHE_TRY(b->api->op(b->graph, "short_conv", attrs, 2, in, 4, &sum[1], 1, "ripple"));
    sum[0] = h;
    return b->api->node(b->graph, LATHE_OP_ADD, NULL, sum, 2, out, 1, -1, "ripple.sum");
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
                                     .tensors = tensors,
                                     .build = build};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_MODEL,
    .revision = LATHE_MODEL_REVISION,
    .name = "ripple",
    .version = "0.1.0",
    .summary = "a decoder that mixes neighbouring tokens once more",
    .source = "an example",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
    .destroy = lathe_decoder_destroy,
    LATHE_PLUGIN_FIELDS,
};
