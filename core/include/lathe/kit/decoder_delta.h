/* Layers with the gated delta rule instead of attention (op/gated_delta), in a decoder
 * (lathe/kit/decoder.h): their graph and their tensors. The names are those of transformers. */
#ifndef LATHE_KIT_DECODER_DELTA_H
#define LATHE_KIT_DECODER_DELTA_H

#include "decoder_scan.h"

/** x times the sigmoid of `gate`, both c[N,W]. The sigmoid is computed in f32. */
static inline lathe_status lathe_decoder_sigmoid_gate(const lathe_decoder_at *at, lathe_val x,
                                                      lathe_val gate, const char *label,
                                                      lathe_val *out)
{
    lathe_val in[2] = {x, gate};
    lathe_desc d;
    LATHE_TRY(at->b->api->desc(at->b->graph, x, &d));
    const lathe_op_attrs back = {.dtype = d.dtype};
    LATHE_TRY(lathe_decoder_wide(at, label, &in[1]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_SIGMOID, NULL, &in[1], 1, label, &in[1]));
    if (d.dtype != LATHE_F32)
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_CAST, &back, &in[1], 1, label, &in[1]));
    return lathe_decoder_node(at, LATHE_OP_MUL, NULL, in, 2, label, out);
}

/** The `order` of lathe_decoder_split for rows that lie in groups: each of n_groups groups has
 *  counts[0] rows of the first part, then counts[1] of the second, and so on, for n parts; in the
 *  order, all rows of the first part come first. */
static inline lathe_status lathe_decoder_group_order(const lathe_decoder_at *at, int64_t n_groups,
                                                     const int64_t *counts, int32_t n,
                                                     const char *name, lathe_val *out)
{
    const lathe_host *host = at->d->host;
    int64_t each = 0, at_row = 0, before = 0;
    for (int32_t i = 0; i < n; i++)
        each += counts[i];
    const lathe_desc desc = {LATHE_I32, 1, {n_groups * each, 1, 1, 1}};
    int32_t *order = (int32_t *)host->alloc(n_groups * each * (int64_t)sizeof *order);
    if (order == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the order of %lld columns",
                          (long long)(n_groups * each));
    for (int32_t i = 0; i < n; before += counts[i++])
        for (int64_t g = 0; g < n_groups; g++)
            for (int64_t j = 0; j < counts[i]; j++)
                order[at_row++] = (int32_t)(g * each + before + j);
    const lathe_status status = at->b->constant(at->b->ctx, name, &desc, order, out);
    host->free(order);
    return status;
}

/** The projections of x: *qkv, *z, *b and *a, the latter two in f32[N,H]. */
static inline lathe_status lathe_delta_project(const lathe_decoder_at *at, lathe_val x,
                                               lathe_val *qkv, lathe_val *z, lathe_val *b,
                                               lathe_val *a)
{
    const lathe_delta_layer *l = at->d->layers[at->layer].delta;
    const int64_t group = l->n_heads / l->n_key_heads, values = group * l->value_dim;
    const int64_t rows[4] = {l->key_dim, l->key_dim, values, values}, numbers[2] = {group, group};
    const int64_t wide[2] = {(2 * l->key_dim + values) * l->n_key_heads, values * l->n_key_heads};
    const int64_t narrow[2] = {l->n_heads, l->n_heads};
    lathe_val all, order, parts[2];
    if (!l->fused) {
        LATHE_TRY(lathe_decoder_linear(at, "linear_attn.in_proj_qkv", 0, x, qkv));
        LATHE_TRY(lathe_decoder_linear(at, "linear_attn.in_proj_z", 0, x, z));
        LATHE_TRY(lathe_decoder_linear(at, "linear_attn.in_proj_b", 0, x, b));
        LATHE_TRY(lathe_decoder_linear(at, "linear_attn.in_proj_a", 0, x, a));
    } else {
        LATHE_TRY(lathe_decoder_linear(at, "linear_attn.in_proj_qkvz", 0, x, &all));
        LATHE_TRY(
            lathe_decoder_group_order(at, l->n_key_heads, rows, 4, "delta.qkvz.order", &order));
        LATHE_TRY(lathe_decoder_split(at, all, order, wide, 2, "delta.qkvz", parts));
        *qkv = parts[0];
        *z = parts[1];
        LATHE_TRY(lathe_decoder_linear(at, "linear_attn.in_proj_ba", 0, x, &all));
        LATHE_TRY(
            lathe_decoder_group_order(at, l->n_key_heads, numbers, 2, "delta.ba.order", &order));
        LATHE_TRY(lathe_decoder_split(at, all, order, narrow, 2, "delta.ba", parts));
        *b = parts[0];
        *a = parts[1];
    }
    LATHE_TRY(lathe_decoder_wide(at, "delta.beta", b));
    return lathe_decoder_wide(at, "delta.decay", a);
}

/** g f32[N,H] = -exp(A_log) softplus(a + dt_bias). */
static inline lathe_status lathe_delta_decay(const lathe_decoder_at *at, lathe_val a,
                                             lathe_val *out)
{
    lathe_val in[2];
    LATHE_TRY(lathe_decoder_negative_softplus(at, a, "linear_attn.dt_bias", "delta.decay", &in[0]));
    LATHE_TRY(lathe_decoder_rows_of(at, "linear_attn.A_log", a, 1, &in[1]));
    return lathe_decoder_node(at, LATHE_OP_MUL, NULL, in, 2, "delta.decay", out);
}

