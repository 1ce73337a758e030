/* After a warm-up, num_cycles cosine decays, each of which begins at the base rate:
 *
 *     curve(p) = (1 + cos(pi ((num_cycles p) mod 1)))/2 for p < 1;  curve(1) = 0
 *
 * p in [0, 1]: completed share of the decay. lathe/kit/schedule.h adds the warm-up and the minimum
 * rate.
 *
 * Source: transformers get_cosine_with_hard_restarts_schedule_with_warmup; arXiv:1608.03983.
 */
#include "lathe/kit/schedule.h"

typedef struct cosine_with_restarts {
    lathe_schedule common;
    int64_t num_cycles;
} cosine_with_restarts;

static const lathe_field fields[] = {
    LATHE_SCHEDULE_WARMUP_FIELDS,
    LATHE_SCHEDULE_DECAY_FIELDS("0.0", NULL),
    LATHE_FIELD_INT("num_cycles", "1", 1, 1e9, "cycles", "number of cosine cycles"),
};

static lathe_status read_values(const lathe_host *host, cosine_with_restarts *s,
                                const lathe_value *values)
{
    s->num_cycles = values[LATHE_SCHEDULE_N_FIELDS].i;
    return lathe_schedule_read(host, values, &s->common);
}

static double curve(const lathe_schedule *s, double p)
{
    const double n = (double)((const cosine_with_restarts *)s)->num_cycles;
    return p < 1.0 ? 0.5 * (1.0 + cos(LATHE_PI * fmod(n * p, 1.0))) : 0.0;
}

static double cosine_with_restarts_at(void *self, int64_t step, int64_t total, double base_lr,
                                      const double *state)
{
    (void)state;
    return lathe_schedule_at(self, step, total, base_lr, curve);
}

LATHE_SCHEDULER(cosine_with_restarts, read_values, lathe_schedule_check, .version = "1.0.0",
                .summary = "warm-up, then num_cycles cosine decays, each from the base rate",
                .source = "arXiv:1608.03983; transformers "
                          "get_cosine_with_hard_restarts_schedule_with_warmup");
