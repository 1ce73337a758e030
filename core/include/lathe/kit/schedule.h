/* Common code of schedules with a warm-up and a decay curve: fields, warm-up, floor and checks.
 *
 *     t < w    lr = base * (s + (1 - s)*warm(t/w))      warm: linear, cosine or 1-sqrt
 *     t >= w   lr = base * (r + (1 - r)*curve(p)),      p = (t - w)/(T - w), held at p = 1
 *
 * t: optimizer step, 0 first; w: warm-up steps; T: length of the schedule; s: start_lr_ratio; r:
 * the floor as a share of base (min_lr_ratio, or min_lr/base, at most 1). All in double.
 *
 * A scheduler of this kind is its schema, an optional reader of its own keys, a curve, and a macro:
 *
 *     typedef struct polynomial {
 *         lathe_schedule common;   -- first
 *         double power;
 *     } polynomial;
 *     static const lathe_field fields[] = {
 *         LATHE_SCHEDULE_WARMUP_FIELDS, LATHE_SCHEDULE_DECAY_FIELDS("1e-7", NULL),
 *         LATHE_FIELD_FLOAT("power", "1.0", 0, 1e3, "1", "exponent of the decay"),
 *     };
 *     static lathe_status polynomial_read(const lathe_host *, polynomial *, const lathe_value *);
 *     static double polynomial_at(void *self, int64_t step, int64_t total, double base,
 *                                 const double *state);
 *     LATHE_SCHEDULER(polynomial, polynomial_read, lathe_schedule_check, .summary = ...);
 *
 * Its own fields come after the common ones: values[LATHE_SCHEDULE_N_FIELDS] is the first.
 */
#ifndef LATHE_KIT_SCHEDULE_H
#define LATHE_KIT_SCHEDULE_H

#include <math.h>

#include "instance.h"
#include "lathe/scheduler.h"

#define LATHE_PI 3.14159265358979323846

enum {
    LATHE_SCHEDULE_WARMUP_STEPS,
    LATHE_SCHEDULE_WARMUP_RATIO,
    LATHE_SCHEDULE_WARMUP_TYPE,
    LATHE_SCHEDULE_START_LR_RATIO,
    LATHE_SCHEDULE_N_WARMUP_FIELDS,
    LATHE_SCHEDULE_MIN_LR = LATHE_SCHEDULE_N_WARMUP_FIELDS,
    LATHE_SCHEDULE_MIN_LR_RATIO,
    LATHE_SCHEDULE_TOTAL_STEPS,
    LATHE_SCHEDULE_N_FIELDS
};

#define LATHE_SCHEDULE_WARMUP_FIELDS                                                               \
    LATHE_FIELD_INT("warmup_steps", "0", 0, 1e15, "steps", "steps of warm-up"),                    \
        {"warmup_ratio",                                                                           \
         LATHE_T_FLOAT,                                                                            \
         LATHE_FIELD_MAX_EXCLUSIVE,                                                                \
         "0.0",                                                                                    \
         0,                                                                                        \
         1,                                                                                        \
         NULL,                                                                                     \
         "1",                                                                                      \
         "warm-up as a share of the run, in whole steps, never all; instead of warmup_steps"},     \
        LATHE_FIELD_STRING("warmup_type", "\"linear\"", "linear|cosine|1-sqrt",                    \
                           "how the rate climbs"),                                                 \
        LATHE_FIELD_FLOAT("start_lr_ratio", "0.0", 0, 1, "1",                                      \
                          "rate of the first step of a warm-up, as a share of the base rate")

/** min_lr, min_lr_ratio: the defaults of those keys, TOML literals; NULL: unset. */
#define LATHE_SCHEDULE_DECAY_FIELDS(min_lr, ratio)                                                 \
    LATHE_FIELD_FLOAT("min_lr", min_lr, 0, 1e3, "1", "the rate that the decay ends at"),           \
        LATHE_FIELD_FLOAT("min_lr_ratio", ratio, 0, 1, "1",                                        \
                          "the same as a share of the base rate; instead of min_lr"),              \
        LATHE_FIELD_INT("total_steps", NULL, 1, 1e15, "steps",                                     \
                        "length of the schedule; unset: the run's")

typedef struct lathe_schedule {
    const lathe_host *host;
    int64_t warmup_steps, total_steps; /* total_steps 0: the run's */
    double warmup_ratio;               /* > 0: instead of warmup_steps */
    double start_lr_ratio, min_lr;
    double min_lr_ratio;    /* < 0: min_lr counts */
    int32_t warmup_type;    /* 0 linear, 1 cosine, 2 1-sqrt */
    int32_t starts_at_zero; /* 1: start_lr_ratio was not set */
} lathe_schedule;

