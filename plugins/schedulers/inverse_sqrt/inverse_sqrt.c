/* Decay with the inverse square root of the step after a warm-up:
 *
 *     t >= w    lr = base / sqrt((t + timescale - w)/timescale)
 *
 * timescale: the warm-up's steps unless set, 10,000 without a warm-up. It needs no length.
 * Source: transformers get_inverse_sqrt_schedule; arXiv:2106.04560.
 */
#include "lathe/kit/schedule.h"

typedef struct inverse_sqrt {
    lathe_schedule common;
    int64_t timescale; /* 0: from the warm-up */
} inverse_sqrt;

static const lathe_field fields[] = {
    LATHE_SCHEDULE_WARMUP_FIELDS,
    LATHE_FIELD_INT("timescale", NULL, 1, 1e15, "steps",
                    "steps in which the rate falls to 1/sqrt(2) of its peak; unset: the length of "
                    "the warm-up, or 10000"),
};

static lathe_status read_values(const lathe_host *host, inverse_sqrt *s, const lathe_value *values)
{
    const lathe_value *const timescale = &values[LATHE_SCHEDULE_N_WARMUP_FIELDS];
    s->timescale = timescale->is_set ? timescale->i : 0;
    LATHE_TRY(lathe_schedule_read_warmup(host, values, &s->common));
    return LATHE_OK;
}

static double inverse_sqrt_at(void *self, int64_t step, int64_t total, double base_lr,
                              const double *state)
{
    const inverse_sqrt *const s = self;
    const int64_t warmup = lathe_schedule_warmup(&s->common, total);
    (void)state;
    if (step < warmup)
        return base_lr * lathe_schedule_climb(&s->common, step, warmup, s->common.start_lr_ratio);
    const int64_t timescale = s->timescale > 0 ? s->timescale : warmup > 0 ? warmup : 10000;
    const double grown = (double)(step + timescale - warmup) / (double)timescale;
    return base_lr * (1.0 / sqrt(grown));
}

LATHE_SCHEDULER(inverse_sqrt, read_values, lathe_schedule_check_warmup, .version = "1.0.0",
                .summary = "warm-up, then 1/sqrt of the step",
                .source = "arXiv:2106.04560; transformers get_inverse_sqrt_schedule");
