/* Parts that layers with a decaying state share: the gated delta rule (decoder_delta.h) and Mamba-2
 * (decoder_mamba.h). */
#ifndef LATHE_KIT_DECODER_SCAN_H
#define LATHE_KIT_DECODER_SCAN_H

#include "decoder_graph.h"

/** *io in f32. */
static inline lathe_status lathe_decoder_wide(const lathe_decoder_at *at, const char *label,
                                              lathe_val *io)
{
    const lathe_op_attrs wide = {.dtype = LATHE_F32};
    lathe_desc d;
    LATHE_TRY(at->b->api->desc(at->b->graph, *io, &d));
    return d.dtype == LATHE_F32 ? LATHE_OK
                                : lathe_decoder_node(at, LATHE_OP_CAST, &wide, io, 1, label, io);
}

/** Refuses objectives that are not causal. what: what the layer has. */
static inline lathe_status lathe_decoder_scan_check(const lathe_decoder_at *at, const char *what)
{
    return at->b->key_end == LATHE_NONE
               ? LATHE_OK
               : lathe_fail(at->d->host, LATHE_E_UNSUPPORTED,
                            "layer %d has %s, which is causal: set stage.objective = \"causal\", "
                            "or choose another model",
                            (int)at->layer, what);
}

/** The vector `tensor` f32[H] of the layer, or e to its elements, as rows f32[N,H]: one for each
 *  row of `like`. */
static inline lathe_status lathe_decoder_rows_of(const lathe_decoder_at *at, const char *tensor,
                                                 lathe_val like, int32_t is_log, lathe_val *out)
{
    char name[256];
    lathe_val v;
    lathe_desc d;
    LATHE_TRY(at->b->api->desc(at->b->graph, like, &d));
    const lathe_op_attrs rows = {.count = d.dims[0], .dtype = LATHE_F32};
    lathe_decoder_name(at, tensor, name, sizeof name);
    LATHE_TRY(at->b->tensor(at->b->ctx, name, &v));
    if (is_log)
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_EXP, NULL, &v, 1, tensor, &v));
    return lathe_decoder_node(at, LATHE_OP_BROADCAST_ROW, &rows, &v, 1, tensor, out);
}

/** -softplus(a + bias) f32[N,H] = log sigmoid(-(a + bias)); bias: a vector of the layer. */
static inline lathe_status lathe_decoder_negative_softplus(const lathe_decoder_at *at, lathe_val a,
                                                           const char *bias, const char *label,
                                                           lathe_val *out)
{
    const lathe_op_attrs negative = {.alpha = -1.0};
    lathe_val in[2] = {a, LATHE_NONE};
    LATHE_TRY(lathe_decoder_rows_of(at, bias, a, 0, &in[1]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_ADD, NULL, in, 2, label, &in[0]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_SCALE, &negative, in, 1, label, &in[0]));
    return lathe_decoder_node(at, LATHE_OP_LOGSIGMOID, NULL, in, 1, label, out);
}

/** op/short_conv of x with taps w and a bias or LATHE_NONE, labelled by the module. */
static inline lathe_status lathe_decoder_short_conv(const lathe_decoder_at *at, const char *module,
                                                    lathe_val x, lathe_val w, lathe_val bias,
                                                    int is_silu, lathe_val *out)
{
    const lathe_model_builder *b = at->b;
    const lathe_val in[4] = {x, w, bias, b->doc_start};
    char label[128];
    lathe_desc d;
    LATHE_TRY(b->api->desc(b->graph, x, &d));
    const lathe_op_attr attrs[] = {LATHE_ATTR_INT("tokens", d.dims[0] / b->batch),
                                   LATHE_ATTR_STRING("activation", is_silu ? "silu" : "none")};
    (void)snprintf(label, sizeof label, "layers.%d.%s", (int)at->layer, module);
    return b->api->op(b->graph, "short_conv", attrs, 2, in, 4, out, 1, label);
}

#endif
