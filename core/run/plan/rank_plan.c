/* Plans a run as one of several ranks that are not there. */
#include "run/parts/run_ranks.h"
#include "run/plan/parallel_check.h"
#include "run/plan/trial.h"
#include "run/state/run_state.h"

static lathe_status check(const lathe_run *planned)
{
    LATHE_TRY(lathe__run_check_shard(planned));
    return lathe__parallel_check(planned);
}

lathe_status lathe_run_open_as_rank(const lathe_run *run, int32_t n_ranks, const lathe_edits *more,
                                    lathe_run **out)
{
    const lathe_trial as_rank = {.wants = LATHE_OPEN_PLAN, .as_ranks = n_ranks};
    LATHE_TRY(lathe__run_try(run, &as_rank, more, out));
    if (check(*out) == LATHE_OK)
        return LATHE_OK;
    lathe_run_close(*out);
    *out = NULL;
    return LATHE_E_CONFIG;
}
