/* Cosine with a minimum: against transformers over 1000 steps, and refusals. */
#include "support/schedule_case.h"

Test(cosine_with_min_lr, ends_at_its_minimum)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("min_lr=0.25", &self);
    const double want[4] = {1.0, 0.625, 0.25, 0.25}; /* T = 2 */
    for (int64_t t = 0; t < 4; t++)
        cr_assert_float_eq(s->at(self, t, 2, 1.0, NULL), want[t], 1e-15, "step %d", (int)t);
}

Test(cosine_with_min_lr, follows_transformers_for_1000_steps)
{
    schedule_against("schedulers/cosine_with_min_lr_ratio.f64", "warmup_steps=37 min_lr_ratio=0.1");
    schedule_against("schedulers/cosine_with_min_lr_ratio.f64", "warmup_steps=37");
    schedule_against("schedulers/cosine_with_min_lr.f64", "warmup_steps=100 min_lr=2e-5");
}

Test(cosine_with_min_lr, refuses_bad_settings)
{
    static const char *const bad[] = {"num_cycles=0", "num_cycles=nan", NULL};
    schedule_refuses(bad);
    schedule_refuses_common_decay();
}
