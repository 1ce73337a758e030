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
               : lathe_decoder_add(list, layer, module,
                                   l->norm == LATHE_OP_LAYERNORM && !l->norm_no_bias, &t);
}

/* The norm of the queries or keys of n heads. */
static inline lathe_status lathe_decoder_add_qk_norm(const lathe_tensor_list *list, int32_t i,
                                                     const char *module, int32_t n)
{
    const lathe_decoder_layer *l = &list->d->layers[i];
    const int32_t size = list->d->shapes[i].head_dim;
    const lathe_model_tensor by_head = {
        .rows = (int64_t)n * size, .role = LATHE_ROLE_NORM, .init = LATHE_INIT_ONE, .n_experts = n};
    if (module == NULL || !l->qk_norm_by_head)
        return lathe_decoder_add_norm(list, i, module, l->whole_qk_norm ? (int64_t)n * size : size);
    return lathe_decoder_add(list, i, module, 0, &by_head);
}

/* A tensor that is no module's weight, under its own name. */
static inline lathe_status lathe_decoder_add_own(const lathe_tensor_list *list, int32_t i,
                                                 const char *name, const char *end,
                                                 const lathe_model_tensor *tensor)
{
    char text[256];
    lathe_model_tensor t = *tensor;
    (void)snprintf(text, sizeof text, "%s%d.%s%s", list->d->layer_prefix, (int)i, name, end);
    t.name = text;
    t.layer = i;
    return list->add(list->ctx, &t);
}

static inline lathe_status lathe_decoder_add_sinks(const lathe_tensor_list *list, int32_t i)
{
    const char *name = list->d->layers[i].names->sinks;
    const lathe_model_tensor t = {.rows = list->d->shapes[i].n_heads,
                                  .init_scale = list->d->init_range,
                                  .role = LATHE_ROLE_BIAS,
                                  .init = LATHE_INIT_NORMAL};
    return name == NULL ? LATHE_OK : lathe_decoder_add_own(list, i, name, "", &t);
}

/* A vector of the layer, [n], named as it is. */
static inline lathe_status lathe_decoder_add_vector(const lathe_tensor_list *list, int32_t i,
                                                    const char *tensor, int64_t n, double value)
{
    const lathe_model_tensor t = {
        .rows = n, .init_scale = value, .role = LATHE_ROLE_BIAS, .init = LATHE_INIT_CONSTANT};
    return lathe_decoder_add_own(list, i, tensor, "", &t);
}

/* A gated delta rule. transformers draws A from 0.01 to 16; here all begin in the middle, at 8. */
static inline lathe_status lathe_decoder_add_delta(const lathe_tensor_list *list, int32_t i)
{
    const lathe_delta_layer *l = list->d->layers[i].delta;
    const int64_t width = list->d->info.width, values = (int64_t)l->n_heads * l->value_dim;
    const int64_t qkv = 2 * (int64_t)l->n_key_heads * l->key_dim + values;
    const lathe_model_tensor conv = {.rows = qkv,
                                     .cols = l->taps,
                                     .init_scale = 1.0 / sqrt((double)l->taps),
                                     .role = LATHE_ROLE_CONV,
                                     .init = LATHE_INIT_UNIFORM};
    const lathe_model_tensor norm = {
        .rows = l->value_dim, .role = LATHE_ROLE_NORM, .init = LATHE_INIT_ONE};
    LATHE_TRY(lathe_decoder_add_vector(list, i, "linear_attn.dt_bias", l->n_heads, 1.0));
    LATHE_TRY(lathe_decoder_add_vector(list, i, "linear_attn.A_log", l->n_heads, log(8.0)));
    LATHE_TRY(lathe_decoder_add(list, i, "linear_attn.conv1d", 0, &conv));
    if (l->fused) {
        LATHE_TRY(lathe_decoder_add_linear(list, i, "linear_attn.in_proj_qkvz", qkv + values, width,
                                           0, 0));
        LATHE_TRY(lathe_decoder_add_linear(list, i, "linear_attn.in_proj_ba",
                                           2 * (int64_t)l->n_heads, width, 0, 0));
    }
    LATHE_TRY(lathe_decoder_add(list, i, "linear_attn.norm", 0, &norm));
    LATHE_TRY(lathe_decoder_add_linear(list, i, "linear_attn.out_proj", width, values, 0, 0));
    if (l->fused)
        return LATHE_OK;
    LATHE_TRY(lathe_decoder_add_linear(list, i, "linear_attn.in_proj_qkv", qkv, width, 0, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, "linear_attn.in_proj_z", values, width, 0, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, "linear_attn.in_proj_b", l->n_heads, width, 0, 0));
    return lathe_decoder_add_linear(list, i, "linear_attn.in_proj_a", l->n_heads, width, 0, 0);
}

