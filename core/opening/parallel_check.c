/* Checks [parallel]. */
#include "opening/parallel_check.h"

#include <string.h>

#include "base/error.h"
#include "run/run_ranks.h"

static lathe_status check_groups(const lathe_run *run)
{
    const int32_t n = run->set.shard_ranks;
    if (n == 0)
        return LATHE_OK;
    if (run->set.shard == LATHE_SHARD_NONE)
        return lathe__run_refuse(
            run, "parallel", "shard_ranks",
            "parallel.shard_ranks is %d, and parallel.shard = \"none\" divides "
            "nothing: say with parallel.shard what these ranks divide, or "
            "remove the line",
            n);
    if (n == 1)
        return lathe__run_refuse(
            run, "parallel", "shard_ranks",
            "parallel.shard_ranks is 1, and one rank divides nothing; expected "
            "2 or more, or 0: all ranks");
    return LATHE_OK;
}

/* Whether the ranks that are there, or planned for, can be laid out. */
static lathe_status check_number(const lathe_run *run)
{
    const lathe_layout_ask ask = lathe__run_layout_ask(&run->set);
    const int32_t n = run->ranks ? lathe_ranks_count(run->ranks) : run->open.as_ranks;
    if (n < 2 || lathe_layout_check(n, &ask) == LATHE_OK)
        return LATHE_OK;
    const char *said = lathe_error_message();
    const char *key = strstr(said, "shard_ranks") ? "shard_ranks" : "diloco_islands";
    return lathe__run_refuse(run, "parallel", key, "%s", said);
}

lathe_status lathe__parallel_check(const lathe_run *run)
{
    LATHE_TRY(check_groups(run));
    return check_number(run);
}
