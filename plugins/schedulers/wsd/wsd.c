/* Warm-up, stable, decay:
 *
 *     t < w            lr = base * (s + (1 - s)*warm(t/w))
 *     w <= t < T - d   lr = base
 *     T - d <= t < T   lr = base * (r + (1 - r)*curve(p)),    p = (t - (T - d))/d
 *     t >= T           lr = base * r
 *
 * s: start_lr_ratio, by default the floor. d: decay_steps, or decay_ratio of T rounded up.
 * curve: linear 1 - p; cosine (1 + cos(2 pi n_cycles p))/2; 1-sqrt 1 - sqrt(p).
 *
 * Source: transformers get_wsd_schedule; arXiv:2404.06395 (schedule), arXiv:2405.18392 (1-sqrt).
 */
#include "lathe/kit/schedule.h"

typedef struct wsd {
    lathe_schedule common;
    int64_t decay_steps; /* < 0: from decay_ratio */
    double decay_ratio, n_cycles;
    int32_t decay_type; /* 0 linear, 1 cosine, 2 1-sqrt */
    int32_t reserved;
} wsd;

enum {
    FIELD_DECAY_STEPS = LATHE_SCHEDULE_N_FIELDS,
    FIELD_DECAY_RATIO,
    FIELD_DECAY_TYPE,
    FIELD_NUM_CYCLES
};

static const lathe_field fields[] = {
    LATHE_SCHEDULE_WARMUP_FIELDS,
    LATHE_SCHEDULE_DECAY_FIELDS("0.0", NULL),
    LATHE_FIELD_INT("decay_steps", NULL, 0, 1e15, "steps", "steps of the decay at the end"),
    LATHE_FIELD_FLOAT(
        "decay_ratio", "0.1", 0, 1, "1",
        "length of the decay as a share of the schedule, rounded up; used if decay_steps is unset"),
    LATHE_FIELD_STRING("decay_type", "\"cosine\"", "linear|cosine|1-sqrt", "form of the decay"),
    {"num_cycles", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.5", 0, 1e6, NULL, "waves",
     "waves of a cosine decay; 0.5: from the top to the bottom once"},
};

static lathe_status read_values(const lathe_host *host, wsd *s, const lathe_value *values)
{
    const lathe_value *const steps = &values[FIELD_DECAY_STEPS];
    const lathe_value *const ratio = &values[FIELD_DECAY_RATIO];
    s->decay_steps = steps->is_set ? steps->i : -1;
    s->decay_ratio = ratio->f;
    s->n_cycles = values[FIELD_NUM_CYCLES].f;
    s->decay_type = lathe_choice("linear|cosine|1-sqrt", values[FIELD_DECAY_TYPE].s);
    if (steps->is_explicit && ratio->is_explicit)
        return lathe_fail_at(host, LATHE_E_CONFIG, "decay_steps",
                             "decay_steps is %lld and decay_ratio is %g: set only one of them",
                             (long long)steps->i, ratio->f);
    if (values[FIELD_NUM_CYCLES].is_explicit && s->decay_type != 1)
        lathe_warn_at(host, "num_cycles",
                      "scheduler.num_cycles has no effect: decay_type is \"%s\", not \"cosine\"",
                      values[FIELD_DECAY_TYPE].s);
    if (values[FIELD_DECAY_TYPE].is_explicit && s->decay_steps == 0)
        lathe_warn_at(host, "decay_type", "scheduler.decay_type has no effect: decay_steps is 0");
    return lathe_schedule_read(host, values, &s->common);
}

static int64_t decay_of(const wsd *s, int64_t length)
{
    return s->decay_steps >= 0 ? s->decay_steps : (int64_t)ceil(s->decay_ratio * (double)length);
}

static lathe_status check(void *self, int64_t total_steps)
{
    const wsd *const s = self;
    LATHE_TRY(lathe_schedule_check(self, total_steps));
    const int64_t length = lathe_schedule_length(&s->common, total_steps);
    const int64_t warmup = lathe_schedule_warmup(&s->common, total_steps);
    if (warmup + decay_of(s, length) > length)
        return lathe_fail(s->common.host, LATHE_E_CONFIG,
                          "warm-up (%lld steps) and decay (%lld steps) are longer than the "
                          "schedule of %lld steps",
                          (long long)warmup, (long long)decay_of(s, length), (long long)length);
    return LATHE_OK;
}

static double curve(const wsd *s, double p)
{
    return s->decay_type == 0   ? 1.0 - p
           : s->decay_type == 1 ? lathe_schedule_cosine(p, s->n_cycles)
                                : 1.0 - sqrt(p);
}

static double wsd_at(void *self, int64_t step, int64_t total, double base_lr, const double *state)
{
    const wsd *const s = self;
    const int64_t length = lathe_schedule_length(&s->common, total);
    const int64_t warmup = lathe_schedule_warmup(&s->common, total);
    const int64_t decay = decay_of(s, length);
    const double floor = lathe_schedule_floor(&s->common, base_lr);
    (void)state;
    if (step < warmup)
        return base_lr *
               lathe_schedule_climb(&s->common, step, warmup,
                                    s->common.starts_at_zero ? floor : s->common.start_lr_ratio);
    if (step < length - decay)
        return base_lr;
    if (step >= length)
        return base_lr * floor;
    const double p = (double)(step - (length - decay)) / (double)decay;
    return base_lr * (curve(s, p) * (1.0 - floor) + floor);
}

LATHE_SCHEDULER(wsd, read_values, check, .version = "1.0.0",
                .summary = "warm-up, stable, then a decay at the end",
                .source = "arXiv:2404.06395; transformers get_wsd_schedule");
