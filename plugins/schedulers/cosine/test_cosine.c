/* Cosine: by hand, against transformers over 1000 steps, and refusals. */
#include "support/schedule_case.h"

Test(cosine, warms_up_and_falls_by_hand)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("warmup_steps=4 min_lr_ratio=0.1", &self);
    cr_assert_eq(s->check(self, 12), LATHE_OK);
    const double want[15] = {0, 0.25, 0.5, 0.75, 1.0, 0, 0, 0, 0.55, 0, 0, 0, 0.1, 0.1, 0.1};
    for (int64_t t = 0; t < 15; t++)
        if (want[t] > 0 || t == 0)
            cr_assert_float_eq(s->at(self, t, 12, 2.0, NULL), 2.0 * want[t], 1e-15, "step %d",
                               (int)t);
}

Test(cosine, follows_transformers_for_1000_steps)
{
    schedule_against("schedulers/cosine_0_0.f64", "");
    schedule_against("schedulers/cosine_100_0.f64", "warmup_steps=100");
    schedule_against("schedulers/cosine_100_0.f64", "warmup_ratio=0.1");
    schedule_against("schedulers/cosine_37_0.1.f64", "warmup_steps=37 min_lr_ratio=0.1");
    schedule_against("schedulers/cosine_2_waves.f64", "warmup_steps=50 num_cycles=2");
}

Test(cosine, takes_a_run_that_is_all_warmup_and_a_run_of_one_step)
{
    void *self;
    const lathe_scheduler_v1 *const all = schedule_make("warmup_steps=10", &self);
    cr_assert_eq(all->check(self, 10), LATHE_OK);
    cr_assert_float_eq(all->at(self, 9, 10, 1.0, NULL), 0.9, 1e-15);
    cr_assert_float_eq(all->at(self, 10, 10, 1.0, NULL), 1.0, 1e-15);
    /* a share never takes the last step, whose rate is then the full one */
    const lathe_scheduler_v1 *const share = schedule_make("warmup_ratio=0.03", &self);
    cr_assert_eq(share->check(self, 1), LATHE_OK);
    cr_assert_float_eq(share->at(self, 0, 1, 1.0, NULL), 1.0, 1e-15);
    cr_assert_float_eq(share->at(self, 0, 2, 1.0, NULL), 0.0, 1e-15);
    cr_assert_float_eq(share->at(self, 1, 2, 1.0, NULL), 1.0, 1e-15);
    const lathe_scheduler_v1 *const one = schedule_make("", &self);
    cr_assert_eq(one->check(self, 1), LATHE_OK);
    cr_assert_float_eq(one->at(self, 0, 1, 1.0, NULL), 1.0, 1e-15);
}

Test(cosine, climbs_by_the_configured_curve)
{
    void *self;
    const lathe_scheduler_v1 *const wave =
        schedule_make("warmup_steps=4 warmup_type=cosine", &self);
    cr_assert_float_eq(wave->at(self, 1, 8, 1.0, NULL), 0.5 * (1.0 - sqrt(0.5)), 1e-15);
    const lathe_scheduler_v1 *const root =
        schedule_make("warmup_steps=4 warmup_type=1-sqrt", &self);
    cr_assert_float_eq(root->at(self, 3, 8, 1.0, NULL), 0.5, 1e-15);
}

Test(cosine, refuses_bad_settings)
{
    static const char *const bad[] = {"num_cycles=0", "num_cycles=-1", "num_cycles=nan", NULL};
    schedule_refuses(bad);
    schedule_refuses_common_decay();
}
