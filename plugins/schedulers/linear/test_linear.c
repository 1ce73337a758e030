/* Linear: by hand, against transformers, and refusals. */
#include "support/schedule_case.h"

Test(linear, climbs_and_falls_by_hand)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("warmup_steps=2 min_lr_ratio=0.5", &self);
    const double want[8] = {0, 1.0, 2.0, 1.75, 1.5, 1.25, 1.0, 1.0}; /* T = 6, floor 1.0 */
    for (int64_t t = 0; t < 8; t++)
        cr_assert_float_eq(s->at(self, t, 6, 2.0, NULL), want[t], 1e-15, "step %d", (int)t);
}

Test(linear, follows_transformers_for_1000_steps)
{
    schedule_against("schedulers/linear_0.f64", "");
    schedule_against("schedulers/linear_100.f64", "warmup_steps=100");
    schedule_against("schedulers/linear_100.f64", "warmup_ratio=0.1");
    schedule_against("schedulers/linear_short.f64", "warmup_steps=37 total_steps=700");
}

Test(linear, takes_min_lr_as_a_rate)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("min_lr=0.5", &self);
    cr_assert_float_eq(s->at(self, 10, 10, 2.0, NULL), 0.5, 1e-15);
    cr_assert_float_eq(s->at(self, 10, 10, 0.1, NULL), 0.1, 1e-15); /* never above the base rate */
}

Test(linear, refuses_bad_settings)
{
    schedule_refuses_common_decay();
}
