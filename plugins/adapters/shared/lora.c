/* LoRA: adds a low-rank update to frozen linear layers, with the settings and the file layout of
 * PEFT.
 *
 *   y = x W^T + b + s (dropout(x) A^T) B^T
 *   A [r, in], B [out, r], s = alpha/r (rsLoRA: alpha/sqrt r)
 *
 * A starts like the weight of torch.nn.Linear (kaiming uniform, a = sqrt 5), or normal with the
 * standard deviation 1/r; B starts at zero. With init = "pissa", A and B start from the leading
 * singular vectors of W, as A0 and B0, and the base is the residual W - s B0 A0. With
 * h = dropout(x) a layer computes
 *
 *   y = x W^T + b + s ((h A^T) B^T - (x A0^T) B0^T)
 *
 * so that W is not changed, and without the adapter the model is the base model. With
 * init = "loftq" the frozen weight is a quantized Q, and A and B start so that s B A is the best
 * approximation of W - Q of rank r. With init = "mica", B is the r left singular vectors of W for
 * its smallest singular values and stays as it is, and A begins at zero.
 *
 * The factor s is applied to the product x A^T [N, r], where it costs least. W may be quantized:
 * only the core reads it.
 *
 * Source: arXiv:2106.09685; rsLoRA: arXiv:2312.03732; PiSSA: arXiv:2404.02948; LoftQ:
 * arXiv:2310.08659; MiCA: arXiv:2604.01694; PEFT for names and defaults.
 */
#include "shared/lora.h"

#include <math.h>
#include <string.h>

void lora_destroy(void *self)
{
    lora *l = self;
    if (l == NULL)
        return;
    lora_patterns_destroy(l->ranks);
    lora_patterns_destroy(l->alphas);
    targets_fini(&l->targets);
    l->host->free(l);
}

/* PEFT takes lora_bias with its default initialization alone; Lathe does not offer it for DoRA. */
static lathe_status check_bias(const lora *l, const char *init)
{
    const int is_dora = strcmp(l->method, "dora") == 0;
    if (!l->lora_bias || (strcmp(init, "kaiming") == 0 && !is_dora))
        return LATHE_OK;
    if (is_dora)
        return lathe_fail_at(l->host, LATHE_E_CONFIG, "lora_bias",
                             "lora_bias is not offered for DoRA");
    return lathe_fail_at(l->host, LATHE_E_CONFIG, "lora_bias",
                         "lora_bias belongs to init = \"kaiming\", and init is \"%s\"", init);
}

/* PEFT takes an alpha of 0, with which A and B have no effect. */
static lathe_status check_alpha(const lora *l)
{
    if (l->alpha > 0.0)
        return LATHE_OK;
    if (l->pissa || l->loftq_iter > 0)
        return lathe_fail_at(l->host, LATHE_E_CONFIG, "alpha",
                             "alpha is 0, and init = \"%s\" divides by it",
                             l->pissa ? "pissa" : "loftq");
    if (l->targets.strict)
        return lathe_fail_at(l->host, LATHE_E_CONFIG, "alpha",
                             "alpha is 0, so the adapter has no effect; expected a number above 0");
    lathe_warn_at(l->host, "alpha", "%s: alpha is 0, so the adapter has no effect", l->method);
    return LATHE_OK;
}

