/* Checks whether a run can make the curvature estimates that its optimizer wants. */
#include "run/parts/curvature_check.h"

#include <stdio.h>

#include "base/error.h"
#include "data/records/row_kind.h"
#include "optim/curvature.h"
#include "run/parts/run_parts.h"

int64_t lathe__curvature_every(const lathe_run *run)
{
    return !lathe__run_has_step(run) ? 0 : lathe_curvature_every(&run->parts.optimizer);
}

static lathe_status refuse(const lathe_run *run, const char *why)
{
    return lathe__run_refuse(
        run, "optimizer", "name",
        "optimizer \"%s\" estimates curvature from labels that the model draws; %s",
        run->parts.optimizer.component->plugin->name, why);
}

/* Refuses a stage without labels. unit: what its loss is a sum over, for the message. */
static lathe_status refuse_stage(const lathe_run *run, const char *unit)
{
    char why[256];
    (void)snprintf(why, sizeof why,
                   "stage \"%s\" has none (its loss is over %s): choose another optimizer",
                   run->parts.stage.component->plugin->name, unit);
    return refuse(run, why);
}

lathe_status lathe__curvature_check_stage(const lathe_run *run)
{
    const lathe_stage_v1 *stage = run->parts.stage.component ? run->parts.stage.table : NULL;
    const int32_t rows = lathe_rows_of(stage);
    if (lathe__curvature_every(run) == 0 || stage == NULL || !lathe_row_shape_get(rows)->compares)
        return LATHE_OK;
    return refuse_stage(run, lathe_row_kind_get(rows)->records);
}

lathe_status lathe__curvature_build(lathe_run *run)
{
    const lathe_optimizer_v1 *table = run->parts.optimizer.table;
    const lathe_program_config config = lathe__run_program_config(run);
    if (!LATHE_HAS(table, estimate))
        return lathe_error(LATHE_E_PLUGIN,
                           "optimizer %s wants curvature estimates but has no estimate()",
                           run->parts.optimizer.component->plugin->name);
    if (run->programs.train.stage.count_unit != LATHE_COUNT_TOKENS)
        return refuse_stage(run,
                            lathe_row_kind_get(lathe_rows_of(run->parts.stage.table))->records);
    if (run->programs.train.logprobs == LATHE_NONE)
        return refuse_stage(run, "no log-probabilities of the model");
    return lathe_program_build(&config, LATHE_PROGRAM_SAMPLE, &run->programs.sampling);
}

lathe_status lathe__curvature_prepared(const lathe_run *run, lathe_status status)
{
    char why[512];
    if (status != LATHE_E_UNSUPPORTED)
        return status;
    (void)snprintf(why, sizeof why, "device \"%s\" cannot draw them: %s",
                   run->parts.device.component->plugin->name, lathe_error_message());
    return refuse(run, why);
}