/** T: steps of the schedule in a run of `total`; 0: unknown. */
static inline int64_t lathe_schedule_length(const lathe_schedule *s, int64_t total)
{
    return s->total_steps > 0 ? s->total_steps : total;
}

/** w: warm-up steps in a run of `total` steps. A share below 1 leaves the last step to the full
 *  rate: in transformers a run of one step with any share trains at the rate 0. */
static inline int64_t lathe_schedule_warmup(const lathe_schedule *s, int64_t total)
{
    const int64_t length = lathe_schedule_length(s, total);
    if (!(s->warmup_ratio > 0.0))
        return s->warmup_steps;
    const int64_t w = (int64_t)ceil(s->warmup_ratio * (double)length);
    return w < length ? w : length > 0 ? length - 1 : 0;
}

#include "schedule_read.h"

/** The rate during warm-up as a share of base; `start` is the share at step 0. */
static inline double lathe_schedule_climb(const lathe_schedule *s, int64_t step, int64_t warmup,
                                          double start)
{
    const double p = (double)step / (double)(warmup > 1 ? warmup : 1);
    const double factor = s->warmup_type == 1   ? 0.5 * (1.0 - cos(LATHE_PI * p))
                          : s->warmup_type == 2 ? 1.0 - sqrt(1.0 - p)
                                                : p;
    return factor * (1.0 - start) + start;
}

/** r: the final rate of the decay as a share of base. */
static inline double lathe_schedule_floor(const lathe_schedule *s, double base_lr)
{
    if (s->min_lr_ratio >= 0.0)
        return s->min_lr_ratio;
    const double ratio = base_lr > 0.0 ? s->min_lr / base_lr : 0.0;
    return ratio < 1.0 ? ratio : 1.0;
}

/** p in [0, 1]: progress of the decay, for t >= w. */
static inline double lathe_schedule_progress(int64_t step, int64_t warmup, int64_t length)
{
    const int64_t left = length - warmup;
    const double p = (double)(step - warmup) / (double)(left > 1 ? left : 1);
    return p < 1.0 ? p : 1.0;
}

/** The rate of a schedule that warms up and then follows curve(p), which goes from 1 to 0. */
static inline double lathe_schedule_at(const lathe_schedule *s, int64_t step, int64_t total,
                                       double base_lr,
                                       double (*curve)(const lathe_schedule *s, double p))
{
    const int64_t warmup = lathe_schedule_warmup(s, total);
    if (step < warmup)
        return base_lr * lathe_schedule_climb(s, step, warmup, s->start_lr_ratio);
    const double p = lathe_schedule_progress(step, warmup, lathe_schedule_length(s, total));
    const double floor = lathe_schedule_floor(s, base_lr);
    return base_lr * (curve(s, p) * (1.0 - floor) + floor);
}

/** Half a wave of a cosine: 1 at p = 0, 0 at p = 1 with n_cycles = 0.5. */
static inline double lathe_schedule_cosine(double p, double n_cycles)
{
    return 0.5 * (1.0 + cos(LATHE_PI * n_cycles * 2.0 * p));
}

/* Defines the rest of a plugin: its instance (a struct `type` that begins with lathe_schedule), its
 * table with type##_at, and the entry.
 *   read          as for LATHE_INSTANCE
 *   check_length  lathe_scheduler_v1.check
 *   ...           .version, .summary, .source of lathe_plugin
 * A plugin with state uses LATHE_INSTANCE, its own table and LATHE_SCHEDULER_ENTRY instead. */
#define LATHE_SCHEDULER(type, read, check_length, ...)                                             \
    LATHE_INSTANCE(type, read)                                                                     \
    static const lathe_scheduler_v1 type##_table = {                                               \
        .size = (uint32_t)sizeof type##_table,                                                     \
        .revision = LATHE_SCHEDULER_REVISION,                                                      \
        .check = check_length,                                                                     \
        .at = type##_at,                                                                           \
    };                                                                                             \
    LATHE_SCHEDULER_ENTRY(type, __VA_ARGS__)

#define LATHE_SCHEDULER_ENTRY(type, ...)                                                           \
    const lathe_plugin LATHE_PLUGIN_ENTRY = {                                                      \
        LATHE_PLUGIN_LIFE(type), .kind = LATHE_KIND_SCHEDULER,                                     \
        .revision = LATHE_SCHEDULER_REVISION, .license = "Apache-2.0", __VA_ARGS__}

#endif
