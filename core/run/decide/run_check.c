/* Checks the parts of a run against each other and against its length. */
#include "run/decide/run_check.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "metrics/figure_names.h"
#include "plug/suggest.h"

/* Longer than any run: what a schedule refuses at this length is not about the length. */
#define LONG_ENOUGH ((int64_t)1 << 60)

lathe_status lathe_run_check_schedule(const lathe_instance *scheduler, int64_t total,
                                      lathe_cut_schedule *out)
{
    const lathe_scheduler_v1 *table = scheduler->component ? scheduler->table : NULL;
    *out = (lathe_cut_schedule){.is_cut = 0};
    if (!LATHE_HAS(table, check))
        return LATHE_OK;
    const lathe_status status = table->check(scheduler->self, total);
    if (status != LATHE_E_CONFIG)
        return status;
    (void)snprintf(out->why, sizeof out->why, "%s", lathe_error_message());
    (void)snprintf(out->key, sizeof out->key, "%s", lathe_error_key());
    if (total < 1 || table->check(scheduler->self, LONG_ENOUGH) != LATHE_OK)
        return lathe_error_at(status, "scheduler", out->key, "%s", out->why);
    out->is_cut = 1;
    return LATHE_OK;
}

lathe_status lathe_run_check_least_rate(const lathe_config *config, double base_lr)
{
    const double least = lathe_config_float(config, "scheduler", "min_lr");
    if (!lathe_config_is_explicit(config, "scheduler", "min_lr") || !(base_lr > 0.0) ||
        !(least > base_lr))
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "scheduler.min_lr = %g is above the learning rate %g%s: expected at most "
                       "that rate; lower it, or set scheduler.min_lr_ratio, a share of the rate",
                       least, base_lr,
                       lathe_config_is_explicit(config, "optimizer", "lr")
                           ? ""
                           : " (a default: optimizer.lr is not set)");
}

/* Allows a run that ends before its schedule does, wherever its length is set, because this is how
 * users try out a file. */
static lathe_status check_schedule(const lathe_run *run, int64_t total)
{
    lathe_cut_schedule cut;
    const lathe_status status = lathe_run_check_schedule(&run->parts.scheduler, total, &cut);
    if (cut.is_cut)
        lathe__run_warn_part(run, LATHE_KIND_SCHEDULER, cut.key,
                             "%s: the run ends before the schedule is complete", cut.why);
    return status == LATHE_E_CONFIG ? lathe__run_refuse_part(run, LATHE_KIND_SCHEDULER) : status;
}

/* The most steps that are looked at from the end of a run. */
#define MAX_TAIL ((int64_t)1 << 20)

/* Warns if the schedule has the rate 0 in several steps at the end of the run, as after its
 * total_steps: they compute gradients and change nothing. A single last step may have it, unless it
 * is the only one. */
static void warn_idle_tail(const lathe_run *run, int64_t total)
{
    const lathe_instance *scheduler = &run->parts.scheduler;
    const lathe_scheduler_v1 *table = scheduler->component ? scheduler->table : NULL;
    double state[LATHE_MAX_SCHEDULER_STATE] = {0.0};
    int64_t n = 0;
    if (!table || LATHE_HAS(table, observe) || !(run->opt.base_lr > 0.0))
        return;
    if (LATHE_HAS(table, init))
        table->init(scheduler->self, run->opt.base_lr, state);
    while (n < total && n < MAX_TAIL &&
           table->at(scheduler->self, total - 1 - n, total, run->opt.base_lr, state) == 0.0)
        n++;
    if (n < 2 && n < total)
        return;
    const lathe_value *length = lathe_config_get(run->config, "scheduler", "total_steps");
    const char *key = length && length->is_explicit ? "total_steps" : "name";
    lathe__run_warn(
        run, "scheduler", key,
        n == total ? "scheduler \"%s\" has the learning rate 0 in %sall %lld of %lld steps, so "
                     "nothing is learnt: train for more steps, or give it another warm-up"
                   : "scheduler \"%s\" has the learning rate 0 in the last %s%lld of %lld "
                     "steps, which change nothing: lengthen the schedule, give it a lowest "
                     "rate, or end the run earlier",
        scheduler->component->plugin->name, n == MAX_TAIL ? "(at least) " : "", (long long)n,
        (long long)total);
}

/* Warns of a warm-up that ends with the run: the rate of the file is never reached. A longer one is
 * told as a schedule that is not complete, and that of a run of one step as a rate of 0. */
static void warn_all_warm_up(const lathe_run *run, int64_t total)
{
    const lathe_value *length = lathe_config_get(run->config, "scheduler", "total_steps");
    const int64_t steps = lathe_config_int(run->config, "scheduler", "warmup_steps");
    if (steps > 1 && steps == total && !(length && length->is_explicit))
        lathe__run_warn(run, "scheduler", "warmup_steps",
                        "scheduler.warmup_steps is %lld, all steps of the run, so the learning "
                        "rate never reaches %g: warm up for fewer steps, or by warmup_ratio",
                        (long long)steps, run->opt.base_lr);
}

lathe_status lathe__run_check_length(const lathe_run *run, int64_t total)
{
    LATHE_TRY(lathe__average_check_start(run));
    LATHE_TRY(check_schedule(run, total));
    warn_idle_tail(run, total);
    warn_all_warm_up(run, total);
    return lathe__average_check_schedule(run, total);
}

/* Whether the stage's iterate shows a figure of this name. */
static int32_t is_of_stage(const lathe_run *run, const char *name)
{
    const lathe_stage_v1 *stage = run->parts.stage.component ? run->parts.stage.table : NULL;
    for (int32_t i = 0; LATHE_HAS(stage, figures) && i < stage->n_figures; i++)
        if (strcmp(stage->figures[i].name, name) == 0)
            return 1;
    return 0;
}

lathe_status lathe__figure_check_best(lathe_run *run)
{
    const char *name = run->set.checkpoint.best_metric;
    const lathe_stage_loss *stage = &run->programs.train.stage;
    const int is_planned = run->programs.train.exec != NULL;
    if (!name || !lathe_config_is_set(run->config, "checkpoint", "best_metric") ||
        lathe_figure_is_known(&run->opt.groups, stage, name) || is_of_stage(run, name))
        return LATHE_OK;
    const char *near = lathe_figure_nearest(&run->opt.groups, stage, name);
    if (!is_planned && (!near || strchr(name, '/') || lathe_edit_distance(name, near) > 2))
        return LATHE_OK;
    return lathe__run_refuse(
        run, "checkpoint", "best_metric",
        "checkpoint.best_metric = \"%s\" is not a figure of this run%s%s%s; expected one of "
        "metrics.jsonl, such as eval_loss, eval_token_accuracy or loss",
        name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}
