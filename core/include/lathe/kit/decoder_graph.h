/* Functions that build the parts of a decoder's graph (lathe/kit/decoder.h). */
#ifndef LATHE_KIT_DECODER_GRAPH_H
#define LATHE_KIT_DECODER_GRAPH_H

#include "decoder.h"

/** Sums over the layers so far, for the balance of experts; LATHE_NONE: no such layer yet. */
typedef struct lathe_router_sums {
    lathe_val mask;                   /* f32[N]: 0 for padding; LATHE_NONE: no padding */
    lathe_val chosen, probability;    /* f32[E]: tokens that chose it, and its probabilities */
    lathe_val balance;                /* f32[]: sum of products chosen * probability, by layer */
    lathe_val z;                      /* f32[]: squares of the logarithms of sums of exp(scores) */
    lathe_val entropy, largest, dead; /* f32[] */
    int32_t n_layers;
} lathe_router_sums;

/** The place where every function below adds nodes: the decoder, the graph builder and the current
 *  layer. */
typedef struct lathe_decoder_at {
    const lathe_decoder *d;
    const lathe_model_builder *b;
    int32_t layer;              /* -1 outside the layers */
    lathe_router_sums *routers; /* NULL: the balance of experts is not reported */
} lathe_decoder_at;

/** The module's full name: "model.layers.3.mlp.up_proj". */
static inline void lathe_decoder_name(const lathe_decoder_at *at, const char *module, char *out,
                                      size_t bytes)
{
    if (at->layer >= 0)
        (void)snprintf(out, bytes, "%s%d.%s", at->d->layer_prefix, (int)at->layer, module);
    else
        (void)snprintf(out, bytes, "%s", module);
}

/** A module's name without the family's prefix, for labels. */
static inline const char *lathe_decoder_label(const lathe_decoder_at *at, const char *name)
{
    const size_t n = strlen(at->d->info.prefix);
    return strncmp(name, at->d->info.prefix, n) == 0 ? name + n : name;
}

/** Adds a node of `op`; *out is its first output. */
static inline lathe_status lathe_decoder_node(const lathe_decoder_at *at, int32_t op,
                                              const lathe_op_attrs *attrs, const lathe_val *in,
                                              int32_t n_in, const char *label, lathe_val *out)
{
    lathe_val outs[LATHE_OP_MAX_OUT];
    const int32_t n_out = op == LATHE_OP_RMSNORM || op == LATHE_OP_ATTENTION ? 2
                          : op == LATHE_OP_LAYERNORM                         ? 3
                                                                             : 1;
    LATHE_TRY(at->b->api->node(at->b->graph, op, attrs, in, n_in, outs, n_out, -1, label));
    *out = outs[0];
    return LATHE_OK;
}

/** x times factor, where factor 0 is 1. */
static inline lathe_status lathe_decoder_factor(const lathe_decoder_at *at, lathe_val x,
                                                double factor, const char *label, lathe_val *out)
{
    const lathe_op_attrs attrs = {.alpha = factor};
    *out = x;
    return factor == 0.0 || factor == 1.0
               ? LATHE_OK
               : lathe_decoder_node(at, LATHE_OP_SCALE, &attrs, &x, 1, label, out);
}

/** Adds the linear layer `module`, a site to which adapters can be attached. */
static inline lathe_status lathe_decoder_linear(const lathe_decoder_at *at, const char *module,
                                                int32_t has_bias, lathe_val x, lathe_val *out)
{
    char name[256];
    lathe_decoder_name(at, module, name, sizeof name);
    return at->b->linear(at->b->ctx, at->layer, name, has_bias, x, out);
}

/** Normalises x with the layer's kind of norm, and with the weight and the bias of `module`
 * (RMSNORM never has a bias). With module NULL, *out is x. */
static inline lathe_status lathe_decoder_norm(const lathe_decoder_at *at, const char *module,
                                              lathe_val x, lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer >= 0 ? at->layer : 0];
    char name[256], tensor[264];
    lathe_val in[3] = {x, LATHE_NONE, LATHE_NONE};
    *out = x;
    if (module == NULL)
        return LATHE_OK;
    lathe_decoder_name(at, module, name, sizeof name);
    (void)snprintf(tensor, sizeof tensor, "%s.weight", name);
    LATHE_TRY(at->b->tensor(at->b->ctx, tensor, &in[1]));
    if (l->norm == LATHE_OP_LAYERNORM && !l->norm_no_bias) {
        (void)snprintf(tensor, sizeof tensor, "%s.bias", name);
        LATHE_TRY(at->b->tensor(at->b->ctx, tensor, &in[2]));
    }
    const lathe_op_attrs attrs = {.eps = (float)at->d->norm_eps, .offset_one = l->norm_offset_one};
    return lathe_decoder_node(at, l->norm, &attrs, in, l->norm == LATHE_OP_LAYERNORM ? 3 : 2,
                              lathe_decoder_label(at, name), out);
}

