/* An adapter that adds a low-rank term to every site, y = x W^T + b + x A^T B^T, with one fault.
 * Those whose names begin with embed_ or head_, and sound_adapter_everywhere, also change the
 * embedding and the head. */
#include "fault.h"

#include "lathe/adapter.h"

enum { RANK = 2 };

#define BEGINS(text) (__builtin_strncmp(FAULT_NAME, text, sizeof text - 1) == 0)
#define IS_OUTER (BEGINS("embed_") || BEGINS("head_") || IS(sound_adapter_everywhere))

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

/* ---- the embedding and the head ---- */

/* Declares a [rows, RANK] matrix; faults: `renamed` gives it another name each time. */
static lathe_status declare_outer(const lathe_graph_api *api, lathe_graph *g,
                                  const lathe_site *site, const char *suffix, int64_t rows,
                                  int64_t cols, int32_t init, int renamed, lathe_val *out)
{
    static int n;
    char name[128];
    (void)snprintf(name, sizeof name, "%s.%s", site->module, suffix);
    if (renamed)
        (void)snprintf(name, sizeof name, "%s.%s%d", site->module, suffix, n++);
    const lathe_param_decl decl = {.size = sizeof decl,
                                   .init = init,
                                   .name = name,
                                   .desc = lathe_desc_2d(LATHE_F32, rows, cols),
                                   .init_scale = 0.1,
                                   .trainable = 1};
    return api->param(g, &decl, out);
}

/* y = W[t] + A[t] B^T, A [V, r], B [C, r] */
static lathe_status embed(void *self, const lathe_graph_api *api, lathe_graph *g,
                          const lathe_site *site, lathe_val tokens, int32_t enabled, lathe_val *out)
{
    lathe_val in[2] = {tokens, site->weight}, a, b, h, sum[2], unused;
    (void)self;
    if (IS(embed_gives_no_value))
        return LATHE_OK;
    LATHE_TRY(api->node(g, LATHE_OP_EMBED, NULL, in, 2, &sum[0], 1, -1, "embed"));
    *out = sum[0];
    if (!enabled && IS(embed_declares_when_disabled))
        return declare_outer(api, g, site, "C", 1, 1, LATHE_INIT_ONE, 0, &unused);
    if (!enabled && !IS(embed_ignores_enabled))
        return LATHE_OK;
    LATHE_TRY(declare_outer(api, g, site, "A", site->in_features, RANK,
                            IS(embed_starts_elsewhere) ? LATHE_INIT_ONE : LATHE_INIT_ZERO,
                            IS(embed_renames_its_parameters), &a));
    LATHE_TRY(declare_outer(api, g, site, "B", site->out_features, RANK, LATHE_INIT_NORMAL, 0, &b));
    if (IS(embed_forgets_a_parameter))
        LATHE_TRY(declare_outer(api, g, site, "D", RANK, RANK, LATHE_INIT_ONE, 0, &unused));
    in[1] = a;
    LATHE_TRY(api->node(g, LATHE_OP_EMBED, NULL, in, 2, &h, 1, -1, "A"));
    if (IS(embed_gives_another_shape)) {
        *out = h;
        return LATHE_OK;
    }
    LATHE_TRY(api->linear(g, h, b, LATHE_NONE, "B", &sum[1]));
    if (IS(embed_cuts_the_derivative))
        LATHE_TRY(api->detach(g, sum[1], &sum[1]));
    return api->node(g, LATHE_OP_ADD, NULL, sum, 2, out, 1, -1, "sum");
}

/* u = x A^T, v = B, A [r, C], B [V, r] */
static lathe_status head(void *self, const lathe_graph_api *api, lathe_graph *g,
                         const lathe_site *site, lathe_val x, lathe_val *out_u, lathe_val *out_v)
{
    lathe_val a, b, unused;
    const int64_t rank = IS(head_has_two_ranks) ? RANK + 1 : RANK;
    (void)self;
    LATHE_TRY(declare_outer(api, g, site, "A", RANK, site->in_features, LATHE_INIT_NORMAL,
                            IS(head_renames_its_parameters), &a));
    LATHE_TRY(declare_outer(api, g, site, "B", site->out_features, rank,
                            IS(head_starts_elsewhere) ? LATHE_INIT_ONE : LATHE_INIT_ZERO, 0, &b));
    if (IS(head_forgets_a_parameter))
        LATHE_TRY(declare_outer(api, g, site, "D", RANK, RANK, LATHE_INIT_ONE, 0, &unused));
    LATHE_TRY(api->linear(g, x, a, LATHE_NONE, "A", out_u));
    *out_v = b;
    if (IS(head_gives_no_v))
        *out_v = LATHE_NONE;
    if (IS(head_gives_v_as_u))
        *out_u = b;
    if (IS(head_cuts_the_derivative)) {
        LATHE_TRY(api->detach(g, *out_u, out_u));
        return api->detach(g, b, out_v);
    }
    return LATHE_OK;
}

/* w [V, C] += A B^T of the embedding, B A of the head. */
static void merge_outer(const lathe_site *site, const float *a, const float *b, float *w)
{
    const int is_head = site->kind == LATHE_SITE_HEAD;
    const int64_t rows = is_head ? site->out_features : site->in_features;
    const int64_t cols = is_head ? site->in_features : site->out_features;
    if (is_head ? IS(head_merges_nothing) : IS(embed_merges_nothing))
        return;
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < cols; c++)
            for (int r = 0; r < RANK; r++)
                w[t * cols + c] +=
                    is_head ? b[t * RANK + r] * a[r * cols + c] : a[t * RANK + r] * b[c * RANK + r];
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
    if (site->kind != LATHE_SITE_LINEAR) {
        merge_outer(site, a, b, w);
        return LATHE_OK;
    }
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
    if ((IS(embed_has_one_key) && strstr(name, "embed_tokens")) ||
        (IS(head_has_one_key) && strstr(name, "lm_head")))
        name = "outer";
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
    const int is_embedding = strstr(param_name, "embed_tokens") != NULL;
    const int is_head = strstr(param_name, "lm_head") != NULL;
    (void)self;
    if (IS(embed_rate_of_zero) || IS(head_rate_of_zero))
        return (IS(embed_rate_of_zero) && is_embedding) || (IS(head_rate_of_zero) && is_head) ? 0.0
                                                                                              : 1.0;
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
    .rate = IS(rate_of_zero) || IS(rate_is_nan) || IS(embed_rate_of_zero) || IS(head_rate_of_zero)
                ? rate
                : NULL,
    .embed = IS_OUTER ? embed : NULL,
    .head = IS_OUTER ? head : NULL,
};

FAULTY_PLUGIN(LATHE_KIND_ADAPTER, LATHE_ADAPTER_REVISION, &table);
