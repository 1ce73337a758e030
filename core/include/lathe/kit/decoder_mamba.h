/* Layers with the state space of Mamba-2 instead of attention, or beside it (op/mamba2), in a
 * decoder (lathe/kit/decoder.h). The names below the layer's module are those of transformers. */
#ifndef LATHE_KIT_DECODER_MAMBA_H
#define LATHE_KIT_DECODER_MAMBA_H

#include "decoder_activation.h"
#include "decoder_scan.h"

/** "mamba.in_proj" of "in_proj". */
static inline const char *lathe_mamba_part(const lathe_decoder_at *at, const char *part, char *out,
                                           size_t bytes)
{
    (void)snprintf(out, bytes, "%s.%s", at->d->layers[at->layer].mamba->module, part);
    return out;
}

/** The taps of the convolution, those of x, B and C times their factors: the convolution of
 *  factored inputs, without a copy of these. */
static inline lathe_status lathe_mamba_taps(const lathe_decoder_at *at, lathe_val w, lathe_val *out)
{
    const lathe_mamba_layer *l = at->d->layers[at->layer].mamba;
    const lathe_host *host = at->d->host;
    const int64_t inner = (int64_t)l->n_heads * l->head_dim, keys = (int64_t)l->n_groups * l->state;
    const int64_t n = inner + 2 * keys;
    const double *f = l->factors;
    const lathe_desc desc = {LATHE_F32, 1, {n, 1, 1, 1}};
    lathe_val in[2] = {w, LATHE_NONE};
    lathe_desc d;
    *out = w;
    if ((f[1] == 0.0 || f[1] == 1.0) && (f[2] == 0.0 || f[2] == 1.0) &&
        (f[3] == 0.0 || f[3] == 1.0))
        return LATHE_OK;
    float *factors = (float *)host->alloc(n * (int64_t)sizeof *factors);
    if (factors == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the factors of a state space");
    for (int64_t i = 0; i < n; i++)
        factors[i] = (float)f[i < inner ? 1 : i < inner + keys ? 2 : 3];
    const lathe_status status =
        at->b->constant(at->b->ctx, "mamba.factors", &desc, factors, &in[1]);
    host->free(factors);
    LATHE_TRY(status);
    LATHE_TRY(at->b->api->desc(at->b->graph, w, &d));
    const lathe_op_attrs columns = {.count = l->taps, .dtype = d.dtype};
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_BROADCAST_COLUMN, &columns, &in[1], 1,
                                 "mamba.factors", &in[1]));
    return lathe_decoder_node(at, LATHE_OP_MUL, NULL, in, 2, "mamba.factors", out);
}

/** The convolution of x, B and C along the tokens, then its parts: out[0] C, out[1] B, out[2] x. */
static inline lathe_status lathe_mamba_convolve(const lathe_decoder_at *at, lathe_val xbc,
                                                lathe_val out[3])
{
    const lathe_mamba_layer *l = at->d->layers[at->layer].mamba;
    const int64_t inner = (int64_t)l->n_heads * l->head_dim, keys = (int64_t)l->n_groups * l->state;
    const int64_t widths[3] = {inner, keys, keys};
    const int is_silu = at->d->layers[at->layer].activation == LATHE_ACT_SILU;
    char part[64], name[256];
    lathe_val w, bias = LATHE_NONE, parts[3];
    lathe_decoder_name(at, lathe_mamba_part(at, "conv1d.weight", part, sizeof part), name,
                       sizeof name);
    LATHE_TRY(at->b->tensor(at->b->ctx, name, &w));
    LATHE_TRY(lathe_mamba_taps(at, w, &w));
    lathe_decoder_name(at, lathe_mamba_part(at, "conv1d.bias", part, sizeof part), name,
                       sizeof name);
    if (l->conv_bias)
        LATHE_TRY(at->b->tensor(at->b->ctx, name, &bias));
    LATHE_TRY(lathe_decoder_short_conv(at, lathe_mamba_part(at, "conv1d", part, sizeof part), xbc,
                                       w, bias, is_silu, &xbc));
    if (!is_silu)
        LATHE_TRY(lathe_decoder_activate(at, xbc, &xbc));
    LATHE_TRY(lathe_decoder_split(at, xbc, LATHE_NONE, widths, 3, "mamba.xbc", parts));
    out[0] = parts[2];
    out[1] = parts[1];
    out[2] = parts[0];
    return LATHE_OK;
}

/** dt f32[N,H] = softplus(dt + dt_bias) within the layer's limits, and *decay = -exp(A_log) dt. */
static inline lathe_status lathe_mamba_steps(const lathe_decoder_at *at, lathe_val *dt,
                                             lathe_val *decay)
{
    const lathe_mamba_layer *l = at->d->layers[at->layer].mamba;
    const lathe_op_attrs negative = {.alpha = -1.0};
    const lathe_op_attrs limits = {.alpha = l->dt_min, .beta = l->dt_max > 0.0 ? l->dt_max : 3e38};
    char part[64];
    lathe_val in[2] = {*dt, LATHE_NONE};
    LATHE_TRY(lathe_decoder_wide(at, "mamba.dt", &in[0]));
    LATHE_TRY(lathe_decoder_factor(at, in[0], l->factors[4], "mamba.dt", &in[0]));
    LATHE_TRY(lathe_decoder_negative_softplus(
        at, in[0], lathe_mamba_part(at, "dt_bias", part, sizeof part), "mamba.dt", &in[0]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_SCALE, &negative, in, 1, "mamba.dt", &in[0]));
    in[1] = LATHE_NONE;
    if (l->dt_min > 0.0 || l->dt_max > 0.0)
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_CLAMP, &limits, in, 2, "mamba.dt", &in[0]));
    *dt = in[0];
    LATHE_TRY(lathe_decoder_rows_of(at, lathe_mamba_part(at, "A_log", part, sizeof part), in[0], 1,
                                    &in[1]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_MUL, NULL, in, 2, "mamba.decay", &in[0]));
    return lathe_decoder_node(at, LATHE_OP_SCALE, &negative, in, 1, "mamba.decay", decay);
}

