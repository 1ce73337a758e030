/* OFT: an orthogonal rotation of a frozen linear layer's input, block by block, with the settings
 * and the file layout of PEFT (OFT v2).
 *
 *   y = (x R) W^T + b
 *   R = diag(R_1 .. R_G), R_g = I + 2 Q + 2 Q^2 + .. + 2 Q^(n-2) + Q^(n-1),   Q = S - S^T
 *   S [k, k] is zero except above the diagonal, where it has row g of the parameter
 *   v [G, k(k-1)/2]; in = G k, n = num_cayley_neumann_terms
 *
 * Two values of n differ from this sum, as in PEFT: n = 2 gives I + 2 Q, and n = 3 the sum of
 * n = 4.
 *
 * The sum is the Cayley transform (I + Q) (I - Q)^-1 with a truncated Neumann series in place of
 * the inverse. v starts at zero, so the first forward is the base model's. x R is computed as
 * x + x (R - I), because R - I is small and keeps more digits in a compute dtype of few bits. W may
 * be quantized: only the core reads it.
 *
 * Source: arXiv:2306.07280 (OFT), arXiv:2506.19847 (rotation of the input, Cayley-Neumann); PEFT
 * for names, defaults, the last terms of the sum and the choice of a block size that divides.
 */
#include <stdio.h>
#include <string.h>

#include "lathe/plugin.h"
#include "shared/peft_text.h"
#include "shared/targets.h"

#define ROTATION "oft_R.weight"
#define MAX_BLOCK 1024

enum { BLOCK_SIZE, TERMS, TARGETS, N_FIELDS = TARGETS + TARGETS_N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    LATHE_FIELD_INT("block_size", "32", 2.0, MAX_BLOCK, "1",
                    "input features that are rotated together; a layer whose number of inputs it "
                    "does not divide takes the nearest size that does"),
    LATHE_FIELD_INT("num_cayley_neumann_terms", "5", 2.0, 32.0, "1",
                    "terms of the series for the rotation, the identity included; 3 gives the same "
                    "result as 4"),
    TARGETS_FIELDS("oft_only"),
};

typedef struct oft {
    const lathe_host *host;
    int64_t block_size, terms;
    int warned;
    targets targets;
} oft;

static void oft_destroy(void *self)
{
    oft *o = self;
    if (o == NULL)
        return;
    targets_fini(&o->targets);
    o->host->free(o);
}

static lathe_status oft_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                               void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    oft *o = host->alloc((int64_t)sizeof *o);
    if (o == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    o->host = host;
    o->block_size = values[BLOCK_SIZE].i;
    o->terms = values[TERMS].i;
    const lathe_status status = targets_read(&o->targets, host, "oft", &values[TARGETS], NULL);
    if (status != LATHE_OK) {
        oft_destroy(o);
        return status;
    }
    *out_self = o;
    return LATHE_OK;
}

/* ---- the rotation ---- */

/* The divisor of `in` that is nearest to the size wanted; of two equally near ones the smaller, as
 * in PEFT. */
static int64_t block_size_of(int64_t in, int64_t wanted)
{
    int64_t above = wanted, below = wanted;
    if (wanted >= in)
        return in;
    while (in % above != 0)
        above++;
    while (in % below != 0)
        below--;
    return wanted - below <= above - wanted ? below : above;
}

static lathe_status choose_block(oft *o, const lathe_site *site, int64_t *out)
{
    char text[256];
    *out = block_size_of(site->in_features, o->block_size);
    if (*out < 2)
        return lathe_fail_at(
            o->host, LATHE_E_CONFIG, "block_size",
            "oft: block_size is %lld, and the nearest divisor of the %lld inputs of "
            "%s is 1, which rotates nothing; expected a divisor of at least 2",
            (long long)o->block_size, (long long)site->in_features, site->module);
    if (*out == o->block_size || o->warned)
        return LATHE_OK;
    o->warned = 1;
    (void)snprintf(
        text, sizeof text,
        "oft: block_size %lld does not divide the %lld inputs of %.60s, which gets blocks "
        "of %lld; other layers may follow that are not named",
        (long long)o->block_size, (long long)site->in_features, site->module, (long long)*out);
    o->host->log(LATHE_LOG_WARN, text);
    return LATHE_OK;
}

/* The highest power of Q in the sum. PEFT adds Q^3 for three terms as for four. */
static int64_t highest_power(const oft *o)
{
    return o->terms == 2 ? 1 : o->terms == 3 ? 3 : o->terms - 1;
}

/* The factor of a power of Q in the sum. */
static double factor(const oft *o, int64_t power)
{
    return o->terms > 2 && power == highest_power(o) ? 1.0 : 2.0;
}

