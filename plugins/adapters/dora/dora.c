/* DoRA: LoRA whose weight is split into magnitude and direction, which train separately.
 *
 *   V = W + s B A,   n = |V| (a norm per row, a constant for the derivative)
 *   y = (m / n) (V x) + b
 *   m [out], A [r, in], B [out, r], s = alpha/r (rsLoRA: alpha/sqrt r)
 *
 * m begins as the row norms of W, so the first forward is the base model's. With dropout, as in
 * PEFT:  y = W x + b + (m/n - 1) W h + (m/n) s B A h,  h = dropout(x).
 *
 * V is never computed:  n^2 = |W|^2 + 2 s <W A^T, B> + s^2 <B (A A^T), B>, row by row. |W| is a
 * parameter that the core derives from the weight at each load. W may be quantized.
 *
 * At the head over the vocabulary [V, C] the logits are (m / n) (V x), column by column.
 *
 * At the token embedding [V, C] the rows of V are its columns: m has an element for each of the C
 * channels, y = (m / n) (W[t] + s B A[:,t]).
 *
 * Source: arXiv:2402.09353, eq. (5), and section 4.3 for the constant; PEFT for names and defaults.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lathe/plugin.h"
#include "shared/lora.h"

#define MAGNITUDE "lora_magnitude_vector"
#define SMALLEST 1e-30 /* of n^2: the scale of a row of zeros is 0 */

static const lathe_field fields[LORA_N_FIELDS] = {LORA_FIELDS(LORA_RANDOM_INITS)};

static lathe_status dora_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                                void **out_self)
{
    lora *self = NULL;
    if (n_values != LORA_N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, LORA_N_FIELDS);
    LATHE_TRY(lora_open(host, "dora", values, n_values, &self));
    self->use_dora = 1;
    *out_self = self;
    return LATHE_OK;
}

/* A graph under way: the first error stays, and later nodes are not built. */
typedef struct builder {
    const lathe_graph_api *api;
    lathe_graph *g;
    lathe_status status;
} builder;

static lathe_val node(builder *t, int32_t op, const lathe_op_attrs *attrs, lathe_val a, lathe_val b)
{
    const lathe_val in[2] = {a, b};
    lathe_val out = LATHE_NONE;
    if (t->status == LATHE_OK)
        t->status = t->api->node(t->g, op, attrs, in, b == LATHE_NONE ? 1 : 2, &out, 1, -1, "dora");
    return out;
}

/* a^T b */
static lathe_val matmul(builder *t, lathe_val a, lathe_val b)
{
    const lathe_op_attrs attrs = {.alpha = 1.0, .trans_a = 1};
    return node(t, LATHE_OP_MATMUL, &attrs, a, b);
}

static lathe_val linear(builder *t, lathe_val x, lathe_val w)
{
    lathe_val out = LATHE_NONE;
    if (t->status == LATHE_OK)
        t->status = t->api->linear(t->g, x, w, LATHE_NONE, "dora", &out);
    return out;
}

static lathe_val detach(builder *t, lathe_val x)
{
    lathe_val out = LATHE_NONE;
    if (t->status == LATHE_OK)
        t->status = t->api->detach(t->g, x, &out);
    return out;
}

static int is_embedding(const lathe_site *site)
{
    return LATHE_HAS(site, kind) && site->kind == LATHE_SITE_EMBEDDING;
}

/* Declares a vector that begins with the norms of the weight's rows; of an embedding, its columns.
 */
static lathe_val norms(builder *t, const lora *l, const lathe_site *site, const char *which,
                       int32_t trainable)
{
    char name[512];
    lathe_val out = LATHE_NONE;
    const int n = snprintf(name, sizeof name, "%s.%s", site->module, which);
    const lathe_param_decl decl = {.size = sizeof decl,
                                   .init = is_embedding(site) ? LATHE_INIT_COLUMN_NORMS
                                                              : LATHE_INIT_ROW_NORMS,
                                   .name = name,
                                   .desc = lathe_desc_1d(LATHE_F32, site->out_features),
                                   .trainable = trainable,
                                   .init_from = site->weight};
    if (t->status == LATHE_OK && (n < 0 || (size_t)n >= sizeof name))
        t->status =
            lathe_fail(l->host, LATHE_E_UNSUPPORTED, "dora: the name %s is too long", site->module);
    if (t->status == LATHE_OK)
        t->status = t->api->param(t->g, &decl, &out);
    return out;
}

