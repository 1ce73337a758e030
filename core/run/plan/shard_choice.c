/* Chooses parallel.shard = "auto": the first division, from none to all, with which the run fits on
 * every rank. Each step further costs more exchanges. */
#include "run/plan/shard_choice.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "parallel/ranks/ranks.h"
#include "run/plan/fit.h"
#include "run/plan/trial.h"

/* Plans the run with a division on this rank, and adds the memory that it needs to the text.
 * *out_fits: whether this rank has that much. */
static lathe_status plan_with(const lathe_run *run, int32_t shard, lathe_buffer *text,
                              int *out_fits)
{
    lathe_run *planned = NULL;
    lathe_fit fit;
    lathe_edits divided = {.n = 0};
    const int32_t n = run->ranks ? lathe_ranks_count(run->ranks) : run->open.as_ranks;
    lathe_edits_text(&divided, LATHE_BY_TRIAL, "parallel.shard", lathe_shard_name(shard));
    if (shard == LATHE_SHARD_NONE)
        lathe_edits_int(&divided, LATHE_BY_TRIAL, "parallel.shard_ranks", 0);
    const lathe_status status = lathe_run_open_as_rank(run, n, &divided, &planned);
    lathe_edits_fini(&divided);
    LATHE_TRY(status);
    lathe_fit_check(planned, &fit);
    lathe_run_close(planned);
    *out_fits = fit.need <= fit.have;
    lathe_buffer_printf(text, "%s \"%s\" needs %.1f MiB", shard > 0 ? "," : "",
                        lathe_shard_name(shard), (double)fit.need / 1048576.0);
    if (shard == 0 && fit.have < INT64_MAX)
        lathe_buffer_printf(text, " of %.1f MiB (%s)", (double)fit.have / 1048576.0, fit.source);
    return text->status;
}

/* Whether the run fits on all ranks: they may have different memory, and must choose alike. */
static lathe_status fits_everywhere(const lathe_run *run, int fits, int *out)
{
    const double own = fits, *all = NULL;
    *out = fits;
    if (run->ranks == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_ranks_gather(run->ranks, &own, 1, 1, &all));
    *out = 1;
    for (int32_t q = 0; q < lathe_ranks_count(run->ranks); q++)
        *out &= all[(int64_t)q * LATHE_RANK_NUMBERS] != 0.0;
    return LATHE_OK;
}

lathe_status lathe__choose_shard(lathe_run *run)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    int32_t shard = LATHE_SHARD_NONE;
    lathe_status status = LATHE_OK;
    if (run->set.shard != LATHE_SHARD_AUTO)
        return LATHE_OK;
    run->set.shard = LATHE_SHARD_NONE;
    if (run->ranks == NULL && run->open.as_ranks < 2)
        return LATHE_OK;
    /* "parameters" of all ranks does not go with islands (parallel_check.c) */
    const int32_t last = run->set.diloco_islands > 0 && run->set.shard_ranks == 0
                             ? LATHE_SHARD_GRADIENTS
                             : LATHE_SHARD_PARAMETERS;
    for (; status == LATHE_OK && shard <= last; shard++) {
        int fits = 0;
        status = plan_with(run, shard, &text, &fits);
        if (status == LATHE_OK)
            status = fits_everywhere(run, fits, &fits);
        if (fits || shard == last) /* if nothing fits, the plan of the last one says so */
            break;
    }
    run->set.shard = shard;
    if (status == LATHE_OK && run->ranks && run->programs.rank == 0)
        lathe_log(LATHE_LOG_INFO, "parallel.shard = \"auto\" chooses \"%s\":%s",
                  lathe_shard_name(shard), text.data);
    lathe_buffer_fini(&text);
    return status;
}
