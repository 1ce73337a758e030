/* Moves the correction biases of routers by the load of the experts. */
#include "run/api/router_bias.h"

#include "exec/store/store_io.h"
#include "parallel/ranks/ranks.h"

/* Replaces the loads by their sums over all ranks. */
static lathe_status add_ranks(const lathe_run *run)
{
    double *counts = run->loads.counts;
    for (int64_t at = 0; run->ranks != NULL && at < run->loads.n; at += LATHE_RANK_NUMBERS) {
        const int64_t left = run->loads.n - at;
        const int32_t n = left < LATHE_RANK_NUMBERS ? (int32_t)left : LATHE_RANK_NUMBERS;
        const double *all = NULL;
        LATHE_TRY(lathe_ranks_gather(run->ranks, counts + at, n, 0, &all));
        for (int32_t i = 0; i < n; i++) {
            counts[at + i] = 0.0;
            for (int32_t q = 0; q < lathe_ranks_count(run->ranks); q++)
                counts[at + i] += all[(int64_t)q * LATHE_RANK_NUMBERS + i];
        }
    }
    return LATHE_OK;
}

/* Moves one bias. counts: [n_experts] */
static lathe_status correct(const lathe_run *run, const lathe_program_load *load,
                            const double *counts)
{
    const int32_t n = load->n_experts;
    const float rate = (float)run->set.moe.bias_rate;
    float *bias = run->loads.values;
    double total = 0.0;
    LATHE_TRY(lathe_store_get(&run->store, bias, lathe_store_master(&run->store, load->param),
                              n * (int64_t)sizeof *bias));
    for (int32_t e = 0; e < n; e++)
        total += counts[e];
    for (int32_t e = 0; e < n; e++) {
        /* n times the difference from the mean is a whole number, the mean often is none */
        const double below = total - (double)n * counts[e];
        bias[e] += below > 0.0 ? rate : below < 0.0 ? -rate : 0.0f;
    }
    return lathe_store_set(&run->store, load->param, bias);
}

lathe_status lathe__routers_correct(lathe_run *run)
{
    const lathe_program *p = &run->programs.train;
    const double *counts = run->loads.counts;
    LATHE_TRY(add_ranks(run));
    for (int32_t i = 0; i < p->n_loads; i++) {
        LATHE_TRY(correct(run, &p->loads[i], counts));
        counts += p->loads[i].n_experts;
    }
    return LATHE_OK;
}