/* n^2 f32[out], without a derivative. A is [r, in], that of an embedding [in, r]. */
static lathe_val squares(builder *t, const lora *l, const lathe_site *site, lathe_val a,
                         lathe_val b)
{
    const double s = lora_scale(l, site->module);
    const lathe_op_attrs cross = {.alpha = 1.0, .beta = 2.0 * s};
    const lathe_op_attrs square = {.alpha = 1.0, .beta = s * s};
    const lathe_val base = norms(t, l, site, "lora_base_norm", 0);
    a = detach(t, a);
    b = detach(t, b);
    lathe_val wa = is_embedding(site) ? matmul(t, a, site->weight)
                                      : linear(t, a, site->weight); /* A W^T [r, out] */
    wa = node(t, LATHE_OP_MUL, NULL, wa, node(t, LATHE_OP_TRANSPOSE, NULL, b, LATHE_NONE));
    const lathe_val aa = is_embedding(site) ? matmul(t, a, a) : linear(t, a, a);
    lathe_val bb = linear(t, b, aa); /* B (A A^T) [out, r] */
    bb = node(t, LATHE_OP_MUL, NULL, bb, b);
    lathe_val sum = node(t, LATHE_OP_MUL, NULL, base, base);
    sum = node(t, LATHE_OP_LINCOMB, &cross, sum, node(t, LATHE_OP_SUM_ROWS, NULL, wa, LATHE_NONE));
    return node(t, LATHE_OP_LINCOMB, &square, sum,
                node(t, LATHE_OP_SUM_COLUMNS, NULL, bb, LATHE_NONE));
}

/* m/n f32[out] */
static lathe_val ratio(builder *t, const lora *l, const lathe_site *site, lathe_val a, lathe_val b)
{
    const lathe_op_attrs limit = {.alpha = SMALLEST, .beta = 3e38}, half = {.alpha = 0.5};
    const lathe_val m = norms(t, l, site, MAGNITUDE ".weight", 1);
    const lathe_val in = squares(t, l, site, a, b);
    lathe_val n = node(t, LATHE_OP_CLAMP, &limit, in, LATHE_NONE);
    n = node(t, LATHE_OP_LOG, NULL, n, LATHE_NONE);
    n = node(t, LATHE_OP_SCALE, &half, n, LATHE_NONE);
    n = node(t, LATHE_OP_EXP, NULL, n, LATHE_NONE);
    return node(t, LATHE_OP_DIV, NULL, m, n);
}

/* m/n - 1, as a matrix of the output's shape and dtype. The 1 is subtracted in f32: a compute dtype
 * of few bits then keeps the digits of the small difference. */
static lathe_val surplus(builder *t, const lora *l, const lathe_site *site, lathe_val a,
                         lathe_val b, const lathe_desc *y)
{
    const lathe_op_attrs less_one = {.alpha = 1.0, .beta = -1.0};
    const lathe_op_attrs rows = {.count = y->dims[0], .dtype = y->dtype};
    const lathe_val n = node(t, LATHE_OP_SCALE, &less_one, ratio(t, l, site, a, b), LATHE_NONE);
    return node(t, LATHE_OP_BROADCAST_ROW, &rows, n, LATHE_NONE);
}

/* y + b, for a layer whose product was built without its bias. */
static lathe_val with_bias(builder *t, lathe_val y, const lathe_site *site, const lathe_desc *desc)
{
    const lathe_op_attrs rows = {.count = desc->dims[0], .dtype = desc->dtype};
    if (site->bias == LATHE_NONE)
        return y;
    return node(t, LATHE_OP_ADD, NULL, y,
                node(t, LATHE_OP_BROADCAST_ROW, &rows, site->bias, LATHE_NONE));
}

