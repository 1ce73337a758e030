/* Merges the adapter during a training, as ReLoRA does (arXiv:2307.05695). */
#include "run/merge/merge_step.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "exec/store/moments_reset.h"
#include "exec/store/row_norms.h"
#include "exec/store/singular_rows.h"
#include "exec/store/store_io.h"
#include "lathe/rng.h"
#include "run/merge/merge_site.h"
#include "run/parts/run_parts.h"

/* Merges into one weight: in the store's memory, or through host memory. */
static lathe_status merge_weight(const lathe_run *run, int32_t index)
{
    const lathe_store *store = &run->store;
    const int64_t bytes = 4 * lathe_desc_count(&run->params.rows[index]->desc);
    void *w = NULL;
    LATHE_TRY(lathe_store_borrow(store, lathe_store_master(store, index), bytes, &w));
    lathe_status status = lathe__merge_site(store, &run->parts.adapter, &run->model, index, w);
    if (status == LATHE_OK)
        status = lathe_store_set(store, index, w);
    lathe_store_release(store, w);
    return status;
}

/* A seed for the initial values after the merge at a step, other than that of the first ones. */
static uint64_t seed_at(uint64_t seed, int64_t step)
{
    const uint64_t merges = 0x6d65726765ULL; /* a stream of its own: "merge" */
    const lathe_u32x4 words = lathe_rng_block(seed, (uint64_t)step, merges, 0);
    return (uint64_t)words.v[0] << 32 | words.v[1];
}

static int begins_anew(const lathe_run *run, int32_t i)
{
    const lathe_param *row = run->params.rows[i];
    return i >= run->params.n_model && !row->reference && !row->stage_head;
}

/* Gives the adapter's parameters their initial values over the merged weights. */
static lathe_status begin_anew(lathe_run *run)
{
    const uint64_t seed = seed_at(run->set.model_seed, run->at.step);
    for (int32_t i = 0; i < run->params.n; i++)
        if (begins_anew(run, i))
            LATHE_TRY(lathe__run_begin_row(run, i, seed));
    return lathe_singular_rows_fill(&run->store, LATHE_SINGULAR_ALL);
}

static lathe_status reset_state(const lathe_run *run)
{
    const lathe_settings *s = &run->set;
    for (int32_t i = 0; i < run->params.n; i++)
        if (begins_anew(run, i) && run->params.rows[i]->trainable)
            LATHE_TRY(lathe_moments_reset(&run->store, i, s->merge_reset, s->merge_prune_ratio,
                                          s->seed, run->at.step));
    return LATHE_OK;
}

lathe_status lathe__merge_after_step(lathe_run *run)
{
    const int64_t every = run->set.merge_every;
    int32_t n = 0;
    if (every == 0 || run->at.step % every != 0)
        return LATHE_OK;
    LATHE_TRY(lathe_machine_sync(&run->machine));
    for (int32_t i = 0; i < run->params.n_model; i++) {
        if (!run->params.rows[i]->is_merged)
            continue;
        LATHE_TRY(merge_weight(run, i));
        n++;
    }
    LATHE_TRY(begin_anew(run));
    LATHE_TRY(reset_state(run));
    lathe_log(LATHE_LOG_INFO,
              "step %lld: the adapter is merged into %d weights and begins anew "
              "(optimizer state: %s)",
              (long long)run->at.step, n, lathe_reset_name(run->set.merge_reset));
    return LATHE_OK;
}
