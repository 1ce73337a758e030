/* Computes parameters that begin with rows of a weight, and marks of tokens. */
#include "exec/store/token_rows_fill.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/store_io.h"
#include "exec/store/weight_read.h"

static lathe_status fill_rows(const lathe_store *store, int32_t param, float *out)
{
    const lathe_params *params = store->params;
    const lathe_param *row = params->rows[param], *source = params->rows[row->init_from];
    const int64_t V = source->desc.dims[0], C = source->desc.dims[1];
    /* 64-byte aligned, and a multiple of it: a format may decode into it */
    float *all = aligned_alloc(64, (size_t)(4 * V * C + 64) / 64 * 64);
    lathe_status status =
        all != NULL ? lathe_weight_read(store, row->init_from, all)
                    : lathe_error(LATHE_E_NOMEM, "no memory for rows of '%s'", source->name);
    for (int32_t k = 0; k < row->tokens.n && status == LATHE_OK; k++)
        memcpy(out + k * C, all + row->tokens.ids[k] * C, (size_t)C * sizeof *out);
    free(all);
    return status;
}

lathe_status lathe_token_rows_fill(const lathe_store *store, int32_t param)
{
    const lathe_params *params = store->params;
    const lathe_param *row = params->rows[param];
    float *values = calloc((size_t)lathe_desc_count(&row->desc), sizeof *values);
    if (values == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for '%s'", row->name);
    lathe_status status = LATHE_OK;
    if (row->init == LATHE_INIT_TOKEN_ROWS)
        status = fill_rows(store, param, values);
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
