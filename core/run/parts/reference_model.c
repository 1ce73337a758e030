/* Fills the reference model's weights. */
#include "run/parts/reference_model.h"

#include <string.h>

#include "checkpoint/state/adapter_file.h"
#include "exec/store/gathered.h"
#include "exec/store/store_io.h"
#include "exec/store/transfer.h"
#include "run/state/run_saved.h"
#include "run/state/run_state.h"

lathe_status lathe__reference_fill(const lathe_store *store, int only_model)
{
    const lathe_params *params = store->params;
    const size_t n_prefix = strlen(LATHE_REFERENCE_PREFIX);
    for (int32_t i = 0; i < params->n; i++) {
        const lathe_param *row = params->rows[i];
        if (!row->reference || row->other ||
            strncmp(row->name, LATHE_REFERENCE_PREFIX, n_prefix) != 0)
            continue;
        const int32_t from = lathe_params_find(params, row->name + n_prefix);
        if (only_model && (from < 0 || from >= params->n_model))
            continue;
        const int64_t bytes =
            lathe_desc_count(&row->desc) * lathe_dtype_bytes(lathe_params_value_dtype(params, i));
        if (store->gathers) { /* their extents may differ */
            const void *whole = NULL;
            LATHE_TRY(lathe_store_whole(store, from, -1, &whole));
            LATHE_TRY(lathe_read_whole(store->m, whole, bytes, &whole));
            LATHE_TRY(lathe_store_put_value(store, i, whole));
            continue;
        }
        LATHE_TRY(lathe_move(store->m, lathe_store_value(store, i), lathe_store_value(store, from),
                             bytes));
    }
    return LATHE_OK;
}

lathe_status lathe__reference_fill_adapted(lathe_run *run)
{
    LATHE_TRY(lathe__reference_fill(&run->store, 1));
    return lathe__adapter_file_frozen(lathe__run_saved(run), &run->parts.reference_adapter,
                                      LATHE_REFERENCE_PREFIX, run->set.model_reference_adapter, 1);
}
