/* Constant: the base rate, in runs of any length. */
#include "support/schedule_case.h"

Test(constant, is_the_base_rate_at_every_step)
{
    schedule_against("schedulers/constant.f64", "");
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make("", &self);
    cr_assert_eq(s->at(self, 0, 0, 2.5, NULL), 2.5);
    cr_assert_eq(s->at(self, INT64_MAX, 0, 2.5, NULL), 2.5);
}
