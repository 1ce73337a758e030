/* Inverse square root: by hand, against transformers over 1000 steps, and refusals. */
#include "support/schedule_case.h"

Test(inverse_sqrt, falls_by_hand)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("warmup_steps=4", &self);
    cr_assert_float_eq(s->at(self, 2, 0, 1.0, NULL), 0.5, 1e-15);
    cr_assert_float_eq(s->at(self, 4, 0, 1.0, NULL), 1.0, 1e-15);
    cr_assert_float_eq(s->at(self, 16, 0, 1.0, NULL), 0.5, 1e-15);
    cr_assert_float_eq(s->at(self, 64, 0, 1.0, NULL), 0.25, 1e-15);
}

Test(inverse_sqrt, follows_transformers_for_1000_steps)
{
    schedule_against("schedulers/inverse_sqrt_0.f64", "");
    schedule_against("schedulers/inverse_sqrt_100.f64", "warmup_steps=100");
    schedule_against("schedulers/inverse_sqrt_100.f64", "warmup_ratio=0.1");
    schedule_against("schedulers/inverse_sqrt_scale.f64", "warmup_steps=100 timescale=333");
}

Test(inverse_sqrt, refuses_bad_settings)
{
    static const char *const bad[] = {"timescale=0", "timescale=-5", NULL};
    schedule_refuses(bad);
    schedule_refuses_common();
    schedule_refuses_run("warmup_ratio=0.5", 0, "warmup_ratio");
}
