/* Polynomial decay after a warm-up: curve(p) = (1 - p)^power, in the frame of
 * lathe/kit/schedule.h. The floor is min_lr, by default 1e-7.
 *
 * Source: transformers get_polynomial_decay_schedule_with_warmup.
 */
#include "lathe/kit/schedule.h"

typedef struct polynomial {
    lathe_schedule common;
    double power;
} polynomial;

static const lathe_field fields[] = {
    LATHE_SCHEDULE_WARMUP_FIELDS,
    LATHE_SCHEDULE_DECAY_FIELDS("1e-7", NULL),
    {"power", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "1.0", 0, 1e3, NULL, "1",
     "exponent of the decay; 1: a straight line"},
};

static lathe_status read_values(const lathe_host *host, polynomial *s, const lathe_value *values)
{
    s->power = values[LATHE_SCHEDULE_N_FIELDS].f;
    return lathe_schedule_read(host, values, &s->common);
}

static double curve(const lathe_schedule *s, double p)
{
    return pow(1.0 - p, ((const polynomial *)s)->power);
}

static double polynomial_at(void *self, int64_t step, int64_t total, double base_lr,
                            const double *state)
{
    (void)state;
    return lathe_schedule_at(self, step, total, base_lr, curve);
}

LATHE_SCHEDULER(polynomial, read_values, lathe_schedule_check, .version = "1.0.0",
                .summary = "warm-up, then a power of what is left, down to a minimum",
                .source = "transformers get_polynomial_decay_schedule_with_warmup");