/* Latent attention. The norms of the latents have the layer's kind, RMSNORM. */
static inline lathe_status lathe_decoder_add_latent(const lathe_tensor_list *list, int32_t i)
{
    const lathe_latent_layer *l = list->d->layers[i].latent;
    const int32_t heads = list->d->shapes[i].n_heads, q = l->key_dim + l->rope_dim;
    const int32_t both = l->key_dim + l->value_dim; /* a head's keys and values */
    const int64_t width = list->d->info.width;
    if (l->q_rank > 0) {
        LATHE_TRY(
            lathe_decoder_add_linear(list, i, "self_attn.q_a_proj", l->q_rank, width, l->bias, 0));
        LATHE_TRY(lathe_decoder_add_norm(list, i, "self_attn.q_a_layernorm", l->q_rank));
        LATHE_TRY(lathe_decoder_add_linear(list, i, "self_attn.q_b_proj", (int64_t)heads * q,
                                           l->q_rank, 0, q));
    } else {
        LATHE_TRY(
            lathe_decoder_add_linear(list, i, "self_attn.q_proj", (int64_t)heads * q, width, 0, q));
    }
    LATHE_TRY(lathe_decoder_add_linear(list, i, "self_attn.kv_a_proj_with_mqa",
                                       (int64_t)l->kv_rank + l->rope_dim, width, l->bias, 0));
    LATHE_TRY(lathe_decoder_add_norm(list, i, "self_attn.kv_a_layernorm", l->kv_rank));
    LATHE_TRY(lathe_decoder_add_linear(list, i, "self_attn.kv_b_proj", (int64_t)heads * both,
                                       l->kv_rank, 0, both));
    return lathe_decoder_add_linear(list, i, "self_attn.o_proj", width,
                                    (int64_t)heads * l->value_dim, l->bias, 0);
}

/* A tensor of a state space, under the name `part` of its module. */
static inline lathe_status lathe_decoder_add_mamba_part(const lathe_tensor_list *list, int32_t i,
                                                        const char *part, int32_t has_bias,
                                                        const lathe_model_tensor *tensor)
{
    char module[128];
    (void)snprintf(module, sizeof module, "%s.%s", list->d->layers[i].mamba->module, part);
    return lathe_decoder_add(list, i, module, has_bias, tensor);
}

/* A state space. transformers begins with A = 1, 2, .., H; here all begin in the middle. */
static inline lathe_status lathe_decoder_add_mamba(const lathe_tensor_list *list, int32_t i)
{
    const lathe_mamba_layer *l = list->d->layers[i].mamba;
    const int64_t width = list->d->info.width, inner = (int64_t)l->n_heads * l->head_dim;
    const int64_t xbc = inner + 2 * (int64_t)l->n_groups * l->state;
    const struct {
        const char *name;
        double value;
    } vectors[3] = {{"dt_bias", 1.0}, {"A_log", log(0.5 * (1.0 + l->n_heads))}, {"D", 1.0}};
    lathe_model_tensor t = {.rows = xbc,
                            .cols = l->taps,
                            .init_scale = 1.0 / sqrt((double)l->taps),
                            .role = LATHE_ROLE_CONV,
                            .init = LATHE_INIT_UNIFORM};
    char name[128];
    for (int v = 0; v < 3; v++) {
        (void)snprintf(name, sizeof name, "%s.%s", l->module, vectors[v].name);
        LATHE_TRY(lathe_decoder_add_vector(list, i, name, l->n_heads, vectors[v].value));
    }
    LATHE_TRY(lathe_decoder_add_mamba_part(list, i, "conv1d", l->conv_bias, &t));
    t = (lathe_model_tensor){.rows = inner + xbc + l->n_heads,
                             .cols = width,
                             .init_scale = list->d->init_range,
                             .role = LATHE_ROLE_MATRIX,
                             .init = LATHE_INIT_NORMAL};
    LATHE_TRY(lathe_decoder_add_mamba_part(list, i, "in_proj", l->in_bias, &t));
    const lathe_model_tensor norm = {
        .rows = inner, .role = LATHE_ROLE_NORM, .init = LATHE_INIT_ONE};
    if (l->norm != LATHE_MAMBA_NO_NORM)
        LATHE_TRY(lathe_decoder_add_mamba_part(list, i, "norm", 0, &norm));
    t.rows = width;
    t.cols = inner;
    return lathe_decoder_add_mamba_part(list, i, "out_proj", l->out_bias, &t);
}

