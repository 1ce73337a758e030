/* Ends rounds of DiLoCo. */
#include "primitives/outer_step.h"

#include "base/error.h"
#include "islands/island_files.h"
#include "primitives/save_load.h"

void lathe__round_begin(lathe_run *run)
{
    if (run->outer)
        lathe_islands_enter(run->outer->islands, run->set.max_steps);
}

lathe_status lathe__round_after_step(lathe_run *run)
{
    int64_t tokens = 0;
    if (!run->outer || !lathe_islands_ends_round(run->outer->islands, run->at.step))
        return LATHE_OK;
    LATHE_TRY(lathe__run_meet(run)); /* islands take what time they take for a round */
    const lathe_status status = lathe_islands_end_round(run->outer->islands);
    if (status != LATHE_OK)
        return lathe_error_context(status, "after step %lld", (long long)run->at.step);
    LATHE_TRY(lathe_islands_agree(run->outer->islands, &tokens));
    run->at.tokens += tokens;
    return LATHE_OK;
}
