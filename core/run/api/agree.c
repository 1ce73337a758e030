/* Adds the sums and the gradients of all ranks. */
#include "run/api/agree.h"

#include <string.h>

#include "base/error.h"
#include "base/trace.h"
#include "parallel/islands/island_files.h"
#include "parallel/ranks/extents.h"
#include "parallel/ranks/grad_buckets.h"
#include "parallel/ranks/ranks.h"

/* The numbers of a rank. */
enum { LOSS, COUNT, TOKENS, FLOPS, DATA_SECONDS, BAD, BAD_LOSS, STOPS, SECONDS, METRICS };
#define N_NUMBERS (METRICS + LATHE_MAX_STAGE_METRICS)
LATHE_STATIC_ASSERT(N_NUMBERS <= (int)LATHE_RANK_NUMBERS, "a step's numbers are one message");

static void add_rank(const double *x, int32_t rank, lathe_accumulated *sum, lathe_agreement *a)
{
    sum->loss_sum += x[LOSS];
    sum->count += x[COUNT];
    sum->tokens += (int64_t)x[TOKENS];
    sum->flops += x[FLOPS];
    sum->data_seconds = x[DATA_SECONDS] > sum->data_seconds ? x[DATA_SECONDS] : sum->data_seconds;
    for (int32_t i = 0; i < LATHE_MAX_STAGE_METRICS; i++)
        sum->metric_sums[i] += x[METRICS + i];
    a->stops |= x[STOPS] != 0.0;
    if (rank == 0 || x[SECONDS] > a->seconds) {
        a->seconds = x[SECONDS];
        a->slowest = rank;
    }
    if (rank == 0 || x[SECONDS] < a->least_seconds)
        a->least_seconds = x[SECONDS];
    if (x[BAD] != 0.0 && (a->bad == 0 || (int32_t)x[BAD] < a->bad)) {
        a->bad = (int32_t)x[BAD];
        a->loss = x[BAD_LOSS];
        a->rank = rank;
    }
}

/* Replaces the sums by those of the ranks that take the step together. */
static lathe_status add_ranks(lathe_run *run, lathe_agreement *agreement)
{
    lathe_accumulated *sum = &run->sum;
    const double *all = NULL;
    double own[N_NUMBERS] = {sum->loss_sum,       sum->count,
                             (double)sum->tokens, sum->flops,
                             sum->data_seconds,   (double)agreement->bad,
                             agreement->loss,     (double)agreement->stops,
                             agreement->seconds};
    memcpy(own + METRICS, sum->metric_sums, sizeof sum->metric_sums);
    LATHE_TRY(lathe_ranks_gather(run->layout->island, own, N_NUMBERS, 0, &all));
    const int64_t tokens = sum->tokens;
    *agreement = (lathe_agreement){.bad = 0};
    sum->loss_sum = sum->count = sum->flops = sum->data_seconds = 0.0;
    sum->tokens = 0;
    memset(sum->metric_sums, 0, sizeof sum->metric_sums);
    for (int32_t q = 0; q < lathe_ranks_count(run->layout->island); q++)
        add_rank(all + (int64_t)q * LATHE_RANK_NUMBERS, q, sum, agreement);
    agreement->rank = lathe_layout_member(run->layout, agreement->rank);
    agreement->slowest = lathe_layout_member(run->layout, agreement->slowest);
    run->at.tokens += sum->tokens - tokens;
    return LATHE_OK;
}

lathe_status lathe__run_agree(lathe_run *run, lathe_agreement *agreement)
{
    if (run->sum.is_agreed || (run->ranks == NULL && run->outer == NULL))
        return LATHE_OK;
    agreement->rank = agreement->slowest = run->programs.rank;
    agreement->least_seconds = agreement->seconds;
    if (run->layout->island)
        LATHE_TRY(add_ranks(run, agreement));
    if (run->outer)
        lathe_islands_note(run->outer->islands, run->sum.tokens, agreement->stops);
    run->sum.is_agreed = 1;
    return LATHE_OK;
}

lathe_status lathe__run_reduce(lathe_run *run)
{
    if ((run->buckets == NULL && run->extents == NULL) || run->sum.is_reduced)
        return LATHE_OK;
    if (run->store.fresh_bytes > 0 && run->layout->copies == NULL)
        return LATHE_OK; /* they were added during each backward */
    const double begin = lathe_now();
    lathe_update_forget_norm(run->opt.update);
    LATHE_TRY(run->extents ? lathe_extents_reduce(run->extents)
                           : lathe_grad_buckets_reduce(run->buckets));
    lathe_trace_since("ranks", "sum of gradients", begin);
    return LATHE_OK;
}

lathe_status lathe__run_add_ranks(lathe_run *run, double *numbers, int32_t n)
{
    for (int32_t at = 0; run->ranks && at < n; at += LATHE_RANK_NUMBERS) {
        const int32_t m = n - at < LATHE_RANK_NUMBERS ? n - at : LATHE_RANK_NUMBERS;
        const double *all = NULL;
        LATHE_TRY(lathe_ranks_gather(run->ranks, numbers + at, m, 1, &all));
        for (int32_t i = 0; i < m; i++) {
            numbers[at + i] = 0.0;
            for (int32_t q = 0; q < lathe_ranks_count(run->ranks); q++)
                numbers[at + i] += all[(int64_t)q * LATHE_RANK_NUMBERS + i];
        }
    }
    return LATHE_OK;
}
