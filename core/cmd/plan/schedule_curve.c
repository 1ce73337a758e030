/* Computes the learning rate of a run file's schedule, step by step, before anything runs. */
#include "cmd/plan/schedule_curve.h"

#include <math.h>

#include "base/error.h"
#include "base/log.h"
#include "lathe/optimizer.h"
#include "run/decide/run_check.h"
#include "run/open/step_count.h"

int64_t lathe_schedule_spaced_step(int64_t total, int64_t n, int64_t k)
{
    if (n < 2)
        return 0;
    /* k*(total - 1)/(n - 1), whose product may not fit in 64 bits */
    const int64_t whole = (total - 1) / (n - 1), rest = (total - 1) % (n - 1);
    return k * whole + k * rest / (n - 1);
}

double lathe_schedule_curve_at(const lathe_schedule_curve *c, int64_t step)
{
    return lathe_rewarm_rate(&c->rewarm, &c->scheduler, step, step, c->total, c->base_lr, c->state);
}

static lathe_status make(lathe_schedule_curve *c, int32_t kind, lathe_instance *out)
{
    const lathe_part *part = lathe_config_part(c->config, kind);
    return lathe_instance_init(out, part->component, part->values);
}

static lathe_status settle_length(lathe_schedule_curve *c, const char *path, int64_t steps)
{
    c->total = steps > 0 ? steps : lathe_config_int(c->config, "train", "max_steps");
    if (c->total > 0)
        return LATHE_OK;
    if (!lathe_config_is_set(c->config, "data", "datasets"))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: train.max_steps is unset, and there are no data.datasets to count "
                           "the steps of train.epochs: give --steps N",
                           path);
    const lathe_run_source from = {NULL, NULL, c->inputs};
    const lathe_status status = lathe_run_count_steps(&from, &c->total);
    return status == LATHE_OK
               ? LATHE_OK
               : lathe_error_context(status,
                                     "the steps of train.epochs cannot be counted; give --steps N, "
                                     "or mend this");
}

/* Finds the last step of the warm-up. Computes every step, because evenly spaced steps would miss a
 * short warm-up. */
static int64_t warm_up_end(const lathe_schedule_curve *c)
{
    const int64_t end = c->n_computed;
    double before = lathe_schedule_curve_at(c, 0);
    for (int64_t step = 1; step < end; step++) {
        const double lr = lathe_schedule_curve_at(c, step);
        if (!(lr > before))
            return step - 1;
        before = lr;
    }
    return end - 1;
}

/* Computes the figures that are printed below the curve. */
static lathe_status compute_figures(lathe_schedule_curve *c)
{
    c->n_computed = c->total < LATHE_SCHEDULE_COMPUTED ? c->total : LATHE_SCHEDULE_COMPUTED;
    c->warm_up_end = warm_up_end(c);
    for (int64_t k = 0; k < c->n_computed; k++) {
        const int64_t step = lathe_schedule_spaced_step(c->total, c->n_computed, k);
        const double lr = lathe_schedule_curve_at(c, step);
        if (!isfinite(lr))
            return lathe_error(LATHE_E_PLUGIN, "%s gives %g at step %lld of %lld, expected a rate",
                               c->scheduler.component->path, lr, (long long)step,
                               (long long)c->total);
        if (k == 0)
            c->first = c->peak = c->least = lr;
        if (lr > c->peak) {
            c->peak = lr;
            c->peak_step = step;
        }
        if (lr < c->least) {
            c->least = lr;
            c->least_step = step;
        }
        c->last = lr;
    }
    const double top = lathe_schedule_curve_at(c, c->warm_up_end); /* it may not be one of the
                                                                    * evenly spaced steps */
    if (top > c->peak || (top >= c->peak && c->warm_up_end < c->peak_step)) {
        c->peak = top;
        c->peak_step = c->warm_up_end;
    }
    return LATHE_OK;
}

lathe_status lathe_schedule_curve_init(lathe_schedule_curve *c, const char *path,
                                       const lathe_edits *edits, int64_t steps)
{
    lathe_diags diags = {0};
    *c = (lathe_schedule_curve){0};
    LATHE_TRY(lathe_run_inputs_create(path, edits, &c->inputs));
    LATHE_TRY(lathe_registry_create(&c->inputs->registry));
    const lathe_status status = lathe_config_make(
        c->inputs->file, NULL, 1u << LATHE_KIND_OPTIMIZER | 1u << LATHE_KIND_SCHEDULER,
        c->inputs->registry, &diags, &c->config);
    lathe_diags_fini(&diags);
    LATHE_TRY(status);
    LATHE_TRY(settle_length(c, path, steps));
    LATHE_TRY(make(c, LATHE_KIND_OPTIMIZER, &c->optimizer));
    LATHE_TRY(make(c, LATHE_KIND_SCHEDULER, &c->scheduler));
    const lathe_optimizer_v1 *optimizer = c->optimizer.table;
    const lathe_scheduler_v1 *scheduler = c->scheduler.table;
    c->base_lr = optimizer->base_lr(c->optimizer.self);
    LATHE_TRY(lathe_run_check_least_rate(c->config, c->base_lr));
    c->reads_metrics = LATHE_HAS(scheduler, observe) ? 1 : 0;
    lathe_cut_schedule cut;
    LATHE_TRY(lathe_run_check_schedule(&c->scheduler, c->total, &cut));
    if (cut.is_cut)
        lathe_log(LATHE_LOG_WARN, "%s: the run ends before the schedule is complete", cut.why);
    c->rewarm = (lathe_rewarm){lathe_config_int(c->config, "adapter", "merge_every"),
                               lathe_config_int(c->config, "adapter", "merge_warmup_steps")};
    if (LATHE_HAS(scheduler, init))
        scheduler->init(c->scheduler.self, c->base_lr, c->state);
    return compute_figures(c);
}

void lathe_schedule_curve_fini(lathe_schedule_curve *c)
{
    lathe_instance_fini(&c->scheduler);
    lathe_instance_fini(&c->optimizer);
    lathe_config_destroy(c->config);
    lathe_run_inputs_release(c->inputs);
    *c = (lathe_schedule_curve){0};
}