/** Makes the heads of x [N,H*D] vectors of length 1: x / sqrt(|x|^2 + 1e-6), an RMSNORM with
 *  1/sqrt(D) as its weights. */
static inline lathe_status lathe_delta_unit(const lathe_decoder_at *at, lathe_val x,
                                            const char *label, lathe_val *out)
{
    const lathe_host *host = at->d->host;
    const int32_t size = at->d->layers[at->layer].delta->key_dim;
    const lathe_desc desc = {LATHE_F32, 1, {size, 1, 1, 1}};
    const lathe_op_attrs attrs = {.eps = (float)(1e-6 / size)};
    lathe_val in[2] = {x, LATHE_NONE};
    float *weights = (float *)host->alloc(size * (int64_t)sizeof *weights);
    if (weights == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the norm of a head");
    for (int32_t i = 0; i < size; i++)
        weights[i] = (float)(1.0 / sqrt((double)size));
    const lathe_status status = at->b->constant(at->b->ctx, "delta.unit", &desc, weights, &in[1]);
    host->free(weights);
    LATHE_TRY(status);
    return lathe_decoder_node(at, LATHE_OP_RMSNORM, &attrs, in, 2, label, out);
}

/** The convolution of qkv along the tokens, then its parts: q and k of length 1, and v. */
static inline lathe_status lathe_delta_convolve(const lathe_decoder_at *at, lathe_val qkv,
                                                lathe_val out[3])
{
    const lathe_delta_layer *l = at->d->layers[at->layer].delta;
    const lathe_model_builder *b = at->b;
    const int64_t keys = (int64_t)l->n_key_heads * l->key_dim;
    const int64_t widths[3] = {keys, keys, (int64_t)l->n_heads * l->value_dim};
    char name[256];
    lathe_val w;
    lathe_decoder_name(at, "linear_attn.conv1d.weight", name, sizeof name);
    LATHE_TRY(b->tensor(b->ctx, name, &w));
    LATHE_TRY(lathe_decoder_short_conv(at, "linear_attn.conv1d", qkv, w, LATHE_NONE, 1, &qkv));
    LATHE_TRY(lathe_decoder_split(at, qkv, LATHE_NONE, widths, 3, "linear_attn.conv1d", out));
    LATHE_TRY(lathe_delta_unit(at, out[0], "delta.q", &out[0]));
    return lathe_delta_unit(at, out[1], "delta.k", &out[1]);
}

/** norm(o) * silu(z), each head by itself. The norm's weights are not centred at 0, whatever the
 *  layer's other norms are. */
static inline lathe_status lathe_delta_gated_norm(const lathe_decoder_at *at, lathe_val o,
                                                  lathe_val z, lathe_val *out)
{
    const lathe_op_attrs attrs = {.eps = (float)at->d->norm_eps};
    char name[256];
    lathe_val in[2] = {o, LATHE_NONE};
    lathe_decoder_name(at, "linear_attn.norm.weight", name, sizeof name);
    LATHE_TRY(at->b->tensor(at->b->ctx, name, &in[1]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_RMSNORM, &attrs, in, 2, "delta.norm", &in[1]));
    in[0] = z;
    return lathe_decoder_node(at, LATHE_OP_SWIGLU, NULL, in, 2, "delta.gate", out);
}

/** The layer, from the normalised x to the output projection. */
static inline lathe_status lathe_decoder_delta(const lathe_decoder_at *at, lathe_val x,
                                               lathe_val *out)
{
    const lathe_delta_layer *l = at->d->layers[at->layer].delta;
    const lathe_model_builder *b = at->b;
    lathe_val qkv, z, a, in[6];
    lathe_desc d;
    char label[64];
    LATHE_TRY(lathe_decoder_scan_check(at, "linear attention"));
    LATHE_TRY(b->api->desc(b->graph, x, &d));
    LATHE_TRY(lathe_delta_project(at, x, &qkv, &z, &in[4], &a));
    LATHE_TRY(lathe_delta_convolve(at, qkv, in));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_SIGMOID, NULL, &in[4], 1, "delta.beta", &in[4]));
    LATHE_TRY(lathe_delta_decay(at, a, &in[3]));
    in[5] = b->doc_start;
    const lathe_op_attr attrs[] = {LATHE_ATTR_INT("tokens", d.dims[0] / b->batch),
                                   LATHE_ATTR_INT("heads", l->n_heads),
                                   LATHE_ATTR_INT("key_heads", l->n_key_heads)};
    (void)snprintf(label, sizeof label, "layers.%d.linear_attn", (int)at->layer);
    LATHE_TRY(b->api->op(b->graph, "gated_delta", attrs, 3, in, 6, &x, 1, label));
    LATHE_TRY(lathe_delta_gated_norm(at, x, z, &x));
    return lathe_decoder_linear(at, "linear_attn.out_proj", 0, x, out);
}

#endif
