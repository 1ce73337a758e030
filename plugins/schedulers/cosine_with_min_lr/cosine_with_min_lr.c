/* Cosine decay to a minimum, after a warm-up:
 *
 *     lr = base*(r + (1 - r)*(1 + cos(2 pi n_cycles p))/2)
 *
 * r: the minimum as a share of the base rate, by default a tenth; p: from 0 at the end of the
 * warm-up to 1 at the end of the schedule (lathe/kit/schedule.h).
 *
 * Source: transformers get_cosine_with_min_lr_schedule_with_warmup. Deviation: after T the rate
 * stays constant.
 */
#include "lathe/kit/schedule.h"

typedef struct cosine_with_min_lr {
    lathe_schedule common;
    double n_cycles;
} cosine_with_min_lr;

static const lathe_field fields[] = {
    LATHE_SCHEDULE_WARMUP_FIELDS,
    LATHE_SCHEDULE_DECAY_FIELDS("0.0", "0.1"),
    {"num_cycles", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.5", 0, 1e6, NULL, "waves",
     "waves of the cosine over the decay; 0.5: from the top to the bottom once"},
};

static lathe_status read_values(const lathe_host *host, cosine_with_min_lr *s,
                                const lathe_value *values)
{
    s->n_cycles = values[LATHE_SCHEDULE_N_FIELDS].f;
    return lathe_schedule_read(host, values, &s->common);
}

static double curve(const lathe_schedule *s, double p)
{
    return lathe_schedule_cosine(p, ((const cosine_with_min_lr *)s)->n_cycles);
}

static double cosine_with_min_lr_at(void *self, int64_t step, int64_t total, double base_lr,
                                    const double *state)
{
    (void)state;
    return lathe_schedule_at(self, step, total, base_lr, curve);
}

LATHE_SCHEDULER(
    cosine_with_min_lr, read_values, lathe_schedule_check, .version = "1.0.0",
    .summary = "warm-up, then half a cosine down to a tenth of the rate, or another minimum",
    .source = "transformers get_cosine_with_min_lr_schedule_with_warmup");