static lathe_status declare(const oft *o, const lathe_graph_api *api, lathe_graph *g,
                            const lathe_site *site, int64_t k, lathe_val *out)
{
    char name[512];
    const int n = snprintf(name, sizeof name, "%s." ROTATION, site->module);
    if (n < 0 || (size_t)n >= sizeof name)
        return lathe_fail(o->host, LATHE_E_UNSUPPORTED, "oft: the name %s is too long",
                          site->module);
    const lathe_param_decl decl = {
        .size = sizeof decl,
        .init = LATHE_INIT_ZERO,
        .name = name,
        .desc = lathe_desc_2d(LATHE_F32, site->in_features / k, k * (k - 1) / 2),
        .trainable = 1};
    return api->param(g, &decl, out);
}

/* Builds R - I [k, in], its blocks side by side, by Horner's rule from the highest power on: first
 * E = f Q, then E = f Q + Q E for each lower power, whose factor is f. */
static lathe_status rotation(const oft *o, const lathe_graph_api *api, lathe_graph *g, lathe_val v,
                             int64_t blocks, lathe_val *out)
{
    const lathe_op_attrs product = {.alpha = 1.0, .count = blocks};
    int64_t power = highest_power(o);
    const lathe_op_attrs first = {.alpha = factor(o, power)};
    lathe_val q, e;
    LATHE_TRY(api->node(g, LATHE_OP_SKEW, NULL, &v, 1, &q, 1, -1, "oft.skew"));
    e = q;
    if (first.alpha != 1.0)
        LATHE_TRY(api->node(g, LATHE_OP_SCALE, &first, &q, 1, &e, 1, -1, "oft.series"));
    while (--power >= 1) {
        const lathe_op_attrs sum = {.alpha = factor(o, power), .beta = 1.0};
        const lathe_val in[2] = {q, e};
        lathe_val terms[2] = {q, LATHE_NONE};
        LATHE_TRY(
            api->node(g, LATHE_OP_BLOCK_MATMUL, &product, in, 2, &terms[1], 1, -1, "oft.power"));
        LATHE_TRY(api->node(g, LATHE_OP_LINCOMB, &sum, terms, 2, &e, 1, -1, "oft.series"));
    }
    *out = e;
    return LATHE_OK;
}

static int32_t oft_targets(void *self, const lathe_site *site)
{
    const oft *o = self;
    return targets_include(&o->targets, site);
}

static lathe_status oft_wrap(void *self, const lathe_graph_api *api, lathe_graph *g,
                             const lathe_site *site, lathe_val x, int32_t enabled, lathe_val *out_y)
{
    oft *o = self;
    int64_t k = 0;
    lathe_val v = LATHE_NONE, in[2] = {x, LATHE_NONE};
    if (!enabled)
        return api->linear(g, x, site->weight, site->bias, site->module, out_y);
    LATHE_TRY(choose_block(o, site, &k));
    const lathe_op_attrs product = {.alpha = 1.0, .count = site->in_features / k};
    LATHE_TRY(targets_remember(&o->targets, site));
    LATHE_TRY(declare(o, api, g, site, k, &v));
    LATHE_TRY(rotation(o, api, g, v, product.count, &in[1]));
    LATHE_TRY(api->node(g, LATHE_OP_BLOCK_MATMUL, &product, in, 2, &in[1], 1, -1, "oft.rotate"));
    LATHE_TRY(api->node(g, LATHE_OP_ADD, NULL, in, 2, &x, 1, -1, "oft.add"));
    return api->linear(g, x, site->weight, site->bias, site->module, out_y);
}

/* ---- merging ---- */

/* (x R) W^T = x W'^T with W' = W R^T; computed block by block of W's columns. */
typedef struct merge_job {
    const oft *o;
    const float *v; /* [in/k, k(k-1)/2] */
    float *w;       /* [out, in] */
    double *memory; /* [workers, 4, k, k] */
    int64_t k, in, out;
} merge_job;

/* out = f q + q e, all [k, k] */
static void add_power(double *out, const double *q, const double *e, double f, int64_t k)
{
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < k; j++)
            out[i * k + j] = f * q[i * k + j];
        for (int64_t m = 0; m < k; m++)
            for (int64_t j = 0; j < k; j++)
                out[i * k + j] += q[i * k + m] * e[m * k + j];
    }
}

/* Computes R - I of a block in `memory` [3, k, k]. Returns its place there. */
static const double *block_rotation(const merge_job *job, const float *v, double *memory)
{
    const int64_t k = job->k;
    double *q = memory, *e = q + k * k, *next = e + k * k;
    for (int64_t i = 0; i < k; i++) {
        q[i * k + i] = 0.0;
        for (int64_t j = i + 1; j < k; j++) {
            q[i * k + j] = (double)*v++;
            q[j * k + i] = -q[i * k + j];
        }
    }
    int64_t power = highest_power(job->o);
    for (int64_t i = 0; i < k * k; i++)
        e[i] = factor(job->o, power) * q[i];
    while (--power >= 1) {
        double *done = e;
        add_power(next, q, e, factor(job->o, power), k);
        e = next;
        next = done;
    }
    return e;
}

