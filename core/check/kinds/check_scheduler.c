/* Checks of schedulers: rates are finite, at() is pure, and all memory is in the state that the
 * core passes. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check/harness/subject.h"
#include "check/kinds/checks.h"
#include "lathe/scheduler.h"

enum { N_TOTALS = 7 };
static const int64_t totals[N_TOTALS] = {0, 1, 2, 7, 100, 1000, 100000}; /* 0: length unknown */

typedef struct schedule {
    lathe_instance instance;
    const lathe_scheduler_v1 *table;
    int32_t n_state;
    double state[LATHE_MAX_SCHEDULER_STATE];
} schedule;

static lathe_status start(lathe__subject *s, schedule *out)
{
    *out = (schedule){.table = s->table};
    LATHE_TRY(lathe__instance(s, &out->instance));
    out->n_state = LATHE_HAS(out->table, n_state) ? out->table->n_state(out->instance.self) : 0;
    if (out->n_state < 0 || out->n_state > LATHE_MAX_SCHEDULER_STATE) {
        const int32_t n = out->n_state;
        lathe_instance_fini(&out->instance);
        return lathe_error(LATHE_E_PLUGIN, "n_state is %d, expected 0 to %d", n,
                           LATHE_MAX_SCHEDULER_STATE);
    }
    if (LATHE_HAS(out->table, init))
        out->table->init(out->instance.self, 0.5, out->state);
    return LATHE_OK;
}

static int fits(const schedule *c, int64_t total)
{
    return !LATHE_HAS(c->table, check) || c->table->check(c->instance.self, total) == LATHE_OK;
}

static lathe_status state_is_declared(lathe__subject *s)
{
    schedule c;
    LATHE_TRY(start(s, &c));
    lathe_status status = LATHE_OK;
    for (int32_t i = c.n_state; i < LATHE_MAX_SCHEDULER_STATE; i++)
        if (c.state[i] != 0.0)
            status =
                lathe_error(LATHE_E_PLUGIN, "init wrote state[%d] but n_state is %d", i, c.n_state);
    lathe__note(s, "%d doubles", c.n_state);
    lathe_instance_fini(&c.instance);
    return status;
}

/* Calls at() at the beginning, in between, at the end and after it. */
static lathe_status walk(const schedule *c, int64_t total)
{
    const int64_t last = total > 0 ? total : 1000;
    const int64_t stride = last > 1000 ? last / 100 : 1;
    for (int64_t step = 0; step <= last + 2 * stride; step += stride) {
        double state[LATHE_MAX_SCHEDULER_STATE];
        memcpy(state, c->state, sizeof state);
        const double a = c->table->at(c->instance.self, step, total, 0.5, state);
        const double b = c->table->at(c->instance.self, step, total, 0.5, state);
        if (!isfinite(a) || a < 0.0)
            return lathe_error(LATHE_E_NUMERIC, "at step %lld of %lld the rate is %g",
                               (long long)step, (long long)total, a);
        if (!lathe__same(&a, &b, sizeof a))
            return lathe_error(LATHE_E_PLUGIN, "at step %lld of %lld the rate is %.17g, then %.17g",
                               (long long)step, (long long)total, a, b);
        if (!lathe__same(state, c->state, sizeof state))
            return lathe_error(LATHE_E_PLUGIN, "at() changed the state at step %lld",
                               (long long)step);
    }
    return LATHE_OK;
}

static lathe_status rates_are_finite_and_pure(lathe__subject *s)
{
    schedule c;
    int n = 0;
    LATHE_TRY(start(s, &c));
    lathe_status status = LATHE_OK;
    for (int i = 0; i < N_TOTALS && status == LATHE_OK; i++)
        if (fits(&c, totals[i])) {
            status = walk(&c, totals[i]);
            n++;
        }
    if (status == LATHE_OK && n == 0)
        status = lathe_error(LATHE_E_PLUGIN, "check() refuses every length of run");
    lathe__note(s, "%d lengths of run", n);
    lathe_instance_fini(&c.instance);
    return status;
}

static lathe_status order_of_calls_is_free(lathe__subject *s)
{
    schedule c;
    double forward[64], backward[64];
    LATHE_TRY(start(s, &c));
    for (int i = 0; i < 64; i++)
        forward[i] = c.table->at(c.instance.self, i, 64, 0.5, c.state);
    for (int i = 63; i >= 0; i--)
        backward[i] = c.table->at(c.instance.self, i, 64, 0.5, c.state);
    lathe_instance_fini(&c.instance);
    return lathe__same(forward, backward, sizeof forward)
               ? LATHE_OK
               : lathe_error(LATHE_E_PLUGIN, "rates depend on the order in which they are asked");
}

