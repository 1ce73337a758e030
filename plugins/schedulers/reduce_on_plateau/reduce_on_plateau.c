/* Lowers the learning rate when a metric stops improving:
 *
 *     after `patience` bad observations in a row, one more bad one sets  lr = max(lr*factor, min_lr)
 *     unless that changes it by eps or less; then `cooldown` observations are not counted.
 *
 * An observation is good when it beats the best one so far by the threshold: min mode
 * metric < best*(1 - threshold) (rel) or best - threshold (abs); max mode mirrored. NaN is never
 * good. Optionally warmed up: during the first w steps the rate is lr*t/w, while observations count
 * as ever.
 *
 * Source: torch.optim.lr_scheduler.ReduceLROnPlateau, operation by operation, in double.
 */
#include <math.h>
#include <string.h>

#include "lathe/plugin.h"
#include "lathe/scheduler.h"

/* The state that the core keeps; no infinities, so that any checkpoint format can hold it. */
enum { STATE_LR, STATE_BEST, STATE_HAS_BEST, STATE_BAD, STATE_COOLDOWN, N_STATE };

typedef struct plateau {
    const lathe_host *host;
    double factor, threshold, min_lr, eps;
    int64_t patience, cooldown, warmup_steps;
    int is_max, is_abs;
} plateau;

enum {
    FIELD_MODE,
    FIELD_FACTOR,
    FIELD_PATIENCE,
    FIELD_THRESHOLD,
    FIELD_THRESHOLD_MODE,
    FIELD_COOLDOWN,
    FIELD_MIN_LR,
    FIELD_EPS,
    FIELD_WARMUP_STEPS,
    N_FIELDS
};

static const lathe_field fields[N_FIELDS] = {
    {"mode", LATHE_T_STRING, 0, "\"min\"", LATHE_NO_RANGE, "min|max", NULL,
     "whether the metric should fall or rise"},
    {"factor", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_MAX_EXCLUSIVE, "0.1", 0, 1,
     NULL, "1", "what the rate is multiplied by"},
    {"patience", LATHE_T_INT, 0, "10", 0, 1e15, NULL, "observations",
     "bad observations in a row that are let pass"},
    {"threshold", LATHE_T_FLOAT, 0, "1e-4", 0, 1e9, NULL, "1", "improvement that counts"},
    {"threshold_mode", LATHE_T_STRING, 0, "\"rel\"", LATHE_NO_RANGE, "rel|abs", NULL,
     "threshold as a share of the best value, or as a difference"},
    {"cooldown", LATHE_T_INT, 0, "0", 0, 1e15, NULL, "observations",
     "observations not counted after a reduction"},
    {"min_lr", LATHE_T_FLOAT, 0, "0.0", 0, 1e3, NULL, "1", "the rate never goes below"},
    {"eps", LATHE_T_FLOAT, 0, "1e-8", 0, 1, NULL, "1", "smallest change of the rate that is made"},
    {"warmup_steps", LATHE_T_INT, 0, "0", 0, 1e15, NULL, "steps", "steps of linear warm-up from 0"},
};

static lathe_status check_values(const lathe_host *host, const plateau *p)
{
    if (!(p->factor > 0.0 && p->factor < 1.0))
        return lathe_fail(host, LATHE_E_CONFIG, "factor is %g, expected 0 to 1 (both exclusive)",
                          p->factor);
    if (p->patience < 0 || p->cooldown < 0 || p->warmup_steps < 0)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "patience is %lld, cooldown %lld, warmup_steps %lld: expected at least 0",
                          (long long)p->patience, (long long)p->cooldown,
                          (long long)p->warmup_steps);
    if (!(p->threshold >= 0.0 && p->min_lr >= 0.0 && p->eps >= 0.0))
        return lathe_fail(host, LATHE_E_CONFIG,
                          "threshold is %g, min_lr %g, eps %g: expected at least 0", p->threshold,
                          p->min_lr, p->eps);
    return LATHE_OK;
}

