/* Counts the steps of a run by its data. */
#include "run/open/step_count.h"

#include "run/decide/run_length.h"

lathe_status lathe_run_count_steps(const lathe_run_source *from, int64_t *out)
{
    lathe_run *run = NULL;
    *out = 0;
    LATHE_TRY(lathe_run_open_for(from, LATHE_OPEN_DATA, &run));
    lathe__run_count_epochs(run);
    *out = run->set.max_steps;
    lathe_run_close(run);
    return LATHE_OK;
}

lathe_status lathe_run_count_planned(lathe_run *run)
{
    int64_t n = 0;
    const lathe_run_source from = {NULL, NULL, run->inputs};
    if (run->set.max_steps > 0 || !run->set.datasets)
        return LATHE_OK;
    LATHE_TRY(lathe_run_count_steps(&from, &n));
    run->set.max_steps = n;
    return LATHE_OK;
}