lathe_status lora_open(const lathe_host *host, const char *method, const lathe_value *values,
                       int32_t n_values, lora **out)
{
    const lathe_value *steps = n_values > LORA_LOFTQ_ITER ? &values[LORA_LOFTQ_ITER] : NULL;
    lora *l = host->alloc((int64_t)sizeof *l);
    if (l == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    l->host = host;
    l->method = method;
    l->r = values[LORA_R].i;
    l->alpha = values[LORA_ALPHA].f;
    l->dropout = values[LORA_DROPOUT].f;
    l->lora_bias = values[LORA_BIAS].i != 0;
    l->use_rslora = values[LORA_USE_RSLORA].i != 0;
    l->gaussian = strcmp(values[LORA_INIT].s, "gaussian") == 0;
    l->pissa = strcmp(values[LORA_INIT].s, "pissa") == 0;
    l->mica = strcmp(values[LORA_INIT].s, "mica") == 0;
    if (steps != NULL && strcmp(values[LORA_INIT].s, "loftq") == 0)
        l->loftq_iter = steps->is_set ? steps->i : 1;
    if (values[LORA_RANK_PATTERN].is_set)
        l->rank_json = values[LORA_RANK_PATTERN].s;
    if (values[LORA_ALPHA_PATTERN].is_set)
        l->alpha_json = values[LORA_ALPHA_PATTERN].s;
    lathe_status status =
        steps != NULL && steps->is_set && l->loftq_iter == 0
            ? lathe_fail_at(host, LATHE_E_CONFIG, "loftq_iter",
                            "loftq_iter belongs to init = \"loftq\", and init is \"%s\"",
                            values[LORA_INIT].s)
            : LATHE_OK;
    l->targets.takes_outer = 1;
    if (status != LATHE_OK)
        goto out;
    status = targets_read(&l->targets, host, method, &values[LORA_TARGETS], &values[LORA_TIES]);
    if (status != LATHE_OK)
        goto out;
    status = lora_patterns_create(host, method, "rank_pattern", l->rank_json, 1, &l->ranks);
    if (status != LATHE_OK)
        goto out;
    status = lora_patterns_create(host, method, "alpha_pattern", l->alpha_json, 0, &l->alphas);
    if (status != LATHE_OK)
        goto out;
    if ((status = check_alpha(l)) != LATHE_OK)
        goto out;
    status = check_bias(l, values[LORA_INIT].s);
out:
    if (status != LATHE_OK) {
        lora_destroy(l);
        return status;
    }
    *out = l;
    return LATHE_OK;
}

int64_t lora_rank(const lora *self, const char *module)
{
    return (int64_t)lora_patterns_find(self->ranks, module, (double)self->r);
}

double lora_scale(const lora *self, const char *module)
{
    const double r = (double)lora_rank(self, module);
    return lora_patterns_find(self->alphas, module, self->alpha) / (self->use_rslora ? sqrt(r) : r);
}

lathe_status lora_select(void *self, const lathe_param_info *param, int32_t *out_trainable,
                         int32_t *out_group)
{
    const lora *l = self;
    *out_group = 0;
    return targets_select(&l->targets, param, out_trainable);
}

int64_t lora_file_key(void *self, const char *param_name, char *out, int64_t capacity)
{
    const lora *l = self;
    return targets_file_key(&l->targets, param_name, out, capacity);
}

int32_t lora_unties(void *self, const char *embedding, const char *head)
{
    return saved_modules_untie(&((const lora *)self)->targets.saved, embedding, head);
}

int32_t lora_uses_loftq(void *self)
{
    return ((const lora *)self)->loftq_iter > 0;
}

int32_t lora_targets(void *self, const lathe_site *site)
{
    const lora *l = self;
    if (LATHE_HAS(site, kind) && site->kind == LATHE_SITE_HEAD)
        return lora_targets_head(l, site);
    return targets_include(&l->targets, site);
}

/* Declares a matrix of a site. `how` has its shape and its initial values. */
static lathe_status declare(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                            const lathe_site *site, const char *which, lathe_param_decl how,
                            lathe_val *out)
{
    char name[512];
    const int n = snprintf(name, sizeof name, "%s.%s.weight", site->module, which);
    if (n < 0 || (size_t)n >= sizeof name)
        return lathe_fail(l->host, LATHE_E_UNSUPPORTED, "%s: the name %s is too long", l->method,
                          site->module);
    how.size = sizeof how;
    how.name = name;
    return api->param(g, &how, out);
}

lathe_status lora_check_rank(const lora *l, const lathe_site *site, const char *init)
{
    const int64_t r = lora_rank(l, site->module);
    if (r <= site->out_features && r <= site->in_features)
        return LATHE_OK;
    return lathe_fail_at(
        l->host, LATHE_E_CONFIG, "init",
        "%s: init = \"%s\": the rank is %lld, and %s [%lld, %lld] has fewer singular "
        "vectors",
        l->method, init, (long long)r, site->module, (long long)site->out_features,
        (long long)site->in_features);
}

lathe_status lora_refuse_loftq(const lora *l, const char *before, const char *module,
                               const char *after)
{
    return lathe_fail_at(l->host, LATHE_E_CONFIG, "init",
                         "%s: init = \"loftq\" starts from the quantization error of a weight, "
                         "and %s %s%s, or use another init",
                         l->method, before, module, after);
}

/* Declares A and B so that s B A is the best approximation of the quantization error W - Q of rank
 * r. */
static lathe_status declare_loftq(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                                  const lathe_site *site, lathe_val *out_a, lathe_val *out_b)
{
    const int64_t r = lora_rank(l, site->module);
    lathe_param_decl how = {.init = LATHE_INIT_LOFTQ_A,
                            .desc = lathe_desc_2d(LATHE_F32, r, site->in_features),
                            .init_scale = 1.0 / lora_scale(l, site->module),
                            .init_from = site->weight,
                            .init_steps = (int32_t)l->loftq_iter,
                            .trainable = 1};
    if (site->weight_quantized > 1)
        return lora_refuse_loftq(l, "the model's folder has only the quantized", site->module,
                                 ": name a folder in full precision, with [quant]");
    LATHE_TRY(lora_check_rank(l, site, "loftq"));
    LATHE_TRY(declare(l, api, g, site, "lora_A", how, out_a));
    how.init = LATHE_INIT_LOFTQ_B;
    how.desc = lathe_desc_2d(LATHE_F32, site->out_features, r);
    return declare(l, api, g, site, "lora_B", how, out_b);
}

/* Declares A and B so that s B A is the best approximation of W of rank r. */
static lathe_status declare_singular(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                                     const lathe_site *site, int32_t trainable, lathe_val *out_a,
                                     lathe_val *out_b)
{
    const int64_t r = lora_rank(l, site->module), out = site->out_features, in = site->in_features;
    lathe_param_decl how = {.init = LATHE_INIT_SINGULAR_A,
                            .desc = lathe_desc_2d(LATHE_F32, r, in),
                            .init_scale = 1.0 / lora_scale(l, site->module),
                            .init_from = site->weight,
                            .trainable = trainable};
    if (site->weight_quantized)
        return lathe_fail_at(
            l->host, LATHE_E_CONFIG, "init",
            "%s: init = \"pissa\" starts from the singular vectors of a weight, and "
            "%s is quantized; expected a base in full precision, or another init",
            l->method, site->module);
    LATHE_TRY(lora_check_rank(l, site, "pissa"));
    LATHE_TRY(declare(l, api, g, site, trainable ? "lora_A" : "lora_A_start", how, out_a));
    how.init = LATHE_INIT_SINGULAR_B;
    how.desc = lathe_desc_2d(LATHE_F32, out, r);
    return declare(l, api, g, site, trainable ? "lora_B" : "lora_B_start", how, out_b);
}

/* Declares B so that it is the last left singular vectors of W, and A as zero. */
static lathe_status declare_mica(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                                 const lathe_site *site, lathe_val *out_a, lathe_val *out_b)
{
    const int64_t r = lora_rank(l, site->module);
    const lathe_param_decl a = {.init = LATHE_INIT_ZERO,
                                .desc = lathe_desc_2d(LATHE_F32, r, site->in_features),
                                .trainable = 1};
    const lathe_param_decl b = {.init = LATHE_INIT_MINOR_LEFT,
                                .init_from = site->weight,
                                .desc = lathe_desc_2d(LATHE_F32, site->out_features, r)};
    LATHE_TRY(lora_check_rank(l, site, "mica"));
    LATHE_TRY(declare(l, api, g, site, "lora_A", a, out_a));
    return declare(l, api, g, site, "lora_B", b, out_b);
}

lathe_status lora_declare_pair(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                               const lathe_site *site, lathe_val *out_a, lathe_val *out_b)
{
    const int64_t r = lora_rank(l, site->module);
    const lathe_param_decl a = {.init =
                                    l->gaussian ? LATHE_INIT_NORMAL : LATHE_INIT_KAIMING_UNIFORM,
                                .init_scale = l->gaussian ? 1.0 / (double)r : 0.0,
                                .desc = lathe_desc_2d(LATHE_F32, r, site->in_features),
                                .trainable = 1};
    const lathe_param_decl b = {.init = LATHE_INIT_ZERO,
                                .desc = lathe_desc_2d(LATHE_F32, site->out_features, r),
                                .trainable = 1};
    if (l->pissa)
        return declare_singular(l, api, g, site, 1, out_a, out_b);
    if (l->loftq_iter > 0 && site->weight_quantized)
        return declare_loftq(l, api, g, site, out_a, out_b);
    if (l->mica)
        return declare_mica(l, api, g, site, out_a, out_b);
    LATHE_TRY(declare(l, api, g, site, "lora_A", a, out_a));
    return declare(l, api, g, site, "lora_B", b, out_b);
}

lathe_status lora_drop(const lora *l, const lathe_graph_api *api, lathe_graph *g, lathe_val x,
                       lathe_val *out)
{
    *out = x;
    if (l->dropout <= 0)
        return LATHE_OK;
    lathe_val in[2] = {x, LATHE_NONE};
    const lathe_op_attrs drop = {.p = (float)l->dropout, .rng_stream = api->rng_stream(g)};
    LATHE_TRY(api->rng(g, &in[1]));
    return api->node(g, LATHE_OP_DROPOUT, &drop, in, 2, out, 1, -1, "lora.dropout");
}

/* Declares the bias of B [out], which begins as zero, times s. */
static lathe_status scaled_bias(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                                const lathe_site *site, lathe_val *out)
{
    char name[512];
    const lathe_op_attrs scale = {.alpha = lora_scale(l, site->module)};
    const int n = snprintf(name, sizeof name, "%s.lora_B.bias", site->module);
    if (n < 0 || (size_t)n >= sizeof name)
        return lathe_fail(l->host, LATHE_E_UNSUPPORTED, "%s: the name %s is too long", l->method,
                          site->module);
    const lathe_param_decl decl = {.size = sizeof decl,
                                   .name = name,
                                   .desc = lathe_desc_1d(LATHE_F32, site->out_features),
                                   .init = LATHE_INIT_ZERO,
                                   .trainable = 1};
    LATHE_TRY(api->param(g, &decl, out));
    return api->node(g, LATHE_OP_SCALE, &scale, out, 1, out, 1, -1, "lora.bias");
}

/* [N, in] -> [N, r], times s -> [N, out] */
lathe_status lora_product(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                          const lathe_site *site, lathe_val h, lathe_val a, lathe_val b,
                          lathe_val *out)
{
    const lathe_op_attrs scale = {.alpha = lora_scale(l, site->module)};
    LATHE_TRY(api->linear(g, h, a, LATHE_NONE, "lora_A", &h));
    if (scale.alpha != 1.0)
        LATHE_TRY(api->node(g, LATHE_OP_SCALE, &scale, &h, 1, &h, 1, -1, "lora.scale"));
    lathe_val bias = LATHE_NONE;
    if (l->lora_bias)
        LATHE_TRY(scaled_bias(l, api, g, site, &bias));
    return api->linear(g, h, b, bias, "lora_B", out);
}

lathe_status lora_subtract_start(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                                 const lathe_site *site, lathe_val x, lathe_val *io_update)
{
    lathe_val a = LATHE_NONE, b = LATHE_NONE, in[2] = {*io_update, LATHE_NONE};
    if (!l->pissa)
        return LATHE_OK;
    LATHE_TRY(declare_singular(l, api, g, site, 0, &a, &b));
    LATHE_TRY(lora_product(l, api, g, site, x, a, b, &in[1]));
    return api->node(g, LATHE_OP_SUB, NULL, in, 2, io_update, 1, 0, "lora.start");
}

lathe_status lora_wrap(void *self, const lathe_graph_api *api, lathe_graph *g,
                       const lathe_site *site, lathe_val x, int32_t enabled, lathe_val *out_y)
{
    lora *l = self;
    lathe_val a = LATHE_NONE, b = LATHE_NONE, h = LATHE_NONE, in[2];
    LATHE_TRY(api->linear(g, x, site->weight, site->bias, site->module, &in[0]));
    *out_y = in[0];
    if (!enabled)
        return LATHE_OK;
    LATHE_TRY(targets_remember(&l->targets, site));
    LATHE_TRY(lora_declare_pair(l, api, g, site, &a, &b));
    LATHE_TRY(lora_drop(l, api, g, x, &h));
    LATHE_TRY(lora_product(l, api, g, site, h, a, b, &in[1]));
    LATHE_TRY(lora_subtract_start(l, api, g, site, x, &in[1]));
    return api->node(g, LATHE_OP_ADD, NULL, in, 2, out_y, 1, 0, "lora.add");
}

/* ---- merging ---- */

typedef struct merge_job {
    const float *a, *b; /* [r, in], [out, r] */
    float *w;           /* [out, in] */
    int64_t r, in;
    float scale;
} merge_job;

static void merge_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const merge_job *job = arg;
    (void)worker;
    for (int64_t o = begin; o < end; o++)
        for (int64_t k = 0; k < job->r; k++) {
            const float f = job->scale * job->b[o * job->r + k];
            for (int64_t i = 0; i < job->in; i++)
                job->w[o * job->in + i] += f * job->a[k * job->in + i];
        }
}

