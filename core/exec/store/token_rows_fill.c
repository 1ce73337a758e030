/* Computes parameters that begin with rows of a weight, and marks of tokens. */
#include "exec/store/token_rows_fill.h"

#include <stdlib.h>

#include "base/error.h"
#include "exec/store/store_io.h"
#include "exec/store/weight_read.h"

lathe_status lathe_token_rows_fill(const lathe_store *store, int32_t param)
{
    const lathe_params *params = store->params;
    const lathe_param *row = params->rows[param];
    float *values = calloc((size_t)lathe_desc_count(&row->desc), sizeof *values);
    if (values == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for '%s'", row->name);
    lathe_status status = LATHE_OK;
    if (row->init == LATHE_INIT_TOKEN_ROWS)
        status =
            lathe_weight_read_rows(store, row->init_from, row->tokens.ids, row->tokens.n, values);
    else
        for (int32_t k = 0; k < row->tokens.n; k++)
            values[row->tokens.ids[k] * row->desc.dims[1] + k] = 1.0f;
    if (status == LATHE_OK)
        status = lathe_store_set(store, param, values);
    free(values);
    return status;
}

lathe_status lathe_token_rows_fill_derived(const lathe_store *store)
{
    for (int32_t i = 0; i < store->params->n; i++) {
        const lathe_param *row = store->params->rows[i];
        if (row->is_derived &&
            (row->init == LATHE_INIT_TOKEN_ROWS || row->init == LATHE_INIT_TOKEN_MARKS))
            LATHE_TRY(lathe_token_rows_fill(store, i));
    }
    return LATHE_OK;
}