static double metric(int i)
{
    return i < 6 ? 4.0 - 0.3 * i : 2.5 + 0.01 * (i % 3); /* falls, then stays */
}

/* Passes metrics and asks for rates in steps [from, to). */
static void drive(const schedule *c, double *state, int from, int to, double *rates)
{
    for (int i = from; i < to; i++) {
        rates[i] = c->table->at(c->instance.self, i, 80, 0.5, state);
        c->table->observe(c->instance.self, metric(i), 0.5, state);
    }
}

static lathe_status state_round_trip(lathe__subject *s)
{
    schedule c, other;
    double whole[80], halves[80], state[LATHE_MAX_SCHEDULER_STATE];
    LATHE_TRY(start(s, &c));
    if (!LATHE_HAS(c.table, observe)) {
        lathe_instance_fini(&c.instance);
        return lathe__skip(s, "it does not look at metrics");
    }
    lathe_status status = start(s, &other);
    if (status == LATHE_OK) {
        memcpy(state, c.state, sizeof state);
        drive(&c, state, 0, 80, whole);
        memcpy(state, c.state, sizeof state);
        drive(&c, state, 0, 37, halves);
        drive(&other, state, 37, 80, halves); /* another instance with the saved state */
        if (!lathe__same(whole, halves, sizeof whole))
            status =
                lathe_error(LATHE_E_STATE, "resumed from its saved state, it gives other values");
        lathe_instance_fini(&other.instance);
    }
    lathe_instance_fini(&c.instance);
    return status;
}

static lathe_status observes_bad_metrics(lathe__subject *s)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, 0.0, -1e300};
    schedule c;
    lathe_status status = LATHE_OK;
    LATHE_TRY(start(s, &c));
    if (!LATHE_HAS(c.table, observe)) {
        lathe_instance_fini(&c.instance);
        return lathe__skip(s, "it does not look at metrics");
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0] && status == LATHE_OK; i++) {
        c.table->observe(c.instance.self, bad[i], 0.5, c.state);
        const double rate = c.table->at(c.instance.self, 10, 80, 0.5, c.state);
        if (!isfinite(rate) || rate < 0.0)
            status =
                lathe_error(LATHE_E_NUMERIC, "after the metric %g the rate is %g", bad[i], rate);
    }
    lathe_instance_fini(&c.instance);
    return status;
}

/* Checks steps long after the end. */
static lathe_status far_steps_are_survived(lathe__subject *s)
{
    static const int64_t steps[] = {5000, 1 << 20, (int64_t)1 << 40};
    schedule c;
    LATHE_TRY(start(s, &c));
    lathe_status status = LATHE_OK;
    const int64_t total = fits(&c, 1000) ? 1000 : fits(&c, 100000) ? 100000 : 100;
    for (int i = 0; i < 3 && status == LATHE_OK; i++) {
        const double rate = c.table->at(c.instance.self, steps[i], total, 0.5, c.state);
        if (!isfinite(rate) || rate < 0.0)
            status = lathe_error(LATHE_E_NUMERIC, "at step %lld of %lld the rate is %g",
                                 (long long)steps[i], (long long)total, rate);
    }
    lathe_instance_fini(&c.instance);
    return status;
}

/* A larger base rate gives larger rates, and some rate is above 0. */
static lathe_status follows_the_base_rate(lathe__subject *s)
{
    schedule c;
    double largest = 0.0, largest_gain = 0.0, other[LATHE_MAX_SCHEDULER_STATE] = {0};
    LATHE_TRY(start(s, &c));
    lathe_status status = LATHE_OK;
    if (LATHE_HAS(c.table, init))
        c.table->init(c.instance.self, 1.0, other);
    for (int64_t step = 0; step < 1000 && status == LATHE_OK; step++) {
        const double a = c.table->at(c.instance.self, step, 1000, 0.5, c.state);
        const double b = c.table->at(c.instance.self, step, 1000, 1.0, other);
        if (!(b >= a * (1 - 1e-12)))
            status = lathe_error(LATHE_E_NUMERIC,
                                 "at step %lld the rate is %g for a base of 0.5, and %g for 1",
                                 (long long)step, a, b);
        largest = fmax(largest, a);
        largest_gain = fmax(largest_gain, b - a);
    }
    if (status != LATHE_OK)
        goto out;
    if (largest <= 0.0) {
        status = lathe_error(LATHE_E_NUMERIC, "its rates are 0 throughout a run of 1000 steps");
        goto out;
    }
    if (largest > 100.0 * 0.5) {
        status = lathe_error(LATHE_E_NUMERIC, "a rate of %g for a base of 0.5", largest);
        goto out;
    }
    if (largest_gain <= 0.0)
        status = lathe_error(LATHE_E_NUMERIC, "its rates do not depend on the base rate");
out:
    lathe_instance_fini(&c.instance);
    return status;
}

