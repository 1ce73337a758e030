/* Plans a run as one of several ranks that are not there. */
#include "base/arena.h"
#include "base/log.h"
#include "opening/opening.h"
#include "opening/parallel_check.h"
#include "run/run_ranks.h"
#include "run/run_state.h"

static lathe_status check(const lathe_run *planned)
{
    LATHE_TRY(lathe__run_check_shard(planned));
    return lathe__parallel_check(planned);
}

lathe_status lathe_run_open_as_rank(const lathe_run *run, int32_t n_ranks,
                                    const lathe_override *more, int32_t n_more, lathe_run **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const int32_t n = run->open.n_overrides;
    lathe_override *list = lathe_arena_alloc(&arena, (n + n_more + 1) * (int64_t)sizeof *list);
    lathe_status status = LATHE_E_NOMEM;
    *out = NULL;
    if (list) {
        for (int32_t i = 0; i < n; i++)
            list[i] = run->open.overrides[i];
        for (int32_t i = 0; i < n_more; i++)
            list[n + i] = more[i];
        list[n + n_more] = (lathe_override){"log.level", "error"};
        status = lathe__run_open_planned(run->open.path, list, n + n_more + 1, LATHE_OPEN_PLAN, 0,
                                         n_ranks, out);
        lathe_log_set_level(run->set.log_level);
    }
    if (status == LATHE_OK && check(*out) != LATHE_OK) {
        lathe_run_close(*out);
        *out = NULL;
        status = LATHE_E_CONFIG;
    }
    lathe_arena_fini(&arena);
    return status;
}