static lathe_status dora_wrap(void *self, const lathe_graph_api *api, lathe_graph *g,
                              const lathe_site *site, lathe_val x, int32_t enabled,
                              lathe_val *out_y)
{
    lora *l = self;
    builder t = {api, g, LATHE_OK};
    lathe_val a = LATHE_NONE, b = LATHE_NONE, h = LATHE_NONE, update = LATHE_NONE;
    lathe_desc desc;
    if (!enabled)
        return api->linear(g, x, site->weight, site->bias, site->module, out_y);
    LATHE_TRY(targets_remember(&l->targets, site));
    LATHE_TRY(lora_declare_pair(l, api, g, site, &a, &b));
    LATHE_TRY(lora_drop(l, api, g, x, &h));
    LATHE_TRY(lora_product(l, api, g, site, h, a, b, &update));
    LATHE_TRY(api->desc(g, update, &desc));
    lathe_val base = linear(&t, x, site->weight);
    lathe_val y = node(&t, LATHE_OP_ADD, NULL, base, update);
    if (h != x)
        base = linear(&t, h, site->weight);
    const lathe_val v = h != x ? node(&t, LATHE_OP_ADD, NULL, base, update) : y; /* V h */
    const lathe_val more = node(&t, LATHE_OP_MUL, NULL, v, surplus(&t, l, site, a, b, &desc));
    y = node(&t, LATHE_OP_ADD, NULL, y, more);
    *out_y = with_bias(&t, y, site, &desc);
    return t.status;
}

static lathe_status dora_embed(void *self, const lathe_graph_api *api, lathe_graph *g,
                               const lathe_site *site, lathe_val tokens, int32_t enabled,
                               lathe_val *out_y)
{
    lora *l = self;
    builder t = {api, g, LATHE_OK};
    const lathe_val in[2] = {tokens, site->weight};
    lathe_val a = LATHE_NONE, b = LATHE_NONE, update = LATHE_NONE;
    lathe_desc desc;
    LATHE_TRY(api->node(g, LATHE_OP_EMBED, NULL, in, 2, out_y, 1, -1, "dora.embed"));
    if (!enabled)
        return LATHE_OK;
    if (l->targets.saved.ties)
        return lathe_fail_at(
            l->host, LATHE_E_CONFIG, "ensure_weight_tying",
            "dora: ensure_weight_tying with %s in target_modules would make it and "
            "the head share A and B but not the magnitude, which dora does not offer: "
            "use lora, or leave one of them out",
            site->module);
    LATHE_TRY(lora_embed_update(l, api, g, site, tokens, &a, &b, &update));
    LATHE_TRY(api->desc(g, update, &desc));
    const lathe_val y = node(&t, LATHE_OP_ADD, NULL, *out_y, update);
    const lathe_val more = node(&t, LATHE_OP_MUL, NULL, y, surplus(&t, l, site, a, b, &desc));
    *out_y = node(&t, LATHE_OP_ADD, NULL, y, more);
    return t.status;
}

/* With dropout, W would see x and the update dropout(x): two products with W. */
static lathe_status dora_head_scaled(void *self, const lathe_graph_api *api, lathe_graph *g,
                                     const lathe_site *site, lathe_val x, lathe_val *out_u,
                                     lathe_val *out_v, lathe_val *out_s)
{
    lora *l = self;
    builder t = {api, g, LATHE_OK};
    lathe_val a = LATHE_NONE;
    if (l->dropout > 0.0)
        return lathe_fail_at(l->host, LATHE_E_CONFIG, "dropout",
                             "dora: dropout is not offered with the head %s in target_modules: set "
                             "dropout = 0.0, or leave the head out",
                             site->module);
    LATHE_TRY(lora_head_pair(l, api, g, site, x, out_u, &a, out_v));
    *out_s = ratio(&t, l, site, a, *out_v);
    return t.status;
}

