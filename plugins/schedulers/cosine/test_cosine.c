/* Cosine: by hand, against transformers over 1000 steps, and refusals. */
#include "lathe/scheduler.h"
#include "support/plugin_fixture.h"

static const lathe_scheduler_v1 *make(const char *settings, void **self)
{
    const lathe_plugin *const plugin = fixture_plugin();
    cr_assert_eq(lathe_test_create(plugin, settings, self), LATHE_OK, "%s", lathe_test_message);
    return plugin->table;
}

Test(cosine, warms_up_and_falls_by_hand)
{
    void *self;
    const lathe_scheduler_v1 *const s = make("warmup_steps=4 min_lr_ratio=0.1", &self);
    cr_assert_eq(s->check(self, 12), LATHE_OK);
    const double want[15] = {0, 0.25, 0.5, 0.75, 1.0, 0, 0, 0, 0.55, 0, 0, 0, 0.1, 0.1, 0.1};
    for (int64_t t = 0; t < 15; t++)
        if (want[t] > 0 || t == 0)
            cr_assert_float_eq(s->at(self, t, 12, 2.0, NULL), 2.0 * want[t], 1e-15, "step %d",
                               (int)t);
}

static void against(const char *golden, const char *settings)
{
    void *self;
    const lathe_scheduler_v1 *const s = make(settings, &self);
    int64_t bytes;
    double *const want = fixture_golden(golden, &bytes);
    cr_assert_eq(bytes, 8000);
    for (int64_t t = 0; t < 1000; t++) {
        const double got = s->at(self, t, 1000, 3e-4, NULL);
        /* both in double; the cosine near its end loses digits relative to itself, not to lr */
        cr_assert_float_eq(got, want[t], 1e-12 * 3e-4, "%s step %d: %.17g, want %.17g", golden,
                           (int)t, got, want[t]);
    }
    free(want);
}

Test(cosine, follows_transformers_for_1000_steps)
{
    against("cosine_0_0.f64", "");
    against("cosine_100_0.f64", "warmup_steps=100");
    against("cosine_100_0.f64", "warmup_ratio=0.1");
    against("cosine_37_0.1.f64", "warmup_steps=37 min_lr_ratio=0.1");
}

Test(cosine, takes_a_run_that_is_all_warmup_and_a_run_of_one_step)
{
    void *self;
    const lathe_scheduler_v1 *const all = make("warmup_steps=10", &self);
    cr_assert_eq(all->check(self, 10), LATHE_OK);
    cr_assert_float_eq(all->at(self, 9, 10, 1.0, NULL), 0.9, 1e-15);
    cr_assert_float_eq(all->at(self, 10, 10, 1.0, NULL), 1.0, 1e-15);
    const lathe_scheduler_v1 *const one = make("", &self);
    cr_assert_eq(one->check(self, 1), LATHE_OK);
    cr_assert_float_eq(one->at(self, 0, 1, 1.0, NULL), 1.0, 1e-15);
}

Test(cosine, refuses_bad_settings)
{
    static const char *const bad[] = {"warmup_steps=-1",  "warmup_ratio=1",
                                      "warmup_ratio=nan", "min_lr_ratio=-1",
                                      "min_lr_ratio=1.1", "warmup_steps=3 warmup_ratio=0.5"};
    const lathe_plugin *const plugin = fixture_plugin();
    void *self;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        cr_assert_eq(lathe_test_create(plugin, bad[k], &self), LATHE_E_CONFIG, "took %s", bad[k]);
    const lathe_scheduler_v1 *const s = make("warmup_steps=11", &self);
    cr_assert_eq(s->check(self, 10), LATHE_E_CONFIG);
    cr_assert(strstr(lathe_test_message, "11") && strstr(lathe_test_message, "10"), "%s",
              lathe_test_message);
    cr_assert_eq(s->check(self, 0), LATHE_E_CONFIG);
    plugin->destroy(self);
    plugin->destroy(NULL);
}
