/* The layers of a decoder (lathe/kit/decoder.h), and its graph from the tokens to the last norm. */
#ifndef LATHE_KIT_DECODER_LAYER_H
#define LATHE_KIT_DECODER_LAYER_H

#include "decoder_delta.h"
#include "decoder_experts.h"
#include "decoder_latent.h"
#include "decoder_mamba.h"

/** Attention with one fused projection for q, k and v. */
static inline lathe_status lathe_decoder_fused(const lathe_decoder_at *at, lathe_val x,
                                               lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    const lathe_model_layer *s = &at->d->shapes[at->layer];
    const int64_t kv_width = (int64_t)s->n_kv_heads * s->head_dim;
    const int64_t widths[3] = {(int64_t)s->n_heads * s->head_dim, kv_width, kv_width};
    char label[64];
    lathe_val all, order = LATHE_NONE, p[3] = {LATHE_NONE, LATHE_NONE, LATHE_NONE};
    const lathe_op_attrs clip = {.alpha = -(double)l->qkv_clip, .beta = (double)l->qkv_clip};
    LATHE_TRY(lathe_decoder_linear(at, l->names->qkv, l->qkv_bias, x, &all));
    if (l->qkv_clip > 0.0f) {
        const lathe_val in[2] = {all, LATHE_NONE};
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_CLAMP, &clip, in, 2, "qkv.clip", &all));
    }
    if (l->rope < 0 && !l->qkv_by_head && !at->b->cached)
        return lathe_decoder_attend(at, 1, all, LATHE_NONE, LATHE_NONE, out);
    (void)snprintf(label, sizeof label, "layers.%d.attention", (int)at->layer);
    if (l->qkv_by_head)
        LATHE_TRY(lathe_decoder_qkv_order(at, &order));
    LATHE_TRY(lathe_decoder_split(at, all, order, widths, 3, label, p));
    LATHE_TRY(lathe_decoder_rotate(at, l->names->qkv, NULL, p[0], &p[0]));
    LATHE_TRY(lathe_decoder_rotate(at, l->names->qkv, NULL, p[1], &p[1]));
    return lathe_decoder_attend(at, 0, p[0], p[1], p[2], out);
}

/** Splits the output of q into queries and gates: see gated_queries. */
static inline lathe_status lathe_decoder_split_gate(const lathe_decoder_at *at, lathe_val x,
                                                    lathe_val *q, lathe_val *gate)
{
    const lathe_model_layer *s = &at->d->shapes[at->layer];
    const int64_t each[2] = {s->head_dim, s->head_dim};
    const int64_t all = (int64_t)s->n_heads * s->head_dim, widths[2] = {all, all};
    lathe_val order, parts[2];
    LATHE_TRY(lathe_decoder_group_order(at, s->n_heads, each, 2, "gate.order", &order));
    LATHE_TRY(lathe_decoder_split(at, x, order, widths, 2, "attention.gate", parts));
    *q = parts[0];
    *gate = parts[1];
    return LATHE_OK;
}

/** Attention, from the normalised x to the output projection. */
static inline lathe_status lathe_decoder_self_attention(const lathe_decoder_at *at, lathe_val x,
                                                        lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    const lathe_layer_names *n = l->names;
    lathe_val q, k, v, gate = LATHE_NONE;
    if (l->latent != NULL)
        return lathe_decoder_latent(at, x, out);
    if (n->qkv != NULL && l->gated_queries)
        return lathe_fail(at->d->host, LATHE_E_ARG,
                          "layer %d has gated queries, which need q apart from k and v",
                          (int)at->layer);
    if (n->qkv != NULL) {
        LATHE_TRY(lathe_decoder_fused(at, x, &q));
        return lathe_decoder_linear(at, n->o, l->out_bias, q, out);
    }
    LATHE_TRY(lathe_decoder_linear(at, n->q, l->qkv_bias, x, &q));
    if (l->gated_queries)
        LATHE_TRY(lathe_decoder_split_gate(at, q, &q, &gate));
    LATHE_TRY(lathe_decoder_rotate(at, n->q, n->q_norm, q, &q));
    LATHE_TRY(lathe_decoder_linear(at, n->k, l->qkv_bias, x, &k));
    LATHE_TRY(lathe_decoder_rotate(at, n->k, n->k_norm, k, &k));
    LATHE_TRY(lathe_decoder_linear(at, n->v, l->qkv_bias, x, &v));
    LATHE_TRY(lathe_decoder_attend(at, 0, q, k, v, &q));
    if (l->gated_queries)
        LATHE_TRY(lathe_decoder_sigmoid_gate(at, q, gate, "attention.gate", &q));
    return lathe_decoder_linear(at, n->o, l->out_bias, q, out);
}

