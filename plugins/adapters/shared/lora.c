/* LoRA: adds a low-rank update to frozen linear layers, with the settings and the file layout of
 * PEFT.
 *
 *   y = x W^T + b + s (dropout(x) A^T) B^T
 *   A [r, in], B [out, r], s = alpha/r (rsLoRA: alpha/sqrt r)
 *
 * A starts like the weight of torch.nn.Linear (kaiming uniform, a = sqrt 5), or normal with the
 * standard deviation 1/r; B starts at zero. The
 * factor s is applied to the [N, r] product, where it costs least. W may be quantized: only the
 * core reads it.
 *
 * Source: arXiv:2106.09685; rsLoRA: arXiv:2312.03732; PEFT for names and defaults.
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

lathe_status lora_open(const lathe_host *host, const char *method, const lathe_value *values,
                       lora **out)
{
    lora *l = host->alloc((int64_t)sizeof *l);
    if (l == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "%s: no memory for the instance", method);
    l->host = host;
    l->method = method;
    l->r = values[LORA_R].i;
    l->alpha = values[LORA_ALPHA].f;
    l->dropout = values[LORA_DROPOUT].f;
    l->use_rslora = values[LORA_USE_RSLORA].i != 0;
    l->gaussian = strcmp(values[LORA_INIT].s, "gaussian") == 0;
    if (values[LORA_RANK_PATTERN].is_set)
        l->rank_json = values[LORA_RANK_PATTERN].s;
    if (values[LORA_ALPHA_PATTERN].is_set)
        l->alpha_json = values[LORA_ALPHA_PATTERN].s;
    lathe_status status = targets_read(&l->targets, host, method, &values[LORA_TARGETS]);
    if (status == LATHE_OK)
        status = lora_patterns_create(host, method, "rank_pattern", l->rank_json, 1, &l->ranks);
    if (status == LATHE_OK)
        status = lora_patterns_create(host, method, "alpha_pattern", l->alpha_json, 0, &l->alphas);
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

int32_t lora_targets(void *self, const lathe_site *site)
{
    const lora *l = self;
    return targets_include(&l->targets, site);
}

static lathe_status declare(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                            const lathe_site *site, const char *which, int32_t init, double scale,
                            int64_t rows, int64_t cols, lathe_val *out)
{
    char name[512];
    const int n = snprintf(name, sizeof name, "%s.%s.weight", site->module, which);
    if (n < 0 || (size_t)n >= sizeof name)
        return lathe_fail(l->host, LATHE_E_UNSUPPORTED, "%s: the name %s is too long", l->method,
                          site->module);
    const lathe_param_decl decl = {.size = sizeof decl,
                                   .init = init,
                                   .name = name,
                                   .desc = lathe_desc_2d(LATHE_F32, rows, cols),
                                   .init_scale = scale,
                                   .trainable = 1};
    return api->param(g, &decl, out);
}

lathe_status lora_declare_pair(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                               const lathe_site *site, lathe_val *out_a, lathe_val *out_b)
{
    const int64_t r = lora_rank(l, site->module);
    const int32_t init = l->gaussian ? LATHE_INIT_NORMAL : LATHE_INIT_KAIMING_UNIFORM;
    LATHE_TRY(declare(l, api, g, site, "lora_A", init, l->gaussian ? 1.0 / (double)r : 0.0, r,
                      site->in_features, out_a));
    return declare(l, api, g, site, "lora_B", LATHE_INIT_ZERO, 0.0, site->out_features, r, out_b);
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

/* [N, in] -> [N, r] -> scaled -> [N, out] */
lathe_status lora_product(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                          const lathe_site *site, lathe_val h, lathe_val a, lathe_val b,
                          lathe_val *out)
{
    const lathe_op_attrs scale = {.alpha = lora_scale(l, site->module)};
    LATHE_TRY(api->linear(g, h, a, LATHE_NONE, "lora_A", &h));
    if (scale.alpha != 1.0)
        LATHE_TRY(api->node(g, LATHE_OP_SCALE, &scale, &h, 1, &h, 1, -1, "lora.scale"));
    return api->linear(g, h, b, LATHE_NONE, "lora_B", out);
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

lathe_status lora_merge(void *self, const lathe_site *site, const lathe_site_param *params,
                        int32_t n_params, float *w)
{
    const lora *l = self;
    const lathe_site_param *a = targets_find_param(params, n_params, "lora_A.weight");
    const lathe_site_param *b = targets_find_param(params, n_params, "lora_B.weight");
    if (a == NULL || b == NULL)
        return lathe_fail(l->host, LATHE_E_NOT_FOUND, "%s: %s has no lora_A and lora_B to merge",
                          l->method, site->module);
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
    merge_job job = {a->data, b->data, w, r, site->in_features, (float)lora_scale(l, site->module)};
    l->host->parallel_for(site->out_features, 16, merge_rows, &job);
    return LATHE_OK;
}

/* A misspelt pattern would silently leave its modules untrained, or with the wrong rank. */
lathe_status lora_check(void *self, const char *const *modules, int32_t n_modules,
                        const char *const *params, int32_t n_params)
{
    const lora *l = self;
    (void)params;
    (void)n_params;
    LATHE_TRY(targets_check(&l->targets, modules, n_modules));
    const char *idle = lora_patterns_idle(l->ranks, modules, n_modules);
    if (idle != NULL)
        return lathe_fail(l->host, LATHE_E_CONFIG, "%s: rank_pattern \"%s\" matches no module",
                          l->method, idle);
    idle = lora_patterns_idle(l->alphas, modules, n_modules);
    if (idle != NULL)
        return lathe_fail(l->host, LATHE_E_CONFIG, "%s: alpha_pattern \"%s\" matches no module",
                          l->method, idle);
    return LATHE_OK;
}
