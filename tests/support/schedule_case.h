/* Tests schedules: instances from settings, goldens of 1000 steps, refusals. */
#ifndef LATHE_TESTS_SCHEDULE_CASE_H
#define LATHE_TESTS_SCHEDULE_CASE_H

#include "lathe/scheduler.h"
#include "support/plugin_fixture.h"

#define SCHEDULE_BASE_LR 3e-4

static inline const lathe_scheduler_v1 *schedule_make(const char *settings, void **out_self)
{
    const lathe_plugin *const plugin = fixture_plugin();
    cr_assert_eq(lathe_test_create(plugin, settings, out_self), LATHE_OK, "%s", lathe_test_message);
    return plugin->table;
}

/* Compares every step of a 1000-step run with the reference, both in double, within 1e-12 relative;
 * relative to the base rate where a curve approaches zero as a difference of numbers near one (1 +
 * cos). */
static inline void schedule_against(const char *golden, const char *settings)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make(settings, &self);
    int64_t bytes;
    double *const want = fixture_golden(golden, &bytes);
    cr_assert_eq(bytes, 8000, "%s", golden);
    if (s->check != NULL)
        cr_assert_eq(s->check(self, 1000), LATHE_OK, "%s: %s", settings, lathe_test_message);
    for (int64_t t = 0; t < 1000; t++) {
        const double got = s->at(self, t, 1000, SCHEDULE_BASE_LR, NULL);
        const double near_zero = want[t] < 1e-3 * SCHEDULE_BASE_LR ? SCHEDULE_BASE_LR : want[t];
        cr_assert(fabs(got - want[t]) <= 1e-12 * near_zero, "%s '%s' step %d: %.17g, want %.17g",
                  golden, settings, (int)t, got, want[t]);
    }
    free(want);
    if (fixture_plugin()->destroy != NULL)
        fixture_plugin()->destroy(self);
}

/* Checks that every setting of the list (NULL at its end) is refused when the instance is made. */
static inline void schedule_refuses(const char *const *settings)
{
    const lathe_plugin *const plugin = fixture_plugin();
    void *self = NULL;
    for (; *settings != NULL; settings++)
        cr_assert_eq(lathe_test_create(plugin, *settings, &self), LATHE_E_CONFIG, "took %s",
                     *settings);
    plugin->destroy(NULL);
}

/* Checks that a run of `total` steps is refused although the settings are valid; the message
 * contains `words`. */
static inline void schedule_refuses_run(const char *settings, int64_t total, const char *words)
{
    void *self;
    const lathe_scheduler_v1 *const s = schedule_make(settings, &self);
    cr_assert_eq(s->check(self, total), LATHE_E_CONFIG, "'%s' took a run of %d steps", settings,
                 (int)total);
    cr_assert(strstr(lathe_test_message, words) != NULL, "'%s' is not in: %s", words,
              lathe_test_message);
    fixture_plugin()->destroy(self);
}

/* Checks the settings that every schedule with the common keys refuses. */
static inline void schedule_refuses_common(void)
{
    static const char *const bad[] = {"warmup_steps=-1",
                                      "warmup_ratio=1",
                                      "warmup_ratio=-0.1",
                                      "warmup_ratio=nan",
                                      "warmup_steps=3 warmup_ratio=0.5",
                                      "warmup_type=quadratic",
                                      "start_lr_ratio=1.5",
                                      "start_lr_ratio=nan",
                                      NULL};
    schedule_refuses(bad);
    schedule_refuses_run("warmup_steps=11", 10, "11");
}

static inline void schedule_refuses_common_decay(void)
{
    static const char *const bad[] = {"min_lr=-1",
                                      "min_lr=nan",
                                      "min_lr_ratio=-1",
                                      "min_lr_ratio=1.1",
                                      "min_lr=1e-6 min_lr_ratio=0.1",
                                      "total_steps=0",
                                      NULL};
    schedule_refuses_common();
    schedule_refuses(bad);
    schedule_refuses_run("min_lr_ratio=0.1", 0, "length of the run");
    schedule_refuses_run("warmup_steps=11 total_steps=10 min_lr_ratio=0.1", 100, "11");
}

#endif
