/* Constant with warm-up: by hand, against transformers, and refusals. */
#include "support/schedule_case.h"

Test(constant_with_warmup, climbs_and_stays_by_hand)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("warmup_steps=4 start_lr_ratio=0.2", &self);
    const double want[6] = {0.4, 0.8, 1.2, 1.6, 2.0, 2.0}; /* 2*(0.2 + 0.8*t/4) */
    for (int64_t t = 0; t < 6; t++)
        cr_assert_float_eq(s->at(self, t, 0, 2.0, NULL), want[t], 1e-15, "step %d", (int)t);
}

Test(constant_with_warmup, follows_transformers_for_1000_steps)
{
    schedule_against("schedulers/constant_with_warmup_100.f64", "warmup_steps=100");
    schedule_against("schedulers/constant_with_warmup_100.f64", "warmup_ratio=0.1");
    schedule_against("schedulers/constant.f64", "");
}

Test(constant_with_warmup, takes_a_run_of_unknown_length_but_no_share_of_it)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("warmup_steps=4", &self);
    cr_assert_eq(s->check(self, 0), LATHE_OK);
    schedule_refuses_run("warmup_ratio=0.5", 0, "warmup_ratio");
}

Test(constant_with_warmup, refuses_bad_settings)
{
    schedule_refuses_common();
}