/* ---- merging ---- */

typedef struct scale_job {
    const float *m; /* [out] */
    float *v;       /* [out, in] */
    int64_t in;
} scale_job;

static void scale_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const scale_job *job = arg;
    (void)worker;
    for (int64_t o = begin; o < end; o++) {
        float *row = job->v + o * job->in;
        double square = 0.0;
        for (int64_t i = 0; i < job->in; i++)
            square += (double)row[i] * (double)row[i];
        const double scale = (double)job->m[o] / sqrt(square > SMALLEST ? square : SMALLEST);
        for (int64_t i = 0; i < job->in; i++)
            row[i] = (float)(scale * (double)row[i]);
    }
}

/* Scales the columns of an embedding v [in, out] to the norms m, as scale_rows does with rows. */
static void scale_columns(const lathe_site *site, const float *m, float *v)
{
    const int64_t width = site->out_features;
    for (int64_t c = 0; c < width; c++) {
        double square = 0.0;
        for (int64_t t = 0; t < site->in_features; t++)
            square += (double)v[t * width + c] * (double)v[t * width + c];
        const double scale = (double)m[c] / sqrt(square > SMALLEST ? square : SMALLEST);
        for (int64_t t = 0; t < site->in_features; t++)
            v[t * width + c] = (float)(scale * (double)v[t * width + c]);
    }
}

static lathe_status dora_merge(void *self, const lathe_site *site, const lathe_site_param *params,
                               int32_t n_params, float *w)
{
    const lora *l = self;
    const lathe_site_param *m = targets_find_param(params, n_params, MAGNITUDE ".weight");
    if (m == NULL)
        return lathe_fail(l->host, LATHE_E_NOT_FOUND, "dora: %s has no " MAGNITUDE " to merge",
                          site->module);
    if (m->desc.rank != 1 || m->desc.dims[0] != site->out_features)
        return lathe_fail(l->host, LATHE_E_SHAPE,
                          "dora: %s: " MAGNITUDE " has %lld elements; expected %lld", site->module,
                          (long long)m->desc.dims[0], (long long)site->out_features);
    LATHE_TRY(lora_merge(self, site, params, n_params, w));
    if (is_embedding(site)) {
        scale_columns(site, m->data, w);
        return LATHE_OK;
    }
    scale_job job = {m->data, w, site->in_features};
    l->host->parallel_for(site->out_features, 16, scale_rows, &job);
    return LATHE_OK;
}

/* PEFT writes the vector without the ".weight" of its module. */
static int64_t dora_file_key(void *self, const char *param_name, char *out, int64_t capacity)
{
    static const char end[] = "." MAGNITUDE ".weight", written[] = "." MAGNITUDE;
    const size_t n = strlen(param_name), tail = sizeof end - 1;
    if (n < tail || strcmp(param_name + n - tail, end) != 0)
        return lora_file_key(self, param_name, out, capacity);
    return snprintf(out, capacity > 0 ? (size_t)capacity : 0, "base_model.model.%.*s%s",
                    (int)(n - tail), param_name, written);
}

static const lathe_adapter_v1 table = {
    .size = sizeof table,
    .revision = LATHE_ADAPTER_REVISION,
    .select = lora_select,
    .targets = lora_targets,
    .wrap = dora_wrap,
    .base_is_frozen = adapter_base_is_frozen,
    .merge = dora_merge,
    .file_key = dora_file_key,
    .config_json = lora_config_json,
    .unties = lora_unties,
    .check = lora_check,
    .embed = dora_embed,
    .head_scaled = dora_head_scaled,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ADAPTER,
    .revision = LATHE_ADAPTER_REVISION,
    .n_fields = LORA_N_FIELDS,
    .name = "dora",
    .version = "1.0.0",
    .summary = "LoRA with the magnitude of each row trained apart from its direction",
    .source = "arXiv:2402.09353",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = dora_create,
    .destroy = lora_destroy,
};
