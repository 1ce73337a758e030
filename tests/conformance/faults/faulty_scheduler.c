/* A linear warm-up that lowers the rate when the metric stops falling, and one fault. */
#include "fault.h"

#include "lathe/scheduler.h"

static double hidden = 1.0;

static int32_t n_state(void *self)
{
    (void)self;
    return IS(too_much_state) ? 17 : IS(negative_state) ? -1 : 2;
}

static void init(void *self, double base_lr, double *state)
{
    (void)self;
    state[0] = 1.0;
    state[1] = 1e30;
    hidden = IS(remembers_the_base) ? base_lr : hidden;
    if (IS(init_writes_too_far))
        state[2] = 5.0;
}

static lathe_status check(void *self, int64_t total)
{
    (void)total;
    const instance *x = self;
    return IS(refuses_every_length) ? lathe_fail(x->host, LATHE_E_CONFIG, "too short") : LATHE_OK;
}

static double at(void *self, int64_t step, int64_t total, double base_lr, const double *state)
{
    instance *x = self;
    const double rate = base_lr * state[0] * (step < 10 ? (double)(step + 1) / 10.0 : 1.0);
    misbehave(x->host);
    x->calls++;
    if (IS(falls_when_asked))
        hidden *= 0.999;
    if (IS(falls_when_asked) || IS(remembers_the_base))
        return rate * hidden;
    if (IS(counts_its_calls))
        return rate / (double)x->calls;
    if (IS(ignores_the_base))
        return 0.001;
    if (IS(turns_the_base_around))
        return 1e-3 / base_lr;
    if (IS(is_always_zero))
        return 0.0;
    if (IS(is_negative_at_the_end))
        return total > 0 && step >= total - 1 ? -rate : rate;
    if (IS(divides_by_the_length))
        return rate * (1.0 - (double)step / (double)total * 0.5);
    if (IS(nan_at_step_777))
        return step == 777 ? (double)NAN : rate;
    if (IS(explodes))
        return rate * exp((double)step);
    if (IS(is_a_thousand_times_the_base))
        return rate * 1000.0;
    if (IS(writes_its_state))
        ((double *)(uintptr_t)state)[0] *= 0.5;
    return rate;
}

static void observe(void *self, double metric, double base_lr, double *state)
{
    instance *x = self;
    (void)base_lr;
    if (IS(observes_in_the_instance)) {
        x->factor = metric < 3.0 ? x->factor * 0.5 : x->factor;
        state[0] = x->factor;
        return;
    }
    if (IS(observes_in_a_static)) {
        hidden = metric < 3.0 ? hidden * 0.5 : hidden;
        state[0] = hidden;
        return;
    }
    if (IS(takes_nan_to_heart))
        state[0] = metric == metric ? state[0] : metric;
    if (IS(observe_writes_too_far))
        state[9] = metric;
    if (metric < state[1])
        state[1] = metric;
    else if (isfinite(metric))
        state[0] *= 0.99;
    if (IS(goes_below_zero))
        state[0] -= 0.05;
}

static const lathe_scheduler_v1 table = {
    .size = IS(table_too_short) ? 16 : sizeof table,
    .revision = LATHE_SCHEDULER_REVISION,
    .n_state = n_state,
    .init = init,
    .check = check,
    .at = IS(null_at) ? NULL : at,
    .observe = observe,
};

FAULTY_PLUGIN(LATHE_KIND_SCHEDULER, LATHE_SCHEDULER_REVISION, &table);
