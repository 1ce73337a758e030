/* Ends rounds of DiLoCo. */
#include "run/api/outer_step.h"

#include "base/error.h"
#include "parallel/islands/island_files.h"
#include "run/api/save_load.h"

void lathe__round_begin(lathe_run *run)
{
    if (run->outer)
        lathe_islands_enter(run->outer->islands, run->set.max_steps);
}

int32_t lathe__islands_count_skips(const lathe_run *run)
{
    return run->outer != NULL && run->set.compute_dtype != LATHE_F16;
}

lathe_status lathe__round_after_step(lathe_run *run)
{
    int64_t tokens = 0;
    if (run->outer == NULL || !lathe_islands_ends_round(run->outer->islands, run->at.step))
        return LATHE_OK;
    LATHE_TRY(lathe__run_meet(run)); /* islands take what time they take for a round */
    const lathe_status status = lathe_islands_end_round(run->outer->islands);
    if (status != LATHE_OK)
        return lathe_error_context(status, "after step %lld", (long long)run->at.step);
    const int64_t in_row = lathe__islands_count_skips(run) ? run->at.skipped_in_row : 0;
    LATHE_TRY(lathe_islands_agree(run->outer->islands, in_row, &tokens));
    run->at.tokens += tokens;
    return LATHE_OK;
}