static void merge_blocks(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const merge_job *job = arg;
    const int64_t k = job->k;
    double *memory = job->memory + worker * 4 * k * k, *row = memory + 3 * k * k;
    for (int64_t g = begin; g < end; g++) {
        const double *e = block_rotation(job, job->v + g * (k * (k - 1) / 2), memory);
        for (int64_t o = 0; o < job->out; o++) {
            float *w = job->w + o * job->in + g * k;
            for (int64_t i = 0; i < k; i++) {
                row[i] = (double)w[i];
                for (int64_t j = 0; j < k; j++)
                    row[i] += e[i * k + j] * (double)w[j];
            }
            for (int64_t i = 0; i < k; i++)
                w[i] = (float)row[i];
        }
    }
}

static lathe_status oft_merge(void *self, const lathe_site *site, const lathe_site_param *params,
                              int32_t n_params, float *w)
{
    const oft *o = self;
    const lathe_site_param *v = targets_find_param(params, n_params, ROTATION);
    const int64_t k = block_size_of(site->in_features, o->block_size);
    if (v == NULL)
        return lathe_fail(o->host, LATHE_E_NOT_FOUND, "oft: %s has no oft_R to merge",
                          site->module);
    if (v->desc.rank != 2 || v->desc.dims[0] != site->in_features / k ||
        v->desc.dims[1] != k * (k - 1) / 2)
        return lathe_fail(o->host, LATHE_E_SHAPE,
                          "oft: %s: oft_R is [%lld, %lld]; expected [%lld, %lld]", site->module,
                          (long long)v->desc.dims[0], (long long)v->desc.dims[1],
                          (long long)(site->in_features / k), (long long)(k * (k - 1) / 2));
    double *memory = o->host->alloc(o->host->n_threads() * 4 * k * k * (int64_t)sizeof *memory);
    if (memory == NULL)
        return lathe_fail(o->host, LATHE_E_NOMEM, "oft: no memory to merge %s", site->module);
    merge_job job = {o, v->data, w, memory, k, site->in_features, site->out_features};
    o->host->parallel_for(site->in_features / k, 1, merge_blocks, &job);
    o->host->free(memory);
    return LATHE_OK;
}

/* ---- files ---- */

static lathe_status oft_select(void *self, const lathe_param_info *param, int32_t *out_trainable,
                               int32_t *out_group)
{
    const oft *o = self;
    *out_group = 0;
    return targets_select(&o->targets, param, out_trainable);
}

static int64_t oft_file_key(void *self, const char *param_name, char *out, int64_t capacity)
{
    const oft *o = self;
    return targets_file_key(&o->targets, param_name, out, capacity);
}

static int64_t oft_config_json(void *self, const char *base, char *out, int64_t capacity)
{
    const oft *o = self;
    peft_text t = {out, capacity, 0};
    peft_begin(&t, "OFT", base, &o->targets);
    peft_put(&t, "  \"r\": 0,\n  \"oft_block_size\": %lld,\n", (long long)o->block_size);
    peft_put(&t, "  \"use_cayley_neumann\": true,\n  \"num_cayley_neumann_terms\": %lld,\n",
             (long long)o->terms);
    peft_put(&t, "  \"module_dropout\": 0.0,\n  \"coft\": false,\n  \"eps\": 6e-05,\n");
    peft_put(&t, "  \"block_share\": false,\n  \"init_weights\": true,\n");
    /* PEFT computes this series since 0.18, and warns of a file that names no version. */
    peft_put(&t, "  \"peft_version\": \"0.18.0\",\n");
    peft_end(&t, &o->targets);
    return t.n;
}

static lathe_status oft_check(void *self, const char *const *modules, int32_t n_modules,
                              const char *const *params, int32_t n_params)
{
    const oft *o = self;
    return targets_check(&o->targets, modules, n_modules, params, n_params);
}

static int32_t oft_unties(void *self, const char *embedding, const char *head)
{
    return saved_modules_untie(&((const oft *)self)->targets.saved, embedding, head);
}

static const lathe_adapter_v1 table = {
    .size = sizeof table,
    .revision = LATHE_ADAPTER_REVISION,
    .select = oft_select,
    .targets = oft_targets,
    .wrap = oft_wrap,
    .base_is_frozen = adapter_base_is_frozen,
    .merge = oft_merge,
    .file_key = oft_file_key,
    .unties = oft_unties,
    .config_json = oft_config_json,
    .check = oft_check,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ADAPTER,
    .revision = LATHE_ADAPTER_REVISION,
    .n_fields = N_FIELDS,
    .name = "oft",
    .version = "1.0.0",
    .summary = "orthogonal rotations of the inputs of frozen linear layers",
    .source = "arXiv:2506.19847",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = oft_create,
    .destroy = oft_destroy,
};