/* 0 or 1: which of two words; -1 with the error recorded. */
static int choice(const lathe_host *host, const char *key, const char *text, const char *zero,
                  const char *one)
{
    if (text != NULL && strcmp(text, zero) == 0)
        return 0;
    if (text != NULL && strcmp(text, one) == 0)
        return 1;
    (void)lathe_fail(host, LATHE_E_CONFIG, "%s is \"%s\", expected \"%s\" or \"%s\"", key,
                     text != NULL ? text : "", zero, one);
    return -1;
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "reduce_on_plateau takes %d values, got %d", N_FIELDS,
                          n_values);
    plateau p = {
        .host = host,
        .factor = values[FIELD_FACTOR].f,
        .threshold = values[FIELD_THRESHOLD].f,
        .min_lr = values[FIELD_MIN_LR].f,
        .eps = values[FIELD_EPS].f,
        .patience = values[FIELD_PATIENCE].i,
        .cooldown = values[FIELD_COOLDOWN].i,
        .warmup_steps = values[FIELD_WARMUP_STEPS].i,
        .is_max = choice(host, "mode", values[FIELD_MODE].s, "min", "max"),
    };
    if (p.is_max < 0)
        return LATHE_E_CONFIG;
    p.is_abs = choice(host, "threshold_mode", values[FIELD_THRESHOLD_MODE].s, "rel", "abs");
    if (p.is_abs < 0)
        return LATHE_E_CONFIG;
    LATHE_TRY(check_values(host, &p));
    plateau *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of reduce_on_plateau");
    *self = p;
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    plateau *const p = self;
    if (p != NULL)
        p->host->free(p);
}

static int32_t n_state(void *self)
{
    (void)self;
    return N_STATE;
}

static void init(void *self, double base_lr, double *state)
{
    (void)self;
    for (int k = 0; k < N_STATE; k++)
        state[k] = 0.0;
    state[STATE_LR] = base_lr;
}

static lathe_status check(void *self, int64_t total_steps)
{
    const plateau *const p = self;
    if (total_steps > 0 && p->warmup_steps > total_steps)
        return lathe_fail(p->host, LATHE_E_CONFIG, "warmup_steps is %lld, the run has %lld steps",
                          (long long)p->warmup_steps, (long long)total_steps);
    return LATHE_OK;
}

static double at(void *self, int64_t step, int64_t total, double base_lr, const double *state)
{
    const plateau *const p = self;
    (void)total, (void)base_lr;
    if (step < p->warmup_steps)
        return state[STATE_LR] * ((double)step / (double)p->warmup_steps);
    return state[STATE_LR];
}

static int is_better(const plateau *p, double metric, const double *state)
{
    const double best = state[STATE_BEST];
    if (state[STATE_HAS_BEST] == 0.0)
        return p->is_max ? metric > -HUGE_VAL : metric < HUGE_VAL; /* torch starts from infinity */
    if (p->is_max)
        return p->is_abs ? metric > best + p->threshold : metric > best * (p->threshold + 1.0);
    return p->is_abs ? metric < best - p->threshold : metric < best * (1.0 - p->threshold);
}

static void observe(void *self, double metric, double base_lr, double *state)
{
    const plateau *const p = self;
    (void)base_lr;
    if (is_better(p, metric, state)) {
        state[STATE_BEST] = metric;
        state[STATE_HAS_BEST] = 1.0;
        state[STATE_BAD] = 0.0;
    } else {
        state[STATE_BAD] += 1.0;
    }
    if (state[STATE_COOLDOWN] > 0.0) {
        state[STATE_COOLDOWN] -= 1.0;
        state[STATE_BAD] = 0.0;
    }
    if (state[STATE_BAD] > (double)p->patience) {
        const double old = state[STATE_LR], reduced = old * p->factor;
        const double new = reduced > p->min_lr ? reduced : p->min_lr;
        if (old - new > p->eps)
            state[STATE_LR] = new;
        state[STATE_COOLDOWN] = (double)p->cooldown;
        state[STATE_BAD] = 0.0;
    }
}

static const lathe_scheduler_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_SCHEDULER_REVISION,
    .n_state = n_state,
    .init = init,
    .check = check,
    .at = at,
    .observe = observe,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_SCHEDULER,
    .revision = LATHE_SCHEDULER_REVISION,
    .n_fields = N_FIELDS,
    .name = "reduce_on_plateau",
    .version = "1.0.0",
    .summary = "lowers the rate when the observed metric stops improving",
    .source = "torch.optim.lr_scheduler.ReduceLROnPlateau",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};
