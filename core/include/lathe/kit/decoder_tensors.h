/* The tensors of a decoder (lathe/kit/decoder.h), in the order of transformers'
 * named_parameters(). */
#ifndef LATHE_KIT_DECODER_TENSORS_H
#define LATHE_KIT_DECODER_TENSORS_H

#include "decoder.h"

typedef struct lathe_tensor_list {
    const lathe_decoder *d;
    lathe_status (*add)(void *ctx, const lathe_model_tensor *tensor);
    void *ctx;
} lathe_tensor_list;

/** Adds the weight of a module and, with has_bias, its bias. cols 0: the weight of a norm. */
static inline lathe_status lathe_decoder_add(const lathe_tensor_list *list, int32_t layer,
                                             const char *module, int32_t has_bias,
                                             const lathe_model_tensor *tensor)
{
    char name[256];
    const char *prefix = layer >= 0 ? list->d->layer_prefix : "";
    const int n = layer >= 0 ? snprintf(name, sizeof name, "%s%d.%s", prefix, (int)layer, module)
                             : snprintf(name, sizeof name, "%s", module);
    lathe_model_tensor t = *tensor;
    t.name = name;
    t.layer = layer;
    if (n < 0 || n > 240)
        return lathe_fail(list->d->host, LATHE_E_ARG, "the name of module %s is too long", module);
    (void)snprintf(name + n, sizeof name - (size_t)n, ".weight");
    LATHE_TRY(list->add(list->ctx, &t));
    if (!has_bias)
        return LATHE_OK;
    (void)snprintf(name + n, sizeof name - (size_t)n, ".bias");
    const lathe_model_tensor bias = {.name = name,
                                     .rows = t.rows,
                                     .role = LATHE_ROLE_BIAS,
                                     .layer = layer,
                                     .init = LATHE_INIT_ZERO};
    return list->add(list->ctx, &bias);
}

static inline lathe_status lathe_decoder_add_linear(const lathe_tensor_list *list, int32_t layer,
                                                    const char *module, int64_t rows, int64_t cols,
                                                    int32_t has_bias, int32_t head_rows)
{
    const lathe_decoder *d = list->d;
    const lathe_layer_names *names = d->layers[layer].names;
    if (module == NULL)
        return LATHE_OK;
    /* output projections start smaller, because the residual stream is the sum of 2L of them */
    const int shrinks = d->residual_init && (module == names->o || module == names->down);
    const lathe_model_tensor t = {
        .rows = rows,
        .cols = cols,
        .init_scale = shrinks ? d->init_range / sqrt(2.0 * d->info.n_layers) : d->init_range,
        .role = LATHE_ROLE_MATRIX,
        .init = LATHE_INIT_NORMAL,
        .layout = d->transposed ? LATHE_LAYOUT_TRANSPOSED : LATHE_LAYOUT_PLAIN,
        .head_rows = head_rows};
    return lathe_decoder_add(list, layer, module, has_bias, &t);
}

static inline lathe_status lathe_decoder_add_norm(const lathe_tensor_list *list, int32_t layer,
                                                  const char *module, int64_t n)
{
    const lathe_decoder_layer *l = &list->d->layers[layer >= 0 ? layer : 0];
    const lathe_model_tensor t = {.rows = n,
                                  .role = LATHE_ROLE_NORM,
                                  .init = l->norm_offset_one ? LATHE_INIT_ZERO : LATHE_INIT_ONE};
    return module == NULL
               ? LATHE_OK
               : lathe_decoder_add(list, layer, module, l->norm == LATHE_OP_LAYERNORM, &t);
}

