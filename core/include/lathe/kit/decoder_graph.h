/* Functions that build the parts of a decoder's graph (lathe/kit/decoder.h). */
#ifndef LATHE_KIT_DECODER_GRAPH_H
#define LATHE_KIT_DECODER_GRAPH_H

#include "decoder.h"

/** The place where every function below adds nodes: the decoder, the graph builder and the current
 *  layer. */
typedef struct lathe_decoder_at {
    const lathe_decoder *d;
    const lathe_model_builder *b;
    int32_t layer; /* -1 outside the layers */
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

/** Adds the linear layer `module`, a site to which adapters can be attached. */
static inline lathe_status lathe_decoder_linear(const lathe_decoder_at *at, const char *module,
                                                int32_t has_bias, lathe_val x, lathe_val *out)
{
    char name[256];
    lathe_decoder_name(at, module, name, sizeof name);
    return at->b->linear(at->b->ctx, at->layer, name, has_bias, x, out);
}

/** Normalises x with the layer's kind of norm and the weight (for LAYERNORM also the bias) of
 *  `module`. With module NULL, *out is x. */
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
    if (l->norm == LATHE_OP_LAYERNORM) {
        (void)snprintf(tensor, sizeof tensor, "%s.bias", name);
        LATHE_TRY(at->b->tensor(at->b->ctx, tensor, &in[2]));
    }
    const lathe_op_attrs attrs = {.eps = (float)at->d->norm_eps, .offset_one = l->norm_offset_one};
    return lathe_decoder_node(at, l->norm, &attrs, in, l->norm == LATHE_OP_LAYERNORM ? 3 : 2,
                              lathe_decoder_label(at, name), out);
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

/** Makes the `order` of lathe_decoder_split for a fused projection that stores q, k and v of
 *  each head together: i32[3*H*D]. */
static inline lathe_status lathe_decoder_qkv_order(const lathe_decoder_at *at, lathe_val *out)
{
    const lathe_model_layer *s = &at->d->shapes[at->layer];
    const lathe_host *host = at->d->host;
    const int64_t size = s->head_dim, width = s->n_heads * size;
    const lathe_desc desc = {LATHE_I32, 1, {3 * width, 1, 1, 1}};
    int32_t *order = (int32_t *)host->alloc(3 * width * (int64_t)sizeof *order);
    if (order == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the order of %lld columns",
                          (long long)(3 * width));
    for (int64_t i = 0; i < 3 * width; i++) {
        const int64_t part = i / width, head = i % width / size;
        order[i] = (int32_t)((3 * head + part) * size + i % size);
    }
    const lathe_status status = at->b->constant(at->b->ctx, "qkv.order", &desc, order, out);
    host->free(order);
    return status;
}

/** Normalises queries or keys if the layer has such a norm, then applies the rotary positions. */
static inline lathe_status lathe_decoder_rotate(const lathe_decoder_at *at, const char *module,
                                                const char *norm, lathe_val x, lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    char label[128];
    LATHE_TRY(lathe_decoder_norm(at, norm, x, out));
    if (l->rope < 0)
        return LATHE_OK;
    lathe_val in[3] = {*out, at->b->positions, LATHE_NONE};
    const lathe_op_attrs attrs = {.head_dim = at->d->shapes[at->layer].head_dim};
    LATHE_TRY(at->b->rope(at->b->ctx, l->rope, &in[2]));
    (void)snprintf(label, sizeof label, "layers.%d.%s", (int)at->layer, norm ? norm : module);
    return lathe_decoder_node(at, LATHE_OP_ROPE, &attrs, in, 3, label, out);
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
    const float scale =
        l->attention_scale > 0.0f ? l->attention_scale : (float)(1.0 / sqrt((double)s->head_dim));
    const lathe_op_attrs attrs = {.softcap = l->softcap,
                                  .scale = scale,
                                  .n_heads = s->n_heads,
                                  .n_kv_heads = s->n_kv_heads,
                                  .head_dim = s->head_dim,
                                  .window = s->window,
                                  .causal = at->b->key_end == LATHE_NONE,
                                  .fused_qkv = fused,
                                  .batch = at->b->batch};
    const lathe_val in[6] = {q,
                             fused ? LATHE_NONE : k,
                             fused ? LATHE_NONE : v,
                             at->b->doc_start,
                             at->b->kv_len,
                             at->b->key_end};
    return lathe_decoder_node(at, LATHE_OP_ATTENTION, &attrs, in, 6, label, out);
}

#endif