/* Another instance with another base rate and other metrics must not change the rates. */
static lathe_status instances_are_apart(lathe__subject *s)
{
    schedule a, b;
    double alone[64], beside[64], state[2][LATHE_MAX_SCHEDULER_STATE];
    LATHE_TRY(start(s, &a));
    lathe_status status = start(s, &b);
    for (int pass = 0; pass < 2 && status == LATHE_OK; pass++) {
        memcpy(state[0], a.state, sizeof a.state);
        memcpy(state[1], b.state, sizeof b.state);
        if (pass && LATHE_HAS(b.table, init))
            b.table->init(b.instance.self, 4.0, state[1]);
        for (int i = 0; i < 64; i++) {
            (pass ? beside : alone)[i] = a.table->at(a.instance.self, i, 64, 0.5, state[0]);
            if (LATHE_HAS(a.table, observe))
                a.table->observe(a.instance.self, metric(i), 0.5, state[0]);
            if (pass)
                (void)b.table->at(b.instance.self, 63 - i, 64, 4.0, state[1]);
            if (pass && LATHE_HAS(b.table, observe))
                b.table->observe(b.instance.self, 9.0 + i, 4.0, state[1]);
        }
    }
    if (status == LATHE_OK && !lathe__same(alone, beside, sizeof alone))
        status = lathe_error(LATHE_E_PLUGIN, "another instance changes its rates");
    if (status == LATHE_OK)
        lathe_instance_fini(&b.instance);
    lathe_instance_fini(&a.instance);
    return status;
}

/* Passes a thousand metrics: rates must be finite, only the declared state may change, and no
 * memory may be taken. */
static lathe_status observes_a_thousand_times(lathe__subject *s)
{
    schedule c;
    LATHE_TRY(start(s, &c));
    lathe_status status = LATHE_OK;
    const int observes = LATHE_HAS(c.table, observe);
    const int64_t before = lathe__heap();
    for (int i = 0; i < 1000 && status == LATHE_OK; i++) {
        const double rate = c.table->at(c.instance.self, i, 1000, 0.5, c.state);
        if (observes)
            c.table->observe(c.instance.self, metric(i % 80), 0.5, c.state);
        if (!isfinite(rate) || rate < 0.0)
            status = lathe_error(LATHE_E_NUMERIC, "after %d metrics the rate is %g", i, rate);
        for (int32_t k = c.n_state; k < LATHE_MAX_SCHEDULER_STATE && status == LATHE_OK; k++)
            if (c.state[k] != 0.0)
                status = lathe_error(LATHE_E_PLUGIN, "observe wrote state[%d] but n_state is %d", k,
                                     c.n_state);
    }
    if (status == LATHE_OK && lathe__heap() != before)
        status = lathe_error(LATHE_E_PLUGIN, "1000 rates took %lld heap blocks",
                             (long long)(lathe__heap() - before));
    lathe_instance_fini(&c.instance);
    return status;
}

const lathe__check *lathe__checks_scheduler(void)
{
    static const lathe__check checks[] = {
        {"state_is_declared", state_is_declared, 0},
        {"rates_are_finite_and_pure", rates_are_finite_and_pure, 0},
        {"order_of_calls_is_free", order_of_calls_is_free, 0},
        {"state_round_trip", state_round_trip, 0},
        {"survives_bad_metrics", observes_bad_metrics, 0},
        {"far_steps_are_survived", far_steps_are_survived, 0},
        {"follows_the_base_rate", follows_the_base_rate, 0},
        {"instances_are_apart", instances_are_apart, 0},
        {"observes_a_thousand_times", observes_a_thousand_times, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