static inline lathe_status lathe_decoder_add_attention(const lathe_tensor_list *list, int32_t i)
{
    const lathe_decoder_layer *l = &list->d->layers[i];
    const lathe_model_layer *s = &list->d->shapes[i];
    const lathe_layer_names *n = l->names;
    const int64_t width = list->d->info.width;
    const int64_t q = (int64_t)s->n_heads * s->head_dim, kv = (int64_t)s->n_kv_heads * s->head_dim;
    const int32_t head = s->head_dim, bias = l->qkv_bias;
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->q, q, width, bias, head));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->k, kv, width, bias, head));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->v, kv, width, bias, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->qkv, q + 2 * kv, width, bias, head));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->o, width, q, l->out_bias, 0));
    LATHE_TRY(lathe_decoder_add_norm(list, i, n->q_norm, l->whole_qk_norm ? q : head));
    return lathe_decoder_add_norm(list, i, n->k_norm, l->whole_qk_norm ? kv : head);
}

static inline lathe_status lathe_decoder_add_mlp(const lathe_tensor_list *list, int32_t i)
{
    const lathe_layer_names *n = list->d->layers[i].names;
    const int64_t width = list->d->info.width, ffn = list->d->info.ffn;
    const int32_t bias = list->d->layers[i].mlp_bias;
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->gate, ffn, width, bias, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->up, ffn, width, bias, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->gate_up, 2 * ffn, width, bias, 0));
    return lathe_decoder_add_linear(list, i, n->down, width, ffn, bias, 0);
}

static inline lathe_status lathe_decoder_add_norms(const lathe_tensor_list *list, int32_t i,
                                                   int of_attention)
{
    const lathe_layer_names *n = list->d->layers[i].names;
    const int64_t width = list->d->info.width;
    LATHE_TRY(
        lathe_decoder_add_norm(list, i, of_attention ? n->attention_norm : n->mlp_norm, width));
    return lathe_decoder_add_norm(list, i, of_attention ? n->attention_out_norm : n->mlp_out_norm,
                                  width);
}

static inline lathe_status lathe_decoder_add_layer(const lathe_tensor_list *list, int32_t i)
{
    const int32_t order = list->d->norms_order;
    if (order != LATHE_NORMS_LAST)
        LATHE_TRY(lathe_decoder_add_norms(list, i, 1));
    if (order == LATHE_NORMS_FIRST)
        LATHE_TRY(lathe_decoder_add_norms(list, i, 0));
    LATHE_TRY(lathe_decoder_add_attention(list, i));
    if (order == LATHE_NORMS_BEFORE_MODULES)
        LATHE_TRY(lathe_decoder_add_norms(list, i, 0));
    LATHE_TRY(lathe_decoder_add_mlp(list, i));
    if (order != LATHE_NORMS_LAST)
        return LATHE_OK;
    LATHE_TRY(lathe_decoder_add_norms(list, i, 1));
    return lathe_decoder_add_norms(list, i, 0);
}

/** lathe_model_v1.tensors of a decoder. */
static inline lathe_status
lathe_decoder_tensors(void *self, lathe_status (*add)(void *ctx, const lathe_model_tensor *tensor),
                      void *ctx)
{
    const lathe_decoder *d = (const lathe_decoder *)self;
    const lathe_tensor_list list = {d, add, ctx};
    lathe_model_tensor t = {.name = d->info.embedding,
                            .rows = d->info.vocab,
                            .cols = d->info.width,
                            .init_scale = d->init_range,
                            .role = LATHE_ROLE_EMBEDDING,
                            .layer = -1,
                            .init = LATHE_INIT_NORMAL};
    LATHE_TRY(add(ctx, &t));
    if (d->positions != NULL) {
        t.name = d->positions;
        t.rows = d->info.max_positions;
        LATHE_TRY(add(ctx, &t));
    }
    for (int32_t i = 0; i < d->info.n_layers; i++)
        LATHE_TRY(lathe_decoder_add_layer(&list, i));
    LATHE_TRY(lathe_decoder_add_norm(&list, -1, d->final_norm, d->info.width));
    if (d->info.tied)
        return LATHE_OK;
    t.name = d->info.head;
    t.rows = d->info.vocab;
    t.role = LATHE_ROLE_HEAD;
    return add(ctx, &t);
}

#endif
