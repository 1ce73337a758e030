/* Lowers the learning rate when a metric stops improving:
 *
 *     after `patience` bad observations in a row, one more bad one sets
 *         lr = max(lr*factor, min_lr),
 *     unless that changes lr by eps or less; then `cooldown` observations are not counted.
 *
 * An observation is good if it beats the best one so far by the threshold. In min mode this means
 * metric < best*(1 - threshold) (rel) or metric < best - threshold (abs); max mode is the mirror
 * image. NaN is never good. With a warm-up, the rate is lr*t/w during the first w steps, and
 * observations count as usual.
 *
 * Source: torch.optim.lr_scheduler.ReduceLROnPlateau, operation by operation, in double.
 */
#include "lathe/kit/schedule.h"

/* The state that the core stores; without infinities, so that any checkpoint format can represent
 * it. */
enum { STATE_LR, STATE_BEST, STATE_HAS_BEST, STATE_BAD, STATE_COOLDOWN, N_STATE };

typedef struct reduce_on_plateau {
    lathe_schedule common; /* only its warm-up is used */
    double factor, threshold, min_lr, eps;
    int64_t patience, cooldown;
    int32_t is_max, is_abs;
} reduce_on_plateau;

enum {
    FIELD_MODE = LATHE_SCHEDULE_N_WARMUP_FIELDS,
    FIELD_FACTOR,
    FIELD_PATIENCE,
    FIELD_THRESHOLD,
    FIELD_THRESHOLD_MODE,
    FIELD_COOLDOWN,
    FIELD_MIN_LR,
    FIELD_EPS
};

static const lathe_field fields[] = {
    LATHE_SCHEDULE_WARMUP_FIELDS,
    {"mode", LATHE_T_STRING, 0, "\"min\"", LATHE_NO_RANGE, "min|max", NULL,
     "whether a lower (min) or a higher (max) metric is better"},
    {"factor", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_MAX_EXCLUSIVE, "0.1", 0, 1,
     NULL, "1", "factor by which the rate is multiplied on a plateau"},
    {"patience", LATHE_T_INT, 0, "10", 0, 1e15, NULL, "observations",
     "observations in a row without improvement that are tolerated; one more reduces the rate"},
    {"threshold", LATHE_T_FLOAT, 0, "1e-4", 0, 1e9, NULL, "1",
     "smallest change that counts as an improvement"},
    {"threshold_mode", LATHE_T_STRING, 0, "\"rel\"", LATHE_NO_RANGE, "rel|abs", NULL,
     "threshold is a share of the best value (rel) or a difference (abs)"},
    {"cooldown", LATHE_T_INT, 0, "0", 0, 1e15, NULL, "observations",
     "observations that are ignored after a reduction"},
    {"min_lr", LATHE_T_FLOAT, 0, "0.0", 0, 1e3, NULL, "1", "lower bound of the rate"},
    {"eps", LATHE_T_FLOAT, 0, "1e-8", 0, 1, NULL, "1", "a smaller change of the rate is not made"},
};

static lathe_status read_values(const lathe_host *host, reduce_on_plateau *p,
                                const lathe_value *values)
{
    LATHE_TRY(lathe_schedule_read_warmup(host, values, &p->common));
    p->factor = values[FIELD_FACTOR].f;
    p->threshold = values[FIELD_THRESHOLD].f;
    p->min_lr = values[FIELD_MIN_LR].f;
    p->eps = values[FIELD_EPS].f;
    p->patience = values[FIELD_PATIENCE].i;
    p->cooldown = values[FIELD_COOLDOWN].i;
    p->is_max = lathe_choice("min|max", values[FIELD_MODE].s);
    p->is_abs = lathe_choice("rel|abs", values[FIELD_THRESHOLD_MODE].s);
    return LATHE_OK;
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

static double at(void *self, int64_t step, int64_t total, double base_lr, const double *state)
{
    const reduce_on_plateau *const p = self;
    const int64_t warmup = lathe_schedule_warmup(&p->common, total);
    (void)base_lr;
    if (step < warmup)
        return state[STATE_LR] *
               lathe_schedule_climb(&p->common, step, warmup, p->common.start_lr_ratio);
    return state[STATE_LR];
}

static int is_better(const reduce_on_plateau *p, double metric, const double *state)
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
    const reduce_on_plateau *const p = self;
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

LATHE_INSTANCE(reduce_on_plateau, read_values)

static const lathe_scheduler_v1 reduce_on_plateau_table = {
    .size = (uint32_t)sizeof reduce_on_plateau_table,
    .revision = LATHE_SCHEDULER_REVISION,
    .n_state = n_state,
    .init = init,
    .check = lathe_schedule_check_warmup,
    .at = at,
    .observe = observe,
};

LATHE_SCHEDULER_ENTRY(reduce_on_plateau, .version = "1.1.0",
                      .summary = "lowers the rate when the observed metric stops improving",
                      .source = "torch.optim.lr_scheduler.ReduceLROnPlateau");
