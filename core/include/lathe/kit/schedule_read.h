/* The part of schedule.h that reads and checks the common fields. Include schedule.h instead. */
#ifndef LATHE_KIT_SCHEDULE_READ_H
#define LATHE_KIT_SCHEDULE_READ_H

#include "schedule.h"

/** Reads LATHE_SCHEDULE_WARMUP_FIELDS, the first of `values`, checked by the schema. */
static inline lathe_status
lathe_schedule_read_warmup(const lathe_host *host, const lathe_value *values, lathe_schedule *out)
{
    const int64_t steps = values[LATHE_SCHEDULE_WARMUP_STEPS].i;
    const double ratio = values[LATHE_SCHEDULE_WARMUP_RATIO].f;
    if (steps > 0 && ratio > 0.0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "warmup_steps",
                             "warmup_steps is %lld and warmup_ratio is %g: set only one of them",
                             (long long)steps, ratio);
    if (steps == 0 && !(ratio > 0.0))
        for (int32_t k = LATHE_SCHEDULE_WARMUP_TYPE; k <= LATHE_SCHEDULE_START_LR_RATIO; k++)
            if (values[k].is_explicit) {
                const char *key =
                    k == LATHE_SCHEDULE_WARMUP_TYPE ? "warmup_type" : "start_lr_ratio";
                lathe_warn_at(host, key,
                              "scheduler.%s has no effect without a warm-up: set warmup_steps or "
                              "warmup_ratio",
                              key);
            }
    out->warmup_steps = steps;
    out->warmup_ratio = ratio;
    out->warmup_type = lathe_choice("linear|cosine|1-sqrt", values[LATHE_SCHEDULE_WARMUP_TYPE].s);
    out->start_lr_ratio = values[LATHE_SCHEDULE_START_LR_RATIO].f;
    out->starts_at_zero = !values[LATHE_SCHEDULE_START_LR_RATIO].is_explicit;
    out->min_lr_ratio = -1.0;
    return LATHE_OK;
}

/** Reads all common fields, the first LATHE_SCHEDULE_N_FIELDS of `values`. */
static inline lathe_status lathe_schedule_read(const lathe_host *host, const lathe_value *values,
                                               lathe_schedule *out)
{
    const lathe_value *const min_lr = &values[LATHE_SCHEDULE_MIN_LR];
    const lathe_value *const ratio = &values[LATHE_SCHEDULE_MIN_LR_RATIO];
    const lathe_value *const total = &values[LATHE_SCHEDULE_TOTAL_STEPS];
    LATHE_TRY(lathe_schedule_read_warmup(host, values, out));
    if (ratio->is_explicit && min_lr->is_explicit)
        return lathe_fail_at(host, LATHE_E_CONFIG, "min_lr",
                             "min_lr is %g and min_lr_ratio is %g: set only one of them", min_lr->f,
                             ratio->f);
    out->min_lr = min_lr->f;
    out->min_lr_ratio =
        ratio->is_explicit || (ratio->is_set && !min_lr->is_explicit) ? ratio->f : -1.0;
    out->total_steps = total->is_set ? total->i : 0;
    return LATHE_OK;
}

/** Refuses a warm-up longer than the schedule. For schedules that need no known length. */
static inline lathe_status lathe_schedule_check_warmup(void *self, int64_t total_steps)
{
    const lathe_schedule *const s = (const lathe_schedule *)self;
    const int64_t length = lathe_schedule_length(s, total_steps);
    const int64_t warmup = lathe_schedule_warmup(s, total_steps);
    if (length < 1 && s->warmup_ratio > 0.0)
        return lathe_fail_at(s->host, LATHE_E_CONFIG, "warmup_ratio",
                             "warmup_ratio needs the length of the run: set train.max_steps, or "
                             "warmup_steps instead");
    if (length > 0 && warmup > length)
        return lathe_fail_at(s->host, LATHE_E_CONFIG, "warmup_steps",
                             "warmup_steps is %lld, the %s has %lld steps", (long long)warmup,
                             s->total_steps > 0 ? "schedule" : "run", (long long)length);
    return LATHE_OK;
}

/** Checks the settings for this length of the run, and refuses an unknown length, too. */
static inline lathe_status lathe_schedule_check(void *self, int64_t total_steps)
{
    const lathe_schedule *const s = (const lathe_schedule *)self;
    if (lathe_schedule_length(s, total_steps) < 1)
        return lathe_fail(s->host, LATHE_E_CONFIG,
                          "the schedule needs the length of the run in steps, got %lld: set "
                          "train.max_steps or scheduler.total_steps",
                          (long long)total_steps);
    return lathe_schedule_check_warmup(self, total_steps);
}

#endif
