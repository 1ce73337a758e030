/* What the parts of a run say of each other and of its length. */
#include "run/run_check.h"

#include <stdio.h>

#include "base/error.h"
#include "run/curvature.h"
#include "run/figure_names.h"
#include "run/run_state.h"
#include "run/weight_average.h"

/* Longer than any run: what a schedule refuses then is not about the length. */
#define LONG_ENOUGH ((int64_t)1 << 60)

/* Whether the command line made the run too short for its schedule, as one does to try a file out. */
static int is_cut_short(const lathe_run *run)
{
    const lathe_scheduler_v1 *scheduler = run->scheduler.table;
    return lathe_config_is_override(run->config, "train", "max_steps") &&
           !lathe_config_is_override(run->config, "scheduler", "total_steps") &&
           scheduler->check(run->scheduler.self, LONG_ENOUGH) == LATHE_OK;
}

static lathe_status check_schedule(const lathe_run *run, int64_t total)
{
    const lathe_scheduler_v1 *scheduler = run->scheduler.component ? run->scheduler.table : NULL;
    char why[512];
    if (!LATHE_HAS(scheduler, check))
        return LATHE_OK;
    const lathe_status status = scheduler->check(run->scheduler.self, total);
    if (status != LATHE_E_CONFIG)
        return status;
    (void)snprintf(why, sizeof why, "%s", lathe_error_message());
    if (total > 0 && is_cut_short(run)) {
        lathe__run_warn(run, "train", "max_steps",
                        "%s: the run ends before the schedule is through", why);
        return LATHE_OK;
    }
    (void)lathe_error(status, "%s", why);
    return lathe__run_refuse_part(run, LATHE_KIND_SCHEDULER);
}

lathe_status lathe__run_check_length(const lathe_run *run, int64_t total)
{
    LATHE_TRY(lathe__average_check_start(run));
    LATHE_TRY(check_schedule(run, total));
    return lathe__average_check_schedule(run, total);
}