static inline lathe_status lathe_decoder_add_attention(const lathe_tensor_list *list, int32_t i)
{
    const lathe_decoder_layer *l = &list->d->layers[i];
    const lathe_model_layer *s = &list->d->shapes[i];
    const lathe_layer_names *n = l->names;
    const int64_t width = list->d->info.width;
    const int64_t q = (int64_t)s->n_heads * s->head_dim, kv = (int64_t)s->n_kv_heads * s->head_dim;
    const int32_t head = s->head_dim, bias = l->qkv_bias, per_head = l->gated_queries ? 2 : 1;
    if (l->delta != NULL)
        return lathe_decoder_add_delta(list, i);
    if (l->latent != NULL)
        return lathe_decoder_add_latent(list, i);
    if (l->mamba != NULL)
        LATHE_TRY(lathe_decoder_add_mamba(list, i));
    if (l->mamba != NULL && !l->mamba->beside)
        return LATHE_OK;
    LATHE_TRY(lathe_decoder_add_sinks(list, i));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->q, per_head * q, width, bias, per_head * head));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->k, kv, width, bias, head));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->v, kv, width, bias, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->qkv, q + 2 * kv, width, bias, head));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->o, width, q, l->out_bias, 0));
    LATHE_TRY(lathe_decoder_add_qk_norm(list, i, n->q_norm, s->n_heads));
    return lathe_decoder_add_qk_norm(list, i, n->k_norm, s->n_kv_heads);
}

/* The matrices [rows, cols] of all experts of a module. */
static inline lathe_status lathe_decoder_add_expert(const lathe_tensor_list *list, int32_t i,
                                                    const char *module, int64_t rows, int64_t cols)
{
    const lathe_decoder *d = list->d;
    const int32_t n = d->layers[i].experts->n_experts;
    const lathe_model_tensor t = {.rows = n * rows,
                                  .cols = cols,
                                  .init_scale = d->init_range,
                                  .role = LATHE_ROLE_MATRIX,
                                  .init = LATHE_INIT_NORMAL,
                                  .layout = d->layers[i].experts->layout,
                                  .n_experts = n};
    return module == NULL ? LATHE_OK : lathe_decoder_add(list, i, module, 0, &t);
}

/* The correction of the scores, which begins at 0. */
static inline lathe_status lathe_decoder_add_correction(const lathe_tensor_list *list, int32_t i)
{
    const lathe_expert_layer *e = list->d->layers[i].experts;
    char name[256];
    const lathe_model_tensor t = {.name = name,
                                  .rows = e->n_experts,
                                  .role = LATHE_ROLE_BUFFER,
                                  .layer = i,
                                  .init = LATHE_INIT_ZERO,
                                  .layout = e->correction_layout};
    if (e->correction == NULL)
        return LATHE_OK;
    (void)snprintf(name, sizeof name, "%s%d.%s", list->d->layer_prefix, (int)i, e->correction);
    return list->add(list->ctx, &t);
}