/* Adds sign * s B A to w. A and B are the parameters name_a and name_b. */
static lathe_status merge_pair(const lora *l, const lathe_site *site,
                               const lathe_site_param *params, int32_t n_params, const char *name_a,
                               const char *name_b, float sign, float *w)
{
    const lathe_site_param *a = targets_find_param(params, n_params, name_a);
    const lathe_site_param *b = targets_find_param(params, n_params, name_b);
    if (a == NULL || b == NULL)
        return lathe_fail(l->host, LATHE_E_NOT_FOUND, "%s: %s has no %s and %s to merge", l->method,
                          site->module, name_a, name_b);
    const int64_t r = a->desc.dims[0];
    if (r != lora_rank(l, site->module) || a->desc.dims[1] != site->in_features ||
        b->desc.dims[0] != site->out_features || b->desc.dims[1] != r)
        return lathe_fail(l->host, LATHE_E_SHAPE,
                          "%s: %s: A [%lld, %lld] and B [%lld, %lld]; expected [%lld, %lld] and "
                          "[%lld, %lld]",
                          l->method, site->module, (long long)r, (long long)a->desc.dims[1],
                          (long long)b->desc.dims[0], (long long)b->desc.dims[1],
                          (long long)lora_rank(l, site->module), (long long)site->in_features,
                          (long long)site->out_features, (long long)lora_rank(l, site->module));
    merge_job job = {a->data, b->data,           w,
                     r,       site->in_features, sign * (float)lora_scale(l, site->module)};
    l->host->parallel_for(site->out_features, 16, merge_rows, &job);
    return LATHE_OK;
}

