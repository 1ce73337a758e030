/* Layers with latent attention in a decoder (lathe/kit/decoder.h): keys and values of all heads
 * come from a narrow projection of the token. The names are those of transformers
 * (modeling_deepseek_v3.py). */
#ifndef LATHE_KIT_DECODER_LATENT_H
#define LATHE_KIT_DECODER_LATENT_H

#include "decoder_graph.h"

/** RMSNORM of a projection; its epsilon is that of the class in transformers, whatever the model's
 *  is. */
static inline lathe_status lathe_latent_norm(const lathe_decoder_at *at, const char *module,
                                             lathe_val x, lathe_val *out)
{
    const lathe_op_attrs attrs = {.eps = at->d->layers[at->layer].latent->norm_eps};
    char name[256], tensor[264];
    lathe_val in[2] = {x, LATHE_NONE};
    lathe_decoder_name(at, module, name, sizeof name);
    (void)snprintf(tensor, sizeof tensor, "%s.weight", name);
    LATHE_TRY(at->b->tensor(at->b->ctx, tensor, &in[1]));
    return lathe_decoder_node(at, LATHE_OP_RMSNORM, &attrs, in, 2, lathe_decoder_label(at, name),
                              out);
}

/** Rotates the last rope_dim channels of each head of x, which has `dim` channels a head. */
static inline lathe_status lathe_latent_rotate(const lathe_decoder_at *at, int32_t dim,
                                               const char *label, lathe_val x, lathe_val *out)
{
    const lathe_decoder_layer *l = &at->d->layers[at->layer];
    const lathe_op_attrs attrs = {
        .head_dim = dim, .start = dim - l->latent->rope_dim, .interleaved = l->interleaved};
    lathe_val in[3] = {x, at->b->positions, LATHE_NONE};
    LATHE_TRY(at->b->rope(at->b->ctx, l->rope, &in[2]));
    return lathe_decoder_node(at, LATHE_OP_ROPE, &attrs, in, 3, label, out);
}

/** The queries of all heads, rotated. */
static inline lathe_status lathe_latent_queries(const lathe_decoder_at *at, lathe_val x,
                                                lathe_val *out)
{
    const lathe_latent_layer *l = at->d->layers[at->layer].latent;
    if (l->q_rank > 0) {
        LATHE_TRY(lathe_decoder_linear(at, "self_attn.q_a_proj", l->bias, x, &x));
        LATHE_TRY(lathe_latent_norm(at, "self_attn.q_a_layernorm", x, &x));
    }
    LATHE_TRY(lathe_decoder_linear(at, l->q_rank > 0 ? "self_attn.q_b_proj" : "self_attn.q_proj", 0,
                                   x, &x));
    return lathe_latent_rotate(at, at->d->shapes[at->layer].head_dim, "latent.q", x, out);
}

/** The keys and the values of all heads. */
static inline lathe_status lathe_latent_keys(const lathe_decoder_at *at, lathe_val x, lathe_val *k,
                                             lathe_val *v)
{
    const lathe_latent_layer *l = at->d->layers[at->layer].latent;
    const int64_t widths[2] = {l->kv_rank, l->rope_dim};
    const lathe_op_attr attrs[] = {LATHE_ATTR_INT("heads", at->d->shapes[at->layer].n_heads),
                                   LATHE_ATTR_INT("key_dim", l->key_dim),
                                   LATHE_ATTR_INT("value_dim", l->value_dim)};
    char label[64];
    lathe_val parts[2], out[2];
    (void)snprintf(label, sizeof label, "layers.%d.latent_kv", (int)at->layer);
    LATHE_TRY(lathe_decoder_linear(at, "self_attn.kv_a_proj_with_mqa", l->bias, x, &x));
    LATHE_TRY(lathe_decoder_split(at, x, LATHE_NONE, widths, 2, "latent.kv_a", parts));
    LATHE_TRY(lathe_latent_norm(at, "self_attn.kv_a_layernorm", parts[0], &parts[0]));
    LATHE_TRY(lathe_decoder_linear(at, "self_attn.kv_b_proj", 0, parts[0], &parts[0]));
    LATHE_TRY(lathe_latent_rotate(at, l->rope_dim, "latent.k", parts[1], &parts[1]));
    LATHE_TRY(at->b->api->op(at->b->graph, "latent_kv", attrs, 3, parts, 2, out, 2, label));
    *k = out[0];
    *v = out[1];
    return LATHE_OK;
}

/** The layer, from the normalised x to the output projection. */
static inline lathe_status lathe_decoder_latent(const lathe_decoder_at *at, lathe_val x,
                                                lathe_val *out)
{
    lathe_val q, k, v;
    LATHE_TRY(lathe_latent_queries(at, x, &q));
    LATHE_TRY(lathe_latent_keys(at, x, &k, &v));
    LATHE_TRY(lathe_decoder_attend(at, 0, q, k, v, &q));
    return lathe_decoder_linear(at, "self_attn.o_proj", at->d->layers[at->layer].latent->bias, q,
                                out);
}

#endif