/* The MLP of all tokens beside the experts, and its gate. */
static inline lathe_status lathe_decoder_add_shared(const lathe_tensor_list *list, int32_t i)
{
    const lathe_expert_layer *e = list->d->layers[i].experts;
    const int64_t width = list->d->info.width;
    const int32_t bias = e->shared_bias;
    LATHE_TRY(lathe_decoder_add_linear(list, i, e->shared_gate, e->shared_ffn, width, bias, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, e->shared_up, e->shared_ffn, width, bias, 0));
    LATHE_TRY(
        lathe_decoder_add_linear(list, i, e->shared_gate_up, 2 * e->shared_ffn, width, bias, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, e->shared_down, width, e->shared_ffn, bias, 0));
    return lathe_decoder_add_linear(list, i, e->shared_score, 1, width, 0, 0);
}

/* The matrices [rows, cols] of all experts of a module in one tensor, and their biases. */
static inline lathe_status lathe_decoder_add_fused_expert(const lathe_tensor_list *list, int32_t i,
                                                          const char *module, int64_t rows,
                                                          int64_t cols)
{
    const lathe_decoder *d = list->d;
    const int32_t n = d->layers[i].experts->n_experts;
    const lathe_model_tensor weight = {.rows = n * rows,
                                       .cols = cols,
                                       .init_scale = d->init_range,
                                       .role = LATHE_ROLE_MATRIX,
                                       .init = LATHE_INIT_NORMAL,
                                       .layout = LATHE_LAYOUT_FUSED_EXPERTS,
                                       .n_experts = n};
    const lathe_model_tensor bias = {.rows = n * rows,
                                     .role = LATHE_ROLE_BIAS,
                                     .init = LATHE_INIT_ZERO,
                                     .layout = LATHE_LAYOUT_FUSED_EXPERTS,
                                     .n_experts = n};
    LATHE_TRY(lathe_decoder_add_own(list, i, module, "", &weight));
    return d->layers[i].experts->bias ? lathe_decoder_add_own(list, i, module, "_bias", &bias)
                                      : LATHE_OK;
}

static inline lathe_status lathe_decoder_add_experts(const lathe_tensor_list *list, int32_t i)
{
    const lathe_expert_layer *e = list->d->layers[i].experts;
    const int64_t width = list->d->info.width;
    const lathe_model_tensor router = {.rows = e->n_experts,
                                       .cols = width,
                                       .init_scale = list->d->init_range,
                                       .role = LATHE_ROLE_ROUTER,
                                       .init = LATHE_INIT_NORMAL};
    LATHE_TRY(lathe_decoder_add(list, i, e->router, e->bias, &router));
    LATHE_TRY(lathe_decoder_add_correction(list, i));
    if (e->layout == LATHE_LAYOUT_FUSED_EXPERTS) {
        LATHE_TRY(lathe_decoder_add_fused_expert(list, i, e->gate_up, 2 * e->ffn, width));
        LATHE_TRY(lathe_decoder_add_fused_expert(list, i, e->down, width, e->ffn));
        return lathe_decoder_add_shared(list, i);
    }
    LATHE_TRY(lathe_decoder_add_expert(list, i, e->gate, e->ffn, width));
    LATHE_TRY(lathe_decoder_add_expert(list, i, e->up, e->ffn, width));
    LATHE_TRY(lathe_decoder_add_expert(list, i, e->gate_up, 2 * e->ffn, width));
    LATHE_TRY(lathe_decoder_add_expert(list, i, e->down, width, e->ffn));
    return lathe_decoder_add_shared(list, i);
}

/* The numbers of XIELU; those that train begin as in transformers: softplus(alpha_p) = 0.8 and
 * beta + softplus(alpha_n) = 0.8. */
static inline lathe_status lathe_decoder_add_xielu(const lathe_tensor_list *list, int32_t i)
{
    static const struct {
        const char *name;
        int32_t role;
        double value;
    } numbers[] = {{"alpha_p", LATHE_ROLE_BIAS, 0.20338232},
                   {"alpha_n", LATHE_ROLE_BIAS, -1.05022561},
                   {"beta", LATHE_ROLE_BUFFER, 0.5},
                   {"eps", LATHE_ROLE_BUFFER, -1e-6}};
    const lathe_decoder *d = list->d;
    char name[256];
    for (int k = 0; k < 4; k++) {
        const lathe_model_tensor t = {.name = name,
                                      .rows = 1,
                                      .init_scale = numbers[k].value,
                                      .role = numbers[k].role,
                                      .layer = i,
                                      .init = LATHE_INIT_CONSTANT,
                                      .layout = numbers[k].role == LATHE_ROLE_BUFFER
                                                    ? LATHE_LAYOUT_SCALAR
                                                    : LATHE_LAYOUT_PLAIN};
        (void)snprintf(name, sizeof name, "%s%d.%s.%s", d->layer_prefix, (int)i,
                       d->layers[i].names->xielu, numbers[k].name);
        LATHE_TRY(list->add(list->ctx, &t));
    }
    return LATHE_OK;
}