lathe_status lora_merge(void *self, const lathe_site *site, const lathe_site_param *params,
                        int32_t n_params, float *w)
{
    const lora *l = self;
    if (LATHE_HAS(site, kind) && site->kind == LATHE_SITE_EMBEDDING)
        return lora_merge_embedding(l, site, params, n_params, w);
    LATHE_TRY(merge_pair(l, site, params, n_params, "lora_A.weight", "lora_B.weight", 1.0f, w));
    if (!l->pissa)
        return LATHE_OK;
    return merge_pair(l, site, params, n_params, "lora_A_start.weight", "lora_B_start.weight",
                      -1.0f, w);
}

int32_t lora_adds_bias(void *self)
{
    return ((const lora *)self)->lora_bias;
}

lathe_status lora_merge_bias(void *self, const lathe_site *site, const lathe_site_param *params,
                             int32_t n_params, float *b)
{
    const lora *l = self;
    const lathe_site_param *added = targets_find_param(params, n_params, "lora_B.bias");
    const float scale = (float)lora_scale(l, site->module);
    if (added == NULL)
        return lathe_fail(l->host, LATHE_E_NOT_FOUND, "%s: %s has no lora_B.bias to merge",
                          l->method, site->module);
    if (lathe_desc_count(&added->desc) != site->out_features)
        return lathe_fail(l->host, LATHE_E_SHAPE,
                          "%s: %s: lora_B.bias has %lld elements; expected %lld", l->method,
                          site->module, (long long)lathe_desc_count(&added->desc),
                          (long long)site->out_features);
    for (int64_t o = 0; o < site->out_features; o++)
        b[o] += scale * added->data[o];
    return LATHE_OK;
}

/* A misspelt target would silently leave its modules untrained, a misspelt pattern would leave them
 * with another rank or alpha. */
lathe_status lora_check(void *self, const char *const *modules, int32_t n_modules,
                        const char *const *params, int32_t n_params)
{
    const lora *l = self;
    LATHE_TRY(targets_check(&l->targets, modules, n_modules, params, n_params));
    n_modules += targets_n_outer(&l->targets, modules, n_modules);
    LATHE_TRY(lora_patterns_check(l->ranks, "rank_pattern", modules, n_modules, l->targets.strict));
    return lora_patterns_check(l->alphas, "alpha_pattern", modules, n_modules, l->targets.strict);
}