/** LayerNorm of each head of x [N,H*D] without bias, with a weight [D] for each: `module` has the
 *  weights of all heads, one after the other. */
static inline lathe_status lathe_decoder_norm_heads(const lathe_decoder_at *at, const char *module,
                                                    lathe_val x, lathe_val *out)
{
    const lathe_host *host = at->d->host;
    const int32_t size = at->d->shapes[at->layer].head_dim;
    const lathe_op_attrs attrs = {.eps = (float)at->d->norm_eps};
    const lathe_desc desc = {LATHE_F32, 1, {size, 1, 1, 1}};
    char name[256], tensor[264];
    lathe_desc of_x;
    lathe_val w, in[3] = {x, LATHE_NONE, LATHE_NONE};
    lathe_decoder_name(at, module, name, sizeof name);
    (void)snprintf(tensor, sizeof tensor, "%s.weight", name);
    const char *label = lathe_decoder_label(at, name);
    float *ones = (float *)host->alloc(size * (int64_t)sizeof *ones);
    if (ones == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the norm of a head");
    for (int32_t i = 0; i < size; i++)
        ones[i] = 1.0f;
    const lathe_status status = at->b->constant(at->b->ctx, "norm.ones", &desc, ones, &in[1]);
    host->free(ones);
    LATHE_TRY(status);
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_LAYERNORM, &attrs, in, 3, label, &in[0]));
    LATHE_TRY(at->b->tensor(at->b->ctx, tensor, &w));
    LATHE_TRY(at->b->api->desc(at->b->graph, x, &of_x));
    const lathe_op_attrs rows = {.count = of_x.dims[0], .dtype = of_x.dtype};
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_BROADCAST_ROW, &rows, &w, 1, label, &in[1]));
    return lathe_decoder_node(at, LATHE_OP_MUL, NULL, in, 2, label, out);
}

/** Splits the columns of x [N,W] into n outputs of counts[i] columns. order: LATHE_NONE, or
 *  i32[W]: the columns are permuted first, and column k is then column order[k] of x. */
static inline lathe_status lathe_decoder_split(const lathe_decoder_at *at, lathe_val x,
                                               lathe_val order, const int64_t *counts, int32_t n,
                                               const char *label, lathe_val *out)
{
    lathe_val in[2] = {LATHE_NONE, order}, part;
    lathe_op_attrs rows = {.start = 0};
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_TRANSPOSE, NULL, &x, 1, label, &in[0]));
    if (order != LATHE_NONE)
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_GATHER, NULL, in, 2, label, &in[0]));
    for (int32_t i = 0; i < n; i++) {
        rows.count = counts[i];
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_SLICE, &rows, in, 1, label, &part));
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_TRANSPOSE, NULL, &part, 1, label, &out[i]));
        rows.start += counts[i];
    }
    return LATHE_OK;
}

/** Makes the `order` of lathe_decoder_split for a fused projection that stores the query heads, k
 *  and v of each key head together: i32[(H+2Hkv)*D]. */
static inline lathe_status lathe_decoder_qkv_order(const lathe_decoder_at *at, lathe_val *out)
{
    const lathe_model_layer *s = &at->d->shapes[at->layer];
    const lathe_host *host = at->d->host;
    const int64_t size = s->head_dim, group = s->n_heads / s->n_kv_heads;
    const int64_t width = (s->n_heads + 2 * (int64_t)s->n_kv_heads) * size;
    const lathe_desc desc = {LATHE_I32, 1, {width, 1, 1, 1}};
    int32_t *order = (int32_t *)host->alloc(width * (int64_t)sizeof *order);
    if (order == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the order of %lld columns",
                          (long long)width);
    for (int64_t i = 0; i < width; i++) {
        const int64_t head = i / size, other = head - s->n_heads; /* of all q, then k, then v */
        const int64_t kv = other < 0 ? head / group : other % s->n_kv_heads;
        const int64_t place = other < 0 ? head % group : group + other / s->n_kv_heads;
        order[i] = (int32_t)((kv * (group + 2) + place) * size + i % size);
    }
    const lathe_status status = at->b->constant(at->b->ctx, "qkv.order", &desc, order, out);
    host->free(order);
    return status;
}

/** Normalises queries or keys x with the norm `module`; NULL: *out is x. */
static inline lathe_status lathe_decoder_qk_norm(const lathe_decoder_at *at, const char *module,
                                                 lathe_val x, lathe_val *out)
{
    return module != NULL && at->d->layers[at->layer].qk_norm_by_head
               ? lathe_decoder_norm_heads(at, module, x, out)
               : lathe_decoder_norm(at, module, x, out);
}

