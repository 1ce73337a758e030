/* The layers of a decoder (lathe/kit/decoder.h), and its graph from the tokens to the last norm. */
#ifndef LATHE_KIT_DECODER_LAYER_H
#define LATHE_KIT_DECODER_LAYER_H

#include "decoder_activation.h"

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
    LATHE_TRY(lathe_decoder_linear(at, l->names->qkv, l->qkv_bias, x, &all));
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

/** Attention, from the normalised x to the output projection. */
static inline lathe_status lathe_decoder_attention(const lathe_decoder_at *at, lathe_val x,
                                                   lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    const lathe_layer_names *n = l->names;
    lathe_val q, k, v;
    if (n->qkv != NULL) {
        LATHE_TRY(lathe_decoder_fused(at, x, &q));
        return lathe_decoder_linear(at, n->o, l->out_bias, q, out);
    }
    LATHE_TRY(lathe_decoder_linear(at, n->q, l->qkv_bias, x, &q));
    LATHE_TRY(lathe_decoder_rotate(at, n->q, n->q_norm, q, &q));
    LATHE_TRY(lathe_decoder_linear(at, n->k, l->qkv_bias, x, &k));
    LATHE_TRY(lathe_decoder_rotate(at, n->k, n->k_norm, k, &k));
    LATHE_TRY(lathe_decoder_linear(at, n->v, l->qkv_bias, x, &v));
    LATHE_TRY(lathe_decoder_attend(at, 0, q, k, v, &q));
    return lathe_decoder_linear(at, n->o, l->out_bias, q, out);
}

/** activation(gate) * up. */
static inline lathe_status lathe_decoder_gated(const lathe_decoder_at *at, const lathe_val pair[2],
                                               lathe_val *out)
{
    lathe_val in[2] = {pair[0], pair[1]};
    if (at->d->layers[at->layer].activation == LATHE_ACT_SILU)
        return lathe_decoder_node(at, LATHE_OP_SWIGLU, NULL, in, 2, "mlp.swiglu", out);
    LATHE_TRY(lathe_decoder_activate(at, pair[0], &in[0]));
    return lathe_decoder_node(at, LATHE_OP_MUL, NULL, in, 2, "mlp.gate", out);
}

/** The MLP, applied to the normalised x. */
static inline lathe_status lathe_decoder_mlp(const lathe_decoder_at *at, lathe_val x,
                                             lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    const lathe_layer_names *n = l->names;
    const int64_t widths[2] = {at->d->info.ffn, at->d->info.ffn};
    lathe_val h, pair[2] = {LATHE_NONE, LATHE_NONE};
    if (n->gate_up != NULL) {
        LATHE_TRY(lathe_decoder_linear(at, n->gate_up, l->mlp_bias, x, &h));
        LATHE_TRY(lathe_decoder_split(at, h, LATHE_NONE, widths, 2, "mlp.gate_up", pair));
        LATHE_TRY(lathe_decoder_gated(at, pair, &h));
    } else if (n->gate != NULL) {
        LATHE_TRY(lathe_decoder_linear(at, n->gate, l->mlp_bias, x, &pair[0]));
        LATHE_TRY(lathe_decoder_linear(at, n->up, l->mlp_bias, x, &pair[1]));
        LATHE_TRY(lathe_decoder_gated(at, pair, &h));
    } else {
        LATHE_TRY(lathe_decoder_linear(at, n->up, l->mlp_bias, x, &h));
        LATHE_TRY(lathe_decoder_activate(at, h, &h));
    }
    return lathe_decoder_linear(at, n->down, l->mlp_bias, h, out);
}

/** One layer: x after its attention and its MLP. */
static inline lathe_status lathe_decoder_layer_build(const lathe_decoder_at *at, lathe_val x,
                                                     lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    const lathe_layer_names *n = l->names;
    const lathe_model_builder *b = at->b;
    lathe_val h, y;
    LATHE_TRY(b->part(b->ctx, at->layer, LATHE_PART_ATTENTION));
    LATHE_TRY(lathe_decoder_norm(at, n->attention_norm, x, &h));
    LATHE_TRY(lathe_decoder_attention(at, h, &h));
    LATHE_TRY(lathe_decoder_norm(at, n->attention_out_norm, h, &h));
    /* the sum overwrites h, which is not needed any more; the backward of the norm needs x */
    const lathe_val first[2] = {h, x};
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_ADD, NULL, first, 2, "attention residual", &y));
    LATHE_TRY(b->part(b->ctx, at->layer, LATHE_PART_MLP));
    LATHE_TRY(lathe_decoder_norm(at, n->mlp_norm, l->parallel ? x : y, &h));
    LATHE_TRY(lathe_decoder_mlp(at, h, &h));
    LATHE_TRY(lathe_decoder_norm(at, n->mlp_out_norm, h, &h));
    const lathe_val second[2] = {h, y};
    return lathe_decoder_node(at, LATHE_OP_ADD, NULL, second, 2, "mlp residual", out);
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
    lathe_decoder_at at = {d, b, -1};
    lathe_val x = LATHE_NONE;
    LATHE_TRY(lathe_decoder_embedding(&at, &x));
    for (at.layer = 0; at.layer < d->info.n_layers; at.layer++)
        LATHE_TRY(lathe_decoder_layer_build(&at, x, &x));
    at.layer = -1;
    LATHE_TRY(b->part(b->ctx, -1, LATHE_PART_NONE));
    return lathe_decoder_norm(&at, d->final_norm, x, out);
}

#endif
