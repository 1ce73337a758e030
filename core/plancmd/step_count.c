/* Counts the steps of a run by its data. */
#include "plancmd/step_count.h"

#include "opening/opening.h"
#include "run/run_length.h"

lathe_status lathe_count_steps(const char *path, const lathe_override *overrides,
                               int32_t n_overrides, int64_t *out)
{
    lathe_run *run = NULL;
    *out = 0;
    LATHE_TRY(lathe_run_open_mode(path, overrides, n_overrides, LATHE_OPEN_DATA, &run));
    lathe__run_count_epochs(run);
    *out = run->set.max_steps;
    lathe_run_close(run);
    return LATHE_OK;
}
