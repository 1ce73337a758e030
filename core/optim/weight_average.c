/* Updates the average of the weights. */
#include "optim/weight_average.h"

#include "exec/store/peers.h"

/* Makes every average a copy of its weights. */
static lathe_status copy_rows(const lathe_averaging *a)
{
    return lathe_average_copy(a->store, a->machine);
}

static int32_t is_state(const lathe_averaging *a)
{
    return lathe_average_is_state(a->store, a->optimizer);
}

static lathe_status move_rows(const lathe_averaging *a, float share)
{
    LATHE_TRY(lathe_update_share(a->opt->update, share));
    for (int32_t i = 0; i < a->store->n_rows; i++)
        if (lathe_store_average(a->store, i))
            LATHE_TRY(lathe_row_towards(&a->opt->row_kernels, a->store, i, a->programs->arena));
    return LATHE_OK;
}

lathe_status lathe_average_begin(const lathe_averaging *a)
{
    *a->averaged = 0;
    return copy_rows(a);
}

lathe_status lathe_average_step(const lathe_averaging *a)
{
    const int64_t since = *a->step - a->start;
    double share = 1.0;
    if (!is_state(a))
        return LATHE_OK;
    if (since >= 0 && since % a->every == 0) {
        (*a->averaged)++;
        share = a->kind == LATHE_AVERAGE_EMA ? 1.0 - a->decay : 1.0 / (double)*a->averaged;
    } else if (*a->averaged > 0) {
        return LATHE_OK;
    }
    return share < 1.0 ? move_rows(a, (float)share) : copy_rows(a);
}

static int64_t n_updates(const lathe_averaging *a)
{
    return *a->step - *a->skipped;
}

lathe_status lathe_average_fill(const lathe_averaging *a)
{
    if (!a->store->has_averages || is_state(a))
        return LATHE_OK;
    if (n_updates(a) > 0)
        return lathe_update_average(a->opt->update, n_updates(a), a->seed);
    return lathe_average_begin(a);
}

int32_t lathe_average_is_apart(const lathe_averaging *a)
{
    return is_state(a) ? *a->averaged > 0 : a->store->has_averages && n_updates(a) > 0;
}

/* Uses the arena as a buffer; it holds nothing between two runs of a graph. */
lathe_status lathe_average_swap(const lathe_averaging *a)
{
    lathe_store *store = a->store;
    for (int32_t i = 0; i < store->n_rows; i++) {
        const lathe_extent *held = store->rows[i].held;
        if (lathe_store_average(store, i) == NULL)
            continue;
        LATHE_TRY(
            lathe_transfer_swap(a->machine,
                                lathe_store_master(store, i) +
                                    (held[LATHE_OF_STATE].begin - held[LATHE_OF_PARAMETER].begin),
                                lathe_store_average(store, i), 4 * held[LATHE_OF_STATE].n,
                                a->programs->arena, a->programs->arena_bytes));
        LATHE_TRY(lathe_row_narrow(&a->opt->row_kernels, store, i, a->programs->arena));
    }
    return store->peers ? store->peers->spread(store->peers->arg) : LATHE_OK;
}
