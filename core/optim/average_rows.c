/* Finds the average of the weights in the store, and copies the weights to it. */
#include "optim/average_rows.h"

#include <string.h>

#include "lathe/optimizer.h"

int32_t lathe_optimizer_averages(const lathe_instance *optimizer)
{
    const lathe_optimizer_v1 *table = optimizer->component ? optimizer->table : NULL;
    return LATHE_HAS(table, average);
}

int32_t lathe_average_is_state(const lathe_store *store, const lathe_instance *optimizer)
{
    return store->has_averages && !lathe_optimizer_averages(optimizer);
}

const char *lathe_average_name(const lathe_store *store, const lathe_instance *optimizer,
                               int32_t kind)
{
    static const char *const names[] = {"none", "ema", "swa"}; /* LATHE_AVERAGE_* */
    if (!store->has_averages)
        return names[LATHE_AVERAGE_NONE];
    return lathe_optimizer_averages(optimizer) ? "optimizer" : names[kind];
}

lathe_status lathe_average_copy_row(const lathe_store *store, lathe_machine *m, int32_t row)
{
    const lathe_extent *held = store->rows[row].held;
    if (lathe_store_average(store, row) == NULL)
        return LATHE_OK;
    return lathe_move(m, lathe_store_average(store, row),
                      lathe_store_master(store, row) +
                          (held[LATHE_OF_STATE].begin - held[LATHE_OF_PARAMETER].begin),
                      4 * held[LATHE_OF_STATE].n);
}

lathe_status lathe_average_copy(const lathe_store *store, lathe_machine *m)
{
    for (int32_t i = 0; i < store->n_rows; i++)
        LATHE_TRY(lathe_average_copy_row(store, m, i));
    return LATHE_OK;
}

lathe_status lathe_average_view(const lathe_store *store, lathe_arena *arena, lathe_store *out)
{
    *out = *store;
    out->rows = lathe_arena_alloc(arena, (store->n_rows + 1) * (int64_t)sizeof *out->rows);
    if (out->rows == NULL)
        return LATHE_E_NOMEM;
    memcpy(out->rows, store->rows, (size_t)store->n_rows * sizeof *out->rows);
    out->masters = out->averages;
    out->shadows = NULL;
    out->is_average = 1;
    for (int32_t i = 0; i < store->n_rows; i++) {
        out->rows[i].master = out->rows[i].average;
        out->rows[i].held[LATHE_OF_PARAMETER] = out->rows[i].held[LATHE_OF_STATE];
        out->rows[i].shadow = -1;
    }
    return LATHE_OK;
}