/** Normalises queries or keys if the layer has such a norm, and applies the rotary positions: after
 *  the norm, or before it with qk_norm_last. */
static inline lathe_status lathe_decoder_rotate(const lathe_decoder_at *at, const char *module,
                                                const char *norm, lathe_val x, lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    char label[128];
    lathe_val in[3] = {x, at->b->positions, LATHE_NONE};
    const lathe_op_attrs attrs = {.head_dim = at->d->shapes[at->layer].head_dim,
                                  .interleaved = l->interleaved};
    if (l->rope < 0)
        return lathe_decoder_qk_norm(at, norm, x, out);
    if (!l->qk_norm_last)
        LATHE_TRY(lathe_decoder_qk_norm(at, norm, x, &in[0]));
    LATHE_TRY(at->b->rope(at->b->ctx, l->rope, &in[2]));
    (void)snprintf(label, sizeof label, "layers.%d.%s", (int)at->layer, norm ? norm : module);
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_ROPE, &attrs, in, 3, label, out));
    return l->qk_norm_last ? lathe_decoder_qk_norm(at, norm, *out, out) : LATHE_OK;
}

/** The slopes f32[H] of ALiBi (arXiv:2108.12409): with P the largest power of 2 up to H, 2^-(m i/P)
 *  for i = 1 .. P and, for the heads after these, 2^-(m (2i-1)/(2P)), times the layer's
 * alibi_scale. m: the layer's alibi. */
static inline lathe_status lathe_decoder_slopes(const lathe_decoder_at *at, lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    const lathe_host *host = at->d->host;
    const int32_t n = at->d->shapes[at->layer].n_heads;
    const lathe_desc desc = {LATHE_F32, 1, {n, 1, 1, 1}};
    int32_t power = 1;
    float *slopes = (float *)host->alloc(n * (int64_t)sizeof *slopes);
    if (slopes == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the slopes of %d heads", (int)n);
    while (2 * power <= n)
        power *= 2;
    for (int32_t h = 0; h < n; h++) {
        const double share = h < power ? (h + 1.0) / power : (h - power + 0.5) / power;
        const float slope = (float)exp2(-(double)l->alibi * share);
        slopes[h] = (l->alibi_bf16 ? lathe_bf16_to_f32(lathe_f32_to_bf16(slope)) : slope) *
                    (l->alibi_scale > 0.0f ? l->alibi_scale : 1.0f);
    }
    const lathe_status status = at->b->constant(at->b->ctx, "slopes", &desc, slopes, out);
    host->free(slopes);
    return status;
}

/** Attention with the layer's window, scale and soft-cap, causal unless the builder has key_end.
 *  fused: q also holds k and v. */
static inline lathe_status lathe_decoder_attend(const lathe_decoder_at *at, int32_t fused,
                                                lathe_val q, lathe_val k, lathe_val v,
                                                lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    const lathe_model_layer *s = &at->d->shapes[at->layer];
    char label[64];
    (void)snprintf(label, sizeof label, "layers.%d.attention", (int)at->layer);
    if (!fused)
        LATHE_TRY(at->b->cache(at->b->ctx, at->layer, &k, &v));
    double factor = 1.0;
    if (l->rope >= 0)
        LATHE_TRY(at->b->score_factor(at->b->ctx, l->rope, &factor));
    const double scale =
        l->attention_scale > 0.0f ? (double)l->attention_scale : 1.0 / sqrt((double)s->head_dim);
    const lathe_op_attrs attrs = {.softcap = l->softcap,
                                  .scale = (float)(scale * factor),
                                  .n_heads = s->n_heads,
                                  .n_kv_heads = s->n_kv_heads,
                                  .head_dim = s->head_dim,
                                  .window = s->window,
                                  .causal = at->b->key_end == LATHE_NONE,
                                  .fused_qkv = fused,
                                  .batch = at->b->batch,
                                  .value_dim = s->value_dim};
    char name[256];
    lathe_val in[8] = {q,
                       fused ? LATHE_NONE : k,
                       fused ? LATHE_NONE : v,
                       at->b->doc_start,
                       at->b->kv_len,
                       at->b->key_end,
                       LATHE_NONE,
                       LATHE_NONE};
    if (l->alibi > 0.0f)
        LATHE_TRY(lathe_decoder_slopes(at, &in[6]));
    if (l->names->sinks != NULL) {
        lathe_decoder_name(at, l->names->sinks, name, sizeof name);
        LATHE_TRY(at->b->tensor(at->b->ctx, name, &in[7]));
    }
    return lathe_decoder_node(at, LATHE_OP_ATTENTION, &attrs, in, 8, label, out);
}

#endif
