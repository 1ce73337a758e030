/* Plans a run as one of several ranks that are not there. */
#include "base/arena.h"
#include "base/log.h"
#include "opening/opening.h"
#include "run/run_ranks.h"
#include "run/run_state.h"

lathe_status lathe_run_open_as_rank(const lathe_run *run, int32_t n_ranks, const char *shard,
                                    lathe_run **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const int32_t n = run->open.n_overrides;
    lathe_override *list = lathe_arena_alloc(&arena, (n + 2) * (int64_t)sizeof *list);
    lathe_status status = LATHE_E_NOMEM;
    if (list) {
        for (int32_t i = 0; i < n; i++)
            list[i] = run->open.overrides[i];
        list[n] = (lathe_override){"parallel.shard", shard};
        list[n + 1] = (lathe_override){"log.level", "error"};
        status =
            lathe__run_open_planned(run->open.path, list, n + 2, LATHE_OPEN_PLAN, 0, n_ranks, out);
        lathe_log_set_level(run->set.log_level);
    }
    if (status == LATHE_OK && lathe__run_check_shard(*out) != LATHE_OK) {
        lathe_run_close(*out);
        *out = NULL;
        status = LATHE_E_CONFIG;
    }
    lathe_arena_fini(&arena);
    return status;
}
