/* Cosine decay after a warm-up: curve(p) = (1 + cos(2 pi n_cycles p))/2, by default half a wave.
 * The rest of the formula is in lathe/kit/schedule.h. Source: transformers
 * get_cosine_schedule_with_warmup; arXiv:1608.03983. Deviation: after T the rate stays constant;
 * that of transformers continues along the wave. */
#include "lathe/kit/schedule.h"

typedef struct cosine {
    lathe_schedule common;
    double n_cycles;
} cosine;

static const lathe_field fields[] = {
    LATHE_SCHEDULE_WARMUP_FIELDS,
    LATHE_SCHEDULE_DECAY_FIELDS("0.0", NULL),
    {"num_cycles", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.5", 0, 1e6, NULL, "waves",
     "waves of the cosine over the decay; 0.5: from the top to the bottom once"},
};

static lathe_status read_values(const lathe_host *host, cosine *s, const lathe_value *values)
{
    s->n_cycles = values[LATHE_SCHEDULE_N_FIELDS].f;
    return lathe_schedule_read(host, values, &s->common);
}

static double curve(const lathe_schedule *s, double p)
{
    return lathe_schedule_cosine(p, ((const cosine *)s)->n_cycles);
}

static double cosine_at(void *self, int64_t step, int64_t total, double base_lr,
                        const double *state)
{
    (void)state;
    return lathe_schedule_at(self, step, total, base_lr, curve);
}

LATHE_SCHEDULER(cosine, read_values, lathe_schedule_check, .version = "1.1.0",
                .summary = "warm-up, then half a cosine down to a minimum",
                .source = "arXiv:1608.03983; transformers get_cosine_schedule_with_warmup");
