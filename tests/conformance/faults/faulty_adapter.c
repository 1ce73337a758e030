/* An adapter that adds a low-rank term to every site, y = x W^T + b + x A^T B^T, with one fault. */
#include "fault.h"

#include "lathe/adapter.h"

enum { RANK = 2 };

static double shared_factor = 1.0;

static lathe_status select_param(void *self, const lathe_param_info *param, int32_t *out_trainable,
                                 int32_t *out_group)
{
    (void)self;
    if (IS(unknown_role_crashes) && param->role > LATHE_ROLE_ADAPTER)
        crash();
    *out_trainable = IS(trainable_unknown) ? 2 : IS(trains_the_base) ? 1 : 0;
    if (IS(saves_without_a_key) || IS(saves_under_a_taken_key))
        *out_trainable = param->role == LATHE_ROLE_NORM;
    *out_group = IS(group_negative) ? -7 : 0;
    return LATHE_OK;
}

static int32_t targets(void *self, const lathe_site *site)
{
    (void)self, (void)site;
    return IS(trains_nothing) ? 0 : IS(targets_unknown) ? 5 : 1;
}

static lathe_status declare(const lathe_graph_api *api, lathe_graph *g, const lathe_site *site,
                            const char *suffix, int64_t rows, int64_t cols, int32_t init,
                            lathe_val *out)
{
    static int n;
    char name[128];
    (void)snprintf(name, sizeof name, "%s.%s", site->module, suffix);
    if (IS(new_names_each_time))
        (void)snprintf(name, sizeof name, "%s.%s%d", site->module, suffix, n++);
    lathe_param_decl decl = {.size = sizeof decl,
                             .init = init,
                             .name = IS(null_parameter_name) ? NULL : name,
                             .desc = lathe_desc_2d(LATHE_F32, rows, cols),
                             .init_scale = 0.1,
                             .trainable = 1};
    if (IS(parameter_of_huge_dims))
        decl.desc.dims[0] = (int64_t)1 << 60;
    if (IS(parameter_of_rank_nine))
        decl.desc.rank = 9;
    if (IS(init_unknown))
        decl.init = 42;
    if (IS(init_scale_nan))
        decl.init_scale = NAN;
    if (IS(one_parameter_for_both))
        (void)snprintf(name, sizeof name, "%s.both", site->module);
    return api->param(g, &decl, out);
}

/* x A^T B^T, times a factor. */
static lathe_status addition(const instance *x, const lathe_graph_api *api, lathe_graph *g,
                             const lathe_site *site, lathe_val in, lathe_val *out)
{
    const double factor = IS(shares_its_factor) ? shared_factor : 0.5;
    const lathe_op_attrs scale = {.alpha = factor};
    lathe_val a, b, h;
    (void)x;
    shared_factor *= 1.5;
    LATHE_TRY(declare(api, g, site, "A", RANK, site->in_features, LATHE_INIT_NORMAL, &a));
    LATHE_TRY(declare(api, g, site, "B", site->out_features, RANK,
                      IS(starts_elsewhere) ? LATHE_INIT_ONE : LATHE_INIT_ZERO, &b));
    LATHE_TRY(api->linear(g, in, a, LATHE_NONE, "A", &h));
    LATHE_TRY(api->linear(g, h, b, LATHE_NONE, "B", &h));
    if (IS(cuts_the_derivative))
        LATHE_TRY(api->detach(g, h, &h));
    return api->node(g, LATHE_OP_SCALE, &scale, &h, 1, out, 1, -1, "scale");
}

