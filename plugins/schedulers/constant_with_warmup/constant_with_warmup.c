/* Warm-up, then the base rate: lr(t) = base*warm(t/w) for t < w, else base.
 * Source: transformers get_constant_schedule_with_warmup.
 */
#include "lathe/kit/schedule.h"

typedef struct constant_with_warmup {
    lathe_schedule common;
} constant_with_warmup;

static const lathe_field fields[] = {LATHE_SCHEDULE_WARMUP_FIELDS};

static lathe_status read_values(const lathe_host *host, constant_with_warmup *s,
                                const lathe_value *values)
{
    return lathe_schedule_read_warmup(host, values, &s->common);
}

static double constant_with_warmup_at(void *self, int64_t step, int64_t total, double base_lr,
                                      const double *state)
{
    const lathe_schedule *const s = self;
    const int64_t warmup = lathe_schedule_warmup(s, total);
    (void)state;
    return step < warmup ? base_lr * lathe_schedule_climb(s, step, warmup, s->start_lr_ratio)
                         : base_lr;
}

LATHE_SCHEDULER(constant_with_warmup, read_values, lathe_schedule_check_warmup, .version = "1.0.0",
                .summary = "warm-up, then the base rate",
                .source = "transformers get_constant_schedule_with_warmup");
