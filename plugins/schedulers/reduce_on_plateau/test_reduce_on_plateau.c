/* ReduceLROnPlateau: by hand, against torch over 1000 observations, state round trip, refusals. */
#include "lathe/scheduler.h"
#include "support/optimizer_case.h"

static const lathe_scheduler_v1 *make(const char *settings, void **self)
{
    const lathe_plugin *const plugin = fixture_plugin();
    cr_assert_eq(lathe_test_create(plugin, settings, self), LATHE_OK, "%s", lathe_test_message);
    return plugin->table;
}

Test(reduce_on_plateau, halves_after_patience_and_waits_for_cooldown)
{
    void *self;
    const lathe_scheduler_v1 *const s = make("factor=0.5 patience=1 cooldown=2 threshold=0", &self);
    double state[LATHE_MAX_SCHEDULER_STATE];
    cr_assert_leq(s->n_state(self), LATHE_MAX_SCHEDULER_STATE);
    s->init(self, 1.0, state);
    /*  metric:              1 sets the best; 1, 1 bad twice; two cool down; 1, 1 bad twice again */
    const double metric[8] = {1, 1, 1, 1, 1, 1, 1, 0.5};
    const double want[8] = {1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25};
    for (int k = 0; k < 8; k++) {
        s->observe(self, metric[k], 1.0, state);
        cr_assert_float_eq(s->at(self, k, 0, 1.0, state), want[k], 0.0, "observation %d: %g", k,
                           s->at(self, k, 0, 1.0, state));
    }
}

Test(reduce_on_plateau, warms_up_whatever_is_observed)
{
    void *self;
    const lathe_scheduler_v1 *const s = make("warmup_steps=4 patience=0 factor=0.5", &self);
    double state[LATHE_MAX_SCHEDULER_STATE];
    s->init(self, 2.0, state);
    cr_assert_float_eq(s->at(self, 0, 0, 2.0, state), 0.0, 0.0);
    cr_assert_float_eq(s->at(self, 3, 0, 2.0, state), 1.5, 0.0);
    s->observe(self, 1.0, 2.0, state);
    s->observe(self, 2.0, 2.0, state);
    cr_assert_float_eq(s->at(self, 2, 0, 2.0, state), 0.5, 0.0);
    cr_assert_float_eq(s->at(self, 4, 0, 2.0, state), 1.0, 0.0);
}

/* The metrics of tests/golden/optimizers.py: falling, stalling and rising in turn. */
static double metric_of(int64_t k)
{
    return 2.0 / (1.0 + 0.01 * (double)(k % 400)) + 0.05 * (double)case_uniform(900, 0, k);
}

static void against(const char *golden, const char *settings)
{
    void *self;
    const lathe_scheduler_v1 *const s = make(settings, &self);
    double state[LATHE_MAX_SCHEDULER_STATE], kept[LATHE_MAX_SCHEDULER_STATE];
    int64_t bytes;
    double *const want = fixture_golden(golden, &bytes);
    cr_assert_eq(bytes, 8000);
    cr_assert_lt(want[999], want[0], "%s never reduces: it checks nothing", golden);
    s->init(self, 3e-4, state);
    for (int64_t t = 0; t < 1000; t++) {
        const double got = s->at(self, t, 1000, 3e-4, state);
        cr_assert_float_eq(got, want[t], 1e-12 * want[t], "%s step %d: %.17g, want %.17g", golden,
                           (int)t, got, want[t]);
        /* the state has everything that matters: a new instance continues identically */
        memcpy(kept, state, sizeof kept);
        memset(state, 0xff, sizeof state);
        memcpy(state, kept, (size_t)s->n_state(self) * sizeof *state);
        s->observe(self, metric_of(t), 3e-4, state);
    }
    free(want);
}

Test(reduce_on_plateau, follows_torch_for_1000_observations)
{
    against("schedulers/plateau_default.f64", "");
    against("schedulers/plateau_abs.f64",
            "factor=0.5 patience=3 threshold=0.02 threshold_mode=abs cooldown=5 "
            "min_lr=1e-6");
    against("schedulers/plateau_max.f64",
            "mode=max factor=0.7 patience=0 threshold=0.01 cooldown=2 eps=1e-5");
}

Test(reduce_on_plateau, counts_nan_as_bad)
{
    void *self;
    const lathe_scheduler_v1 *const s = make("patience=1 factor=0.5", &self);
    double state[LATHE_MAX_SCHEDULER_STATE];
    s->init(self, 1.0, state);
    s->observe(self, (double)NAN, 1.0, state);
    s->observe(self, (double)NAN, 1.0, state);
    cr_assert_float_eq(s->at(self, 0, 0, 1.0, state), 0.5, 0.0);
    s->observe(self, 7.0, 1.0, state); /* the first number is the best so far */
    s->observe(self, (double)NAN, 1.0, state);
    cr_assert_float_eq(s->at(self, 0, 0, 1.0, state), 0.5, 0.0);
}

Test(reduce_on_plateau, refuses_bad_settings)
{
    static const char *const bad[] = {
        "factor=1",    "factor=0",        "factor=nan",          "patience=-1",
        "cooldown=-1", "threshold=-1",    "min_lr=-1e-3",        "eps=-1",
        "mode=down",   "warmup_steps=-1", "threshold_mode=ratio"};
    const lathe_plugin *const plugin = fixture_plugin();
    void *self;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        cr_assert_eq(lathe_test_create(plugin, bad[k], &self), LATHE_E_CONFIG, "took %s", bad[k]);
    const lathe_scheduler_v1 *const s = make("warmup_steps=11", &self);
    cr_assert_eq(s->check(self, 10), LATHE_E_CONFIG);
    cr_assert_eq(s->check(self, 0), LATHE_OK);
    plugin->destroy(self);
    plugin->destroy(NULL);
}
