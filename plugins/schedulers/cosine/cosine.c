/* Cosine decay after a linear warm-up, in double:
 *
 *     t < w    lr*t/w                                    (the first step of a warm-up has lr 0)
 *     t >= w   lr*(r + (1 - r)*(1 + cos(pi*p))/2),  p = (t - w)/(T - w), held at lr*r from p = 1 on
 *
 * t: optimizer step, 0 first; w: warm-up steps; T: steps of the run; r: min_lr_ratio.
 * Source: transformers get_cosine_(with_min_lr_)schedule_with_warmup; arXiv:1608.03983. Deviation:
 * beyond T the rate stays at its minimum, where transformers' would climb again.
 */
#include <math.h>

#include "lathe/plugin.h"
#include "lathe/scheduler.h"

typedef struct cosine {
    const lathe_host *host;
    int64_t warmup_steps;
    double warmup_ratio, min_lr_ratio;
} cosine;

enum { FIELD_WARMUP_STEPS, FIELD_WARMUP_RATIO, FIELD_MIN_LR_RATIO, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    {"warmup_steps", LATHE_T_INT, 0, "0", 0, 1e15, NULL, "steps", "steps of linear warm-up from 0"},
    {"warmup_ratio", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.0", 0, 1, NULL, "1",
     "warm-up as a share of the run, rounded up to whole steps; instead of warmup_steps"},
    {"min_lr_ratio", LATHE_T_FLOAT, 0, "0.0", 0, 1, NULL, "1",
     "learning rate at the end of the run, as a share of the base rate"},
};

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "cosine takes %d values, got %d", N_FIELDS, n_values);
    const int64_t steps = values[FIELD_WARMUP_STEPS].i;
    const double ratio = values[FIELD_WARMUP_RATIO].f, floor = values[FIELD_MIN_LR_RATIO].f;
    if (steps < 0)
        return lathe_fail(host, LATHE_E_CONFIG, "warmup_steps is %lld, expected at least 0",
                          (long long)steps);
    if (!(ratio >= 0.0 && ratio < 1.0))
        return lathe_fail(host, LATHE_E_CONFIG, "warmup_ratio is %g, expected 0 to 1 (exclusive)",
                          ratio);
    if (!(floor >= 0.0 && floor <= 1.0))
        return lathe_fail(host, LATHE_E_CONFIG, "min_lr_ratio is %g, expected 0 to 1", floor);
    if (steps > 0 && ratio > 0.0)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "warmup_steps is %lld and warmup_ratio is %g: set only one of them",
                          (long long)steps, ratio);
    cosine *const c = host->alloc((int64_t)sizeof *c);
    if (c == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of cosine");
    *c = (cosine){host, steps, ratio, floor};
    *out_self = c;
    return LATHE_OK;
}

static void destroy(void *self)
{
    cosine *const c = self;
    if (c != NULL)
        c->host->free(c);
}

static int64_t warmup_of(const cosine *c, int64_t total)
{
    return c->warmup_ratio > 0.0 ? (int64_t)ceil(c->warmup_ratio * (double)total) : c->warmup_steps;
}

static lathe_status check(void *self, int64_t total_steps)
{
    const cosine *const c = self;
    if (total_steps < 1)
        return lathe_fail(c->host, LATHE_E_CONFIG,
                          "cosine needs the length of the run in steps, got %lld",
                          (long long)total_steps);
    if (warmup_of(c, total_steps) > total_steps)
        return lathe_fail(c->host, LATHE_E_CONFIG, "warmup_steps is %lld, the run has %lld steps",
                          (long long)warmup_of(c, total_steps), (long long)total_steps);
    return LATHE_OK;
}

static double at(void *self, int64_t step, int64_t total, double base_lr, const double *state)
{
    const cosine *const c = self;
    const int64_t warmup = warmup_of(c, total);
    const double pi = 3.14159265358979323846;
    (void)state;
    if (step < warmup)
        return base_lr * ((double)step / (double)warmup);
    const int64_t left = total - warmup;
    double progress = (double)(step - warmup) / (double)(left > 1 ? left : 1);
    progress = progress < 1.0 ? progress : 1.0;
    const double wave = 0.5 * (1.0 + cos(pi * progress));
    return base_lr * (wave * (1.0 - c->min_lr_ratio) + c->min_lr_ratio);
}

static const lathe_scheduler_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_SCHEDULER_REVISION,
    .check = check,
    .at = at,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_SCHEDULER,
    .revision = LATHE_SCHEDULER_REVISION,
    .n_fields = N_FIELDS,
    .name = "cosine",
    .version = "1.0.0",
    .summary = "linear warm-up, then half a cosine down to a minimum",
    .source = "arXiv:1608.03983; transformers get_cosine_schedule_with_warmup",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};
