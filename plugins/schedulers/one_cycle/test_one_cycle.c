/* One cycle: by hand, against torch over 1000 steps, and refusals. */
#include "support/schedule_case.h"

Test(one_cycle, rises_and_falls_by_hand)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make(
        "pct_start=0.5 anneal_strategy=linear div_factor=4 final_div_factor=2", &self);
    /* T = 10: from 1 up to 4 at step 4, then down to 0.5 at step 9 */
    const double want[12] = {1, 1.75, 2.5, 3.25, 4, 3.3, 2.6, 1.9, 1.2, 0.5, 0.5, 0.5};
    for (int64_t t = 0; t < 12; t++)
        cr_assert_float_eq(s->at(self, t, 10, 4.0, NULL), want[t], 1e-14, "step %d", (int)t);
}

Test(one_cycle, follows_torch_for_1000_steps)
{
    schedule_against("schedulers/one_cycle_default.f64", "");
    schedule_against("schedulers/one_cycle_linear.f64",
                     "pct_start=0.25 anneal_strategy=linear div_factor=10 final_div_factor=100");
    schedule_against("schedulers/one_cycle_three.f64", "pct_start=0.35 three_phase=true");
}

Test(one_cycle, stays_finite_in_the_shortest_runs)
{
    static const char *const settings[] = {"pct_start=0", "pct_start=0.5", "pct_start=1",
                                           "pct_start=0.5 three_phase=true"};
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        void *self;
        const lathe_scheduler_v1 *const s = schedule_make(settings[k], &self);
        for (int64_t total = 1; total < 7; total++)
            for (int64_t t = 0; t <= total; t++) {
                const double lr = s->at(self, t, total, 1.0, NULL);
                cr_assert(lr >= 0.0 && lr <= 1.0, "%s: step %d of %d: %g", settings[k], (int)t,
                          (int)total, lr);
            }
    }
}

Test(one_cycle, refuses_bad_settings)
{
    static const char *const bad[] = {"pct_start=1.5",
                                      "pct_start=nan",
                                      "div_factor=0",
                                      "final_div_factor=0",
                                      "anneal_strategy=square",
                                      "total_steps=0",
                                      NULL};
    schedule_refuses(bad);
    schedule_refuses_run("", 0, "length of the run");
}
