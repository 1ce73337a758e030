/* Warm-up, stable, decay: by hand, against transformers over 1000 steps, and refusals. */
#include "support/schedule_case.h"

Test(wsd, has_three_parts_by_hand)
{
    void *self;
    const lathe_scheduler_v1 *const s =
        schedule_make("warmup_steps=2 decay_steps=4 decay_type=linear min_lr_ratio=0.2", &self);
    const double want[11] = {0.2, 0.6, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2}; /* of 9 steps */
    for (int64_t t = 0; t < 11; t++)
        cr_assert_float_eq(s->at(self, t, 9, 1.0, NULL), want[t], 1e-15, "step %d", (int)t);
}

Test(wsd, follows_transformers_for_1000_steps)
{
    schedule_against("schedulers/wsd_cosine.f64", "warmup_steps=100 decay_steps=200");
    schedule_against("schedulers/wsd_cosine.f64", "warmup_steps=100 decay_ratio=0.2");
    schedule_against("schedulers/wsd_linear.f64",
                     "warmup_steps=50 decay_steps=100 decay_type=linear min_lr_ratio=0.1");
    schedule_against("schedulers/wsd_sqrt.f64",
                     "warmup_steps=100 decay_steps=300 warmup_type=1-sqrt decay_type=1-sqrt");
    schedule_against("schedulers/wsd_warm_cosine.f64",
                     "warmup_steps=200 decay_steps=150 warmup_type=cosine min_lr_ratio=0.05");
}

Test(wsd, takes_a_run_without_a_decay)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("decay_steps=0", &self);
    cr_assert_eq(s->check(self, 4), LATHE_OK);
    cr_assert_float_eq(s->at(self, 3, 4, 1.0, NULL), 1.0, 0.0);
    cr_assert_float_eq(s->at(self, 4, 4, 1.0, NULL), 0.0, 0.0);
}

Test(wsd, refuses_bad_settings)
{
    static const char *const bad[] = {"decay_steps=-1",
                                      "decay_ratio=1.5",
                                      "decay_ratio=nan",
                                      "decay_type=steep",
                                      "decay_steps=3 decay_ratio=0.2",
                                      "num_cycles=0",
                                      NULL};
    schedule_refuses(bad);
    schedule_refuses_common_decay();
    schedule_refuses_run("warmup_steps=6 decay_steps=5", 10, "longer");
}
