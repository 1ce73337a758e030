/* Checks the average of the weights against the optimizer, the schedule and the run's length. */
#include "run/decide/run_check.h"

#include <string.h>

#include "base/error.h"

lathe_status lathe__average_check_optimizer(const lathe_run *run)
{
    if (!lathe_optimizer_averages(&run->parts.optimizer) ||
        run->set.weight_average == LATHE_AVERAGE_NONE)
        return LATHE_OK;
    return lathe__run_refuse(
        run, "train", "weight_average",
        "optimizer \"%s\" averages the weights by itself, and its average is what is "
        "evaluated and kept: leave weight_average at \"none\"",
        run->parts.optimizer.component->plugin->name);
}

enum { SAMPLES = 4096 };

/* Whether the learning rate ever falls or rises in a run of `total` steps. */
static void watch_rate(const lathe_instance *scheduler, double base_lr, int64_t total,
                       int *out_falls, int *out_rises)
{
    const lathe_scheduler_v1 *table = scheduler->table;
    double state[LATHE_MAX_SCHEDULER_STATE] = {0.0}, last = 0.0;
    const int64_t n = total < SAMPLES ? total : SAMPLES;
    if (LATHE_HAS(table, init))
        table->init(scheduler->self, base_lr, state);
    *out_falls = LATHE_HAS(table, observe);
    *out_rises = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t step = n > 1 ? i * (total - 1) / (n - 1) : 0;
        const double rate = table->at(scheduler->self, step, total, base_lr, state);
        *out_falls |= i > 0 && rate < last;
        *out_rises |= i > 0 && rate > last;
        last = rate;
    }
}

lathe_status lathe__average_check_schedule(const lathe_run *run, int64_t total)
{
    int falls = 0, rises = 0;
    if (!lathe_optimizer_averages(&run->parts.optimizer) || run->parts.scheduler.component == NULL)
        return LATHE_OK;
    const char *scheduler = run->parts.scheduler.component->plugin->name;
    const char *optimizer = run->parts.optimizer.component->plugin->name;
    watch_rate(&run->parts.scheduler, run->opt.base_lr, total > 0 ? total : SAMPLES, &falls,
               &rises);
    const lathe_place place = lathe_config_where(run->config, "scheduler", "name");
    const int is_named = place.line > 0 || strncmp(place.file, "--", 2) == 0;
    const char *section =
        is_named ? "scheduler" : "optimizer"; /* the user did not choose the default scheduler */
    if (falls)
        return lathe__run_refuse(
            run, section, "name",
            "scheduler \"%s\" lowers the rate, but optimizer \"%s\" averages the weights instead "
            "of lowering the rate: set scheduler.name = \"constant\"",
            scheduler, optimizer);
    if (rises)
        lathe__run_warn(run, "scheduler", "name",
                        "scheduler \"%s\" raises the rate at the beginning, which optimizer \"%s\" "
                        "does not know: its average gives these steps their full weight; use the "
                        "optimizer's own warm-up instead",
                        scheduler, optimizer);
    return LATHE_OK;
}

lathe_status lathe__average_check_start(const lathe_run *run)
{
    if (run->set.weight_average == LATHE_AVERAGE_NONE || run->set.max_steps == 0 ||
        run->set.weight_average_start <= run->set.max_steps)
        return LATHE_OK;
    return lathe__run_refuse(
        run, "train", "weight_average_start",
        "weight_average_start = %lld is after the last step, %lld: nothing would be averaged",
        (long long)run->set.weight_average_start, (long long)run->set.max_steps);
}

/* The store of averages has the rows that train, and a checkpoint of the average all that the
 * adapter's file holds. */
static lathe_status check_fixed(const lathe_run *run)
{
    if (run->set.moe.bias_rate > 0.0)
        return lathe__run_refuse(run, "moe", "bias_rate",
                                 "moe.bias_rate moves biases that the average of the weights "
                                 "(train.weight_average, or an optimizer that averages) does not "
                                 "hold: leave one of the keys out");
    for (int32_t i = 0; i < run->params.n; i++)
        if (run->params.rows[i]->is_fixed)
            return lathe__run_refuse(run, "adapter", "init",
                                     "the average of the weights (train.weight_average, or an "
                                     "optimizer that averages) is not offered for adapters with "
                                     "matrices that do not train, as '%s': use another "
                                     "adapter.init, or no average",
                                     run->params.rows[i]->name);
    return LATHE_OK;
}

lathe_status lathe__average_plan(lathe_run *run)
{
    LATHE_TRY(lathe__average_check_optimizer(run));
    LATHE_TRY(lathe__average_check_start(run));
    if (run->set.weight_average == LATHE_AVERAGE_NONE &&
        !lathe_optimizer_averages(&run->parts.optimizer))
        return LATHE_OK;
    LATHE_TRY(check_fixed(run));
    lathe_store_add_averages(&run->store);
    return lathe_row_kernels_init(&run->opt.row_kernels, &run->machine, &run->store);
}