/** RMSNorm of each group of channels by itself, with a weight for each channel. */
static inline lathe_status lathe_mamba_norm(const lathe_decoder_at *at, lathe_val x, lathe_val *out)
{
    const lathe_mamba_layer *l = at->d->layers[at->layer].mamba;
    const lathe_host *host = at->d->host;
    const int64_t size = (int64_t)l->n_heads * l->head_dim / l->n_groups;
    const lathe_op_attrs attrs = {.eps = (float)at->d->norm_eps};
    const lathe_desc desc = {LATHE_F32, 1, {size, 1, 1, 1}};
    char part[64], name[256];
    lathe_desc of_x;
    lathe_val w, in[2] = {x, LATHE_NONE};
    lathe_decoder_name(at, lathe_mamba_part(at, "norm.weight", part, sizeof part), name,
                       sizeof name);
    LATHE_TRY(at->b->tensor(at->b->ctx, name, &w));
    if (l->n_groups == 1) {
        in[1] = w;
        return lathe_decoder_node(at, LATHE_OP_RMSNORM, &attrs, in, 2, "mamba.norm", out);
    }
    float *ones = (float *)host->alloc(size * (int64_t)sizeof *ones);
    if (ones == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the norm of a group");
    for (int64_t i = 0; i < size; i++)
        ones[i] = 1.0f;
    const lathe_status status = at->b->constant(at->b->ctx, "mamba.ones", &desc, ones, &in[1]);
    host->free(ones);
    LATHE_TRY(status);
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_RMSNORM, &attrs, in, 2, "mamba.norm", &in[0]));
    LATHE_TRY(at->b->api->desc(at->b->graph, x, &of_x));
    const lathe_op_attrs rows = {.count = of_x.dims[0], .dtype = of_x.dtype};
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_BROADCAST_ROW, &rows, &w, 1, "mamba.norm", &in[1]));
    return lathe_decoder_node(at, LATHE_OP_MUL, NULL, in, 2, "mamba.norm", out);
}

/** y times silu(z), normalised before or after that, or not at all. */
static inline lathe_status lathe_mamba_gate(const lathe_decoder_at *at, lathe_val y, lathe_val z,
                                            lathe_val *out)
{
    const int32_t norm = at->d->layers[at->layer].mamba->norm;
    lathe_val in[2] = {z, y};
    if (norm == LATHE_MAMBA_NORM_FIRST)
        LATHE_TRY(lathe_mamba_norm(at, in[1], &in[1]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_SWIGLU, NULL, in, 2, "mamba.gate", out));
    return norm == LATHE_MAMBA_GATE_FIRST ? lathe_mamba_norm(at, *out, out) : LATHE_OK;
}

/** The layer, from the normalised x to the output projection. */
static inline lathe_status lathe_decoder_mamba(const lathe_decoder_at *at, lathe_val x,
                                               lathe_val *out)
{
    const lathe_mamba_layer *l = at->d->layers[at->layer].mamba;
    const lathe_model_builder *b = at->b;
    const int64_t inner = (int64_t)l->n_heads * l->head_dim;
    const int64_t widths[3] = {inner, inner + 2 * (int64_t)l->n_groups * l->state, l->n_heads};
    lathe_val all, parts[3], in[7];
    lathe_desc d;
    char part[64], label[128];
    LATHE_TRY(lathe_decoder_scan_check(at, "a state space"));
    LATHE_TRY(lathe_decoder_factor(at, x, l->in_factor, "mamba.in", &x));
    LATHE_TRY(lathe_decoder_linear(at, lathe_mamba_part(at, "in_proj", part, sizeof part),
                                   l->in_bias, x, &all));
    LATHE_TRY(lathe_decoder_split(at, all, LATHE_NONE, widths, 3, "mamba.in", parts));
    LATHE_TRY(lathe_decoder_factor(at, parts[0], l->factors[0], "mamba.z", &parts[0]));
    LATHE_TRY(lathe_mamba_convolve(at, parts[1], in));
    in[4] = parts[2];
    LATHE_TRY(lathe_mamba_steps(at, &in[4], &in[3]));
    in[5] = b->doc_start;
    LATHE_TRY(
        lathe_decoder_rows_of(at, lathe_mamba_part(at, "D", part, sizeof part), in[4], 0, &in[6]));
    LATHE_TRY(b->api->desc(b->graph, x, &d));
    const lathe_op_attr attrs[] = {LATHE_ATTR_INT("tokens", d.dims[0] / b->batch),
                                   LATHE_ATTR_INT("heads", l->n_heads),
                                   LATHE_ATTR_INT("groups", l->n_groups)};
    (void)snprintf(label, sizeof label, "layers.%d.%s", (int)at->layer, l->module);
    LATHE_TRY(b->api->op(b->graph, "mamba2", attrs, 3, in, 7, &x, 1, label));
    LATHE_TRY(lathe_mamba_gate(at, x, parts[0], &x));
    LATHE_TRY(lathe_decoder_linear(at, lathe_mamba_part(at, "out_proj", part, sizeof part),
                                   l->out_bias, x, out));
    return lathe_decoder_factor(at, *out, l->out_factor, "mamba.out", out);
}

#endif