static inline lathe_status lathe_decoder_add_mlp(const lathe_tensor_list *list, int32_t i)
{
    const lathe_layer_names *n = list->d->layers[i].names;
    const int64_t width = list->d->info.width, ffn = list->d->info.ffn;
    const int32_t bias = list->d->layers[i].mlp_bias;
    if (list->d->layers[i].experts != NULL)
        return lathe_decoder_add_experts(list, i);
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->gate, ffn, width, bias, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->up, ffn, width, bias, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->gate_up, 2 * ffn, width, bias, 0));
    LATHE_TRY(lathe_decoder_add_linear(list, i, n->down, width, ffn, bias, 0));
    return list->d->layers[i].activation == LATHE_ACT_XIELU ? lathe_decoder_add_xielu(list, i)
                                                            : LATHE_OK;
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

static inline lathe_status lathe_decoder_add_norms_by_place(const lathe_tensor_list *list,
                                                            int32_t i)
{
    const lathe_layer_names *n = list->d->layers[i].names;
    const int64_t width = list->d->info.width;
    LATHE_TRY(lathe_decoder_add_norm(list, i, n->attention_norm, width));
    LATHE_TRY(lathe_decoder_add_norm(list, i, n->mlp_norm, width));
    LATHE_TRY(lathe_decoder_add_norm(list, i, n->attention_out_norm, width));
    return lathe_decoder_add_norm(list, i, n->mlp_out_norm, width);
}

static inline lathe_status lathe_decoder_add_layer(const lathe_tensor_list *list, int32_t i)
{
    const int32_t order = list->d->norms_order;
    const int mlp_first = order == LATHE_NORMS_LAST_MLP_FIRST;
    const int is_last =
        order == LATHE_NORMS_LAST || order == LATHE_NORMS_LAST_BY_PLACE || mlp_first;
    if (!is_last)
        LATHE_TRY(lathe_decoder_add_norms(list, i, 1));
    if (order == LATHE_NORMS_FIRST)
        LATHE_TRY(lathe_decoder_add_norms(list, i, 0));
    LATHE_TRY(lathe_decoder_add_attention(list, i));
    if (order == LATHE_NORMS_BEFORE_MODULES)
        LATHE_TRY(lathe_decoder_add_norms(list, i, 0));
    LATHE_TRY(lathe_decoder_add_mlp(list, i));
    if (order == LATHE_NORMS_LAST_BY_PLACE)
        return lathe_decoder_add_norms_by_place(list, i);
    if (!is_last)
        return LATHE_OK;
    LATHE_TRY(lathe_decoder_add_norms(list, i, !mlp_first));
    return lathe_decoder_add_norms(list, i, mlp_first);
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
    LATHE_TRY(lathe_decoder_add_norm(&list, -1, d->embedding_norm, d->info.width));
    for (int32_t i = 0; i < d->info.n_layers; i++)
        LATHE_TRY(lathe_decoder_add_layer(&list, i));
    LATHE_TRY(lathe_decoder_add_norm(&list, -1, d->final_norm, d->info.width));
    t.name = d->info.head;
    t.rows = d->info.vocab;
    t.role = LATHE_ROLE_HEAD;
    if (!d->info.tied)
        LATHE_TRY(add(ctx, &t));
    const lathe_model_tensor bias = {.name = d->info.head_bias,
                                     .rows = d->info.vocab,
                                     .role = LATHE_ROLE_BIAS,
                                     .layer = -1,
                                     .init = LATHE_INIT_ZERO};
    return d->info.head_bias != NULL ? add(ctx, &bias) : LATHE_OK;
}

#endif