static lathe_status wrap(void *self, const lathe_graph_api *api, lathe_graph *g,
                         const lathe_site *site, lathe_val in, int32_t enabled, lathe_val *out)
{
    const instance *x = self;
    lathe_val y, more, sum[2];
    misbehave(x->host);
    if (IS(gives_no_value))
        return LATHE_OK;
    if (IS(gives_a_value_of_its_own)) {
        *out = 100000;
        return LATHE_OK;
    }
    LATHE_TRY(api->linear(g, in, site->weight, IS(forgets_the_bias) ? LATHE_NONE : site->bias,
                          "base", &y));
    if (!enabled && !IS(ignores_enabled)) {
        const lathe_op_attrs twice = {.alpha = 2.0};
        *out = y;
        return IS(disabled_is_scaled)
                   ? api->node(g, LATHE_OP_SCALE, &twice, &y, 1, out, 1, -1, "twice")
                   : LATHE_OK;
    }
    LATHE_TRY(addition(x, api, g, site, in, &more));
    sum[0] = y;
    sum[1] = more;
    if (IS(gives_another_shape)) {
        *out = in;
        return LATHE_OK;
    }
    if (IS(uses_an_unknown_op))
        return api->node(g, 1000, NULL, sum, 2, out, 1, -1, "unknown");
    if (IS(forgets_its_parameters)) {
        *out = y;
        return LATHE_OK;
    }
    return api->node(g, LATHE_OP_ADD, NULL, sum, 2, out, 1, -1, "sum");
}

static int32_t base_is_frozen(void *self)
{
    (void)self;
    return IS(frozen_unknown) ? 9 : 1;
}

static lathe_status merge(void *self, const lathe_site *site, const lathe_site_param *params,
                          int32_t n_params, float *w)
{
    const instance *x = self;
    const float *a = params[0].data, *b = params[n_params > 1 ? 1 : 0].data;
    const double factor = IS(merges_twice_as_much) ? 1.0 : IS(merges_with_minus) ? -0.5 : 0.5;
    (void)x;
    if (IS(merges_nothing))
        return LATHE_OK;
    for (int64_t o = 0; o < site->out_features; o++)
        for (int64_t i = 0; i < site->in_features; i++) {
            const int64_t at = IS(merges_transposed)
                                   ? i % site->out_features * site->in_features + o
                                   : o * site->in_features + i;
            double sum = 0.0;
            for (int r = 0; r < RANK; r++)
                sum += (double)b[o * RANK + r] * (double)a[r * site->in_features + i];
            w[at] = (float)((IS(merge_overwrites) ? 0.0 : (double)w[at]) + factor * sum);
        }
    if (IS(merges_past_the_end))
        w[site->out_features * site->in_features] = 0.0f;
    return LATHE_OK;
}

static int64_t write_text(const char *text, char *out, int64_t capacity)
{
    const int64_t n = (int64_t)strlen(text);
    if (n <= capacity || IS(key_ignores_capacity))
        memcpy(out, text, (size_t)n);
    return n;
}

static int64_t file_key(void *self, const char *name, char *out, int64_t capacity)
{
    (void)self;
    if (IS(no_file_key) || (IS(saves_without_a_key) && strstr(name, "norm")))
        return 0;
    if (IS(saves_under_a_taken_key) && strstr(name, "norm"))
        name = "model.layers.0.self_attn.q_proj.A";
    return write_text(IS(same_file_key) ? "base_model.weight" : name, out, capacity);
}

static int64_t config_json(void *self, const char *base, char *out, int64_t capacity)
{
    const char *text = IS(config_is_no_json) ? "{r: 2" : "{\"r\": 2}";
    const int64_t n = (int64_t)strlen(text);
    (void)self, (void)base;
    if (n <= capacity)
        memcpy(out, text, (size_t)n);
    return n;
}

static double rate(void *self, const char *param_name)
{
    (void)self, (void)param_name;
    return IS(rate_of_zero) ? 0.0 : NAN;
}

static const lathe_adapter_v1 table = {
    .size = sizeof table,
    .revision = LATHE_ADAPTER_REVISION,
    .select = IS(null_select) ? NULL : select_param,
    .targets = targets,
    .wrap = wrap,
    .base_is_frozen = base_is_frozen,
    .merge = merge,
    .file_key = file_key,
    .config_json = config_json,
    .rate = IS(rate_of_zero) || IS(rate_is_nan) ? rate : NULL,
};

FAULTY_PLUGIN(LATHE_KIND_ADAPTER, LATHE_ADAPTER_REVISION, &table);