/** The layer's mixer of tokens: linear attention, a state space, attention with its factors, or the
 *  sum of the last two. */
static inline lathe_status lathe_decoder_attention(const lathe_decoder_at *at, lathe_val x,
                                                   lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    lathe_val in[2] = {x, LATHE_NONE};
    if (l->delta != NULL)
        return lathe_decoder_delta(at, x, out);
    if (l->mamba != NULL && !l->mamba->beside)
        return lathe_decoder_mamba(at, x, out);
    if (l->mamba != NULL)
        LATHE_TRY(lathe_decoder_mamba(at, x, &in[1]));
    LATHE_TRY(lathe_decoder_factor(at, x, (double)l->attention_in_scale, "attention.in", &in[0]));
    LATHE_TRY(lathe_decoder_self_attention(at, in[0], &in[0]));
    LATHE_TRY(
        lathe_decoder_factor(at, in[0], (double)l->attention_out_scale, "attention.out", &in[0]));
    *out = in[0];
    return l->mamba == NULL
               ? LATHE_OK
               : lathe_decoder_node(at, LATHE_OP_ADD, NULL, in, 2, "attention.sum", out);
}

/** The MLP, applied to the normalised x. */
static inline lathe_status lathe_decoder_mlp(const lathe_decoder_at *at, lathe_val x,
                                             lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    const lathe_layer_names *n = l->names;
    const int64_t widths[2] = {at->d->info.ffn, at->d->info.ffn};
    if (l->experts != NULL)
        return lathe_decoder_mixture(at, x, out);
    lathe_val h, pair[2] = {LATHE_NONE, LATHE_NONE};
    if (n->gate_up != NULL) {
        LATHE_TRY(lathe_decoder_linear(at, n->gate_up, l->mlp_bias, x, &h));
        LATHE_TRY(lathe_decoder_split(at, h, LATHE_NONE, widths, 2, "mlp.gate_up", pair));
        LATHE_TRY(lathe_decoder_factor(at, pair[0], (double)l->gate_scale, "mlp.gate", &pair[0]));
        LATHE_TRY(lathe_decoder_gated(at, pair, &h));
    } else if (n->gate != NULL) {
        LATHE_TRY(lathe_decoder_linear(at, n->gate, l->mlp_bias, x, &pair[0]));
        LATHE_TRY(lathe_decoder_linear(at, n->up, l->mlp_bias, x, &pair[1]));
        LATHE_TRY(lathe_decoder_factor(at, pair[0], (double)l->gate_scale, "mlp.gate", &pair[0]));
        LATHE_TRY(lathe_decoder_gated(at, pair, &h));
    } else {
        LATHE_TRY(lathe_decoder_linear(at, n->up, l->mlp_bias, x, &h));
        LATHE_TRY(lathe_decoder_activate(at, h, &h));
    }
    LATHE_TRY(lathe_decoder_linear(at, n->down, l->mlp_bias, h, out));
    return lathe_decoder_factor(at, *out, (double)l->down_scale, "mlp.out", out);
}

/** x + s h, where s is the layer's residual_scale. */
static inline lathe_status lathe_decoder_residual(const lathe_decoder_at *at, lathe_val h,
                                                  lathe_val x, const char *label, lathe_val *out)
{
    const lathe_op_attrs scale = {.alpha = (double)at->d->layers[at->layer].residual_scale};
    /* the sum overwrites h, which is not needed any more; the backward of a norm needs x */
    lathe_val in[2] = {h, x};
    if (scale.alpha != 0.0 && scale.alpha != 1.0)
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_SCALE, &scale, &h, 1, label, &in[0]));
    return lathe_decoder_node(at, LATHE_OP_ADD, NULL, in, 2, label, out);
}

