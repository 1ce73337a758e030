/* Traces of several ranks: one file each, one clock, joined at the end. */
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "parallel/ranks/ranks.h"
#include "train/run_trace.h"

enum { PATH_BYTES = 4096 };

/* The file of a rank. */
static lathe_status file_of(const char *path, int32_t rank, char out[PATH_BYTES])
{
    const int n = rank > 0 ? snprintf(out, PATH_BYTES, "%s.rank-%d", path, rank)
                           : snprintf(out, PATH_BYTES, "%s", path);
    return n < PATH_BYTES ? LATHE_OK : lathe_error(LATHE_E_ARG, "--trace: the path is too long");
}

lathe_status lathe_run_trace_open(lathe_run *run, const char *path)
{
    enum { NOW, HOST, N_NUMBERS };
    char file[PATH_BYTES], name[160];
    const double *all = NULL;
    double own[N_NUMBERS] = {0.0};
    if (run->ranks == NULL)
        return lathe_trace_begin(path);
    const int32_t rank = lathe_ranks_rank(run->ranks), n = lathe_ranks_count(run->ranks);
    LATHE_TRY(file_of(path, rank, file));
    LATHE_TRY(lathe_ranks_gather(run->ranks, own, 1, 0, NULL)); /* ends everywhere at once */
    own[NOW] = lathe_trace_now();
    own[HOST] = run->ranks->info.host;
    LATHE_TRY(lathe_ranks_gather(run->ranks, own, N_NUMBERS, 0, &all));
    (void)snprintf(name, sizeof name, "rank %d of %d on %.64s", rank, n,
                   run->ranks->info.host_name);
    const int is_same_clock = all[HOST] == own[HOST];
    const lathe_trace_process process = {
        .number = rank + 1, .name = name, .origin = is_same_clock ? all[NOW] : own[NOW]};
    return lathe_trace_begin_as(file, &process);
}

void lathe_run_trace_join(lathe_run *run, const char *path)
{
    const double own = 0.0;
    lathe_trace_end();
    if (run->ranks == NULL)
        return;
    if (lathe_ranks_gather(run->ranks, &own, 1, 1, NULL) != LATHE_OK) {
        lathe_log(LATHE_LOG_WARN, "the traces of the ranks are not joined: %s",
                  lathe_error_message());
        lathe_error_clear();
        return;
    }
    for (int32_t q = 1; lathe_ranks_rank(run->ranks) == 0 && q < lathe_ranks_count(run->ranks);
         q++) {
        char part[PATH_BYTES];
        if (file_of(path, q, part) == LATHE_OK && lathe_trace_join(path, part) == LATHE_OK)
            continue;
        lathe_log(LATHE_LOG_WARN, "the trace of rank %d is not in %s: %s", q, path,
                  lathe_error_message());
        lathe_error_clear();
    }
}
