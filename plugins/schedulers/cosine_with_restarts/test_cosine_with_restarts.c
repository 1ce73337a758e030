/* Cosine with restarts: by hand, against transformers over 1000 steps, and refusals. */
#include "support/schedule_case.h"

Test(cosine_with_restarts, starts_again_by_hand)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("num_cycles=2", &self);
    const double want[10] = {1.0, 0, 0.5, 0, 1.0, 0, 0.5, 0, 0.0, 0.0}; /* T = 8: two of four */
    for (int64_t t = 0; t < 10; t += 2)
        cr_assert_float_eq(s->at(self, t, 8, 1.0, NULL), want[t], 1e-15, "step %d", (int)t);
}

Test(cosine_with_restarts, follows_transformers_for_1000_steps)
{
    schedule_against("schedulers/restarts_1.f64", "");
    schedule_against("schedulers/restarts_3.f64", "warmup_steps=100 num_cycles=3");
}

Test(cosine_with_restarts, refuses_bad_settings)
{
    static const char *const bad[] = {"num_cycles=0", "num_cycles=-2", NULL};
    schedule_refuses(bad);
    schedule_refuses_common_decay();
}