/** One layer: x after its attention and its MLP. */
static inline lathe_status lathe_decoder_layer_build(const lathe_decoder_at *at, lathe_val x,
                                                     lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    const lathe_layer_names *n = l->names;
    const lathe_model_builder *b = at->b;
    lathe_val normed, h, y;
    LATHE_TRY(b->part(b->ctx, at->layer, LATHE_PART_ATTENTION));
    LATHE_TRY(lathe_decoder_norm(at, n->attention_norm, x, &normed));
    LATHE_TRY(lathe_decoder_attention(at, normed, &h));
    LATHE_TRY(lathe_decoder_norm(at, n->attention_out_norm, h, &h));
    if (l->normed_residual)
        x = normed;
    LATHE_TRY(lathe_decoder_residual(at, h, x, "attention residual", &y));
    LATHE_TRY(b->part(b->ctx, at->layer, LATHE_PART_MLP));
    h = normed;
    if (!l->parallel || n->mlp_norm != NULL)
        LATHE_TRY(lathe_decoder_norm(at, n->mlp_norm, l->parallel ? x : y, &h));
    if (l->normed_residual)
        y = h;
    LATHE_TRY(lathe_decoder_mlp(at, h, &h));
    LATHE_TRY(lathe_decoder_norm(at, n->mlp_out_norm, h, &h));
    return lathe_decoder_residual(at, h, y, "mlp residual", out);
}

/** Looks up rows of an embedding; "model.embed_tokens.weight" gets the label "embed_tokens". */
static inline lathe_status lathe_decoder_embed(const lathe_decoder_at *at, const char *tensor,
                                               lathe_val ids, lathe_val w, lathe_val *out)
{
    char label[128];
    const char *name = lathe_decoder_label(at, tensor);
    const lathe_val in[2] = {ids, w};
    (void)snprintf(label, sizeof label, "%.*s", (int)strcspn(name, "."), name);
    return lathe_decoder_node(at, LATHE_OP_EMBED, NULL, in, 2, label, out);
}

/** The residual stream before the first layer. */
static inline lathe_status lathe_decoder_embedding(const lathe_decoder_at *at, lathe_val *out)
{
    const lathe_decoder *d = at->d;
    const lathe_model_builder *b = at->b;
    lathe_val w = LATHE_NONE, x[2] = {LATHE_NONE, LATHE_NONE};
    if (d->positions != NULL && b->max_positions > d->info.max_positions)
        return lathe_fail(d->host, LATHE_E_CONFIG,
                          "the sequence has %lld positions, but the model has learned only %lld",
                          (long long)b->max_positions, (long long)d->info.max_positions);
    LATHE_TRY(b->part(b->ctx, -1, LATHE_PART_NONE));
    LATHE_TRY(b->embedding(b->ctx, &x[0]));
    if (d->embed_scale > 0.0) {
        const lathe_op_attrs attrs = {.alpha = d->embed_scale};
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_SCALE, &attrs, x, 1, "embedding scale", &x[0]));
    }
    LATHE_TRY(b->embedded(b->ctx, &x[0]));
    LATHE_TRY(lathe_decoder_norm(at, d->embedding_norm, x[0], &x[0]));
    *out = x[0];
    if (d->positions == NULL)
        return LATHE_OK;
    LATHE_TRY(b->tensor(b->ctx, d->positions, &w));
    LATHE_TRY(lathe_decoder_embed(at, d->positions, b->positions, w, &x[1]));
    return lathe_decoder_node(at, LATHE_OP_ADD, NULL, x, 2, "embeddings", out);
}

/** lathe_model_v1.build of a decoder. */
static inline lathe_status lathe_decoder_build(void *self, const lathe_model_builder *b,
                                               lathe_val *out)
{
    const lathe_decoder *d = (const lathe_decoder *)self;
    lathe_router_sums routers = {LATHE_NONE, LATHE_NONE, LATHE_NONE, LATHE_NONE, LATHE_NONE,
                                 LATHE_NONE, LATHE_NONE, LATHE_NONE, 0};
    lathe_decoder_at at = {d, b, -1, &routers};
    lathe_val x = LATHE_NONE;
    if (d->experts.n_experts > 0)
        LATHE_TRY(b->token_mask(b->ctx, &routers.mask));
    LATHE_TRY(lathe_decoder_embedding(&at, &x));
    for (at.layer = 0; at.layer < d->info.n_layers; at.layer++)
        LATHE_TRY(lathe_decoder_layer_build(&at, x, &x));
    at.layer = -1;
    LATHE_TRY(b->part(b->ctx, -1, LATHE_PART_NONE));
    LATHE_TRY(lathe_decoder_balance(&at));
    return lathe_decoder_norm(&at, d->final_norm, x, out);
}

#endif
