/* Polynomial: by hand, against transformers over 1000 steps, and refusals. */
#include "support/schedule_case.h"

Test(polynomial, falls_by_hand)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("power=2 min_lr=0", &self);
    const double want[5] = {4.0, 2.25, 1.0, 0.25, 0.0}; /* 4*(1 - t/4)^2 */
    for (int64_t t = 0; t < 5; t++)
        cr_assert_float_eq(s->at(self, t, 4, 4.0, NULL), want[t], 1e-15, "step %d", (int)t);
}

Test(polynomial, follows_transformers_for_1000_steps)
{
    schedule_against("schedulers/polynomial_default.f64", "");
    schedule_against("schedulers/polynomial_2.f64", "warmup_steps=100 min_lr=1e-5 power=2");
    schedule_against("schedulers/polynomial_short.f64",
                     "warmup_steps=10 total_steps=600 min_lr=2e-6 power=0.5");
}

Test(polynomial, a_ratio_stands_in_for_the_default_minimum)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("min_lr_ratio=0.5", &self);
    cr_assert_float_eq(s->at(self, 4, 4, 4.0, NULL), 2.0, 1e-15);
}

Test(polynomial, refuses_bad_settings)
{
    static const char *const bad[] = {"power=0", "power=-1", "power=nan", NULL};
    schedule_refuses(bad);
    schedule_refuses_common_decay();
}
