/* Linear decay after a warm-up: curve(p) = 1 - p, in the frame of lathe/kit/schedule.h. Source:
 * transformers get_linear_schedule_with_warmup (whose floor is 0).
 */
#include "lathe/kit/schedule.h"

typedef struct linear {
    lathe_schedule common;
} linear;

static const lathe_field fields[] = {LATHE_SCHEDULE_WARMUP_FIELDS,
                                     LATHE_SCHEDULE_DECAY_FIELDS("0.0", NULL)};

static lathe_status read_values(const lathe_host *host, linear *s, const lathe_value *values)
{
    return lathe_schedule_read(host, values, &s->common);
}

/* (T - t)/(T - w), in this form, is exact where transformers' value is exact. */
static double linear_at(void *self, int64_t step, int64_t total, double base_lr,
                        const double *state)
{
    const lathe_schedule *const s = self;
    const int64_t warmup = lathe_schedule_warmup(s, total);
    const int64_t length = lathe_schedule_length(s, total);
    (void)state;
    if (step < warmup)
        return base_lr * lathe_schedule_climb(s, step, warmup, s->start_lr_ratio);
    const int64_t left = length - warmup > 1 ? length - warmup : 1;
    const double curve = step < length ? (double)(length - step) / (double)left : 0.0;
    const double floor = lathe_schedule_floor(s, base_lr);
    return base_lr * (curve * (1.0 - floor) + floor);
}

LATHE_SCHEDULER(linear, read_values, lathe_schedule_check, .version = "1.0.0",
                .summary = "warm-up, then a straight line down to a minimum",
                .source = "transformers get_linear_schedule_with_warmup");
