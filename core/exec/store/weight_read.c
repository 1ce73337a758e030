/* Reads a weight of the store as computation reads it. */
#include "exec/store/weight_read.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/gathered.h"
#include "exec/store/store_io.h"
#include "files/safetensors/convert.h"
#include "lathe/quant.h"
#include "plug/plugin_instance.h"

static void *room(int64_t bytes)
{
    return aligned_alloc(64, (size_t)(bytes + 64) / 64 * 64);
}

/* Copies the planes of a quantized row into host memory, one after the other. */
static lathe_status get_planes(const lathe_store *store, int32_t param, void *const *planes)
{
    const lathe_param *row = store->params->rows[param];
    for (int32_t k = 0; k < row->n_planes; k++) {
        const void *whole = NULL;
        if (!planes[k])
            return lathe_error(LATHE_E_NOMEM, "no memory to decode '%s'", row->name);
        LATHE_TRY(lathe_store_whole(store, param, k, &whole));
        LATHE_TRY(lathe_store_get(store, planes[k], whole, lathe_desc_bytes(&row->planes[k].desc)));
    }
    return LATHE_OK;
}

lathe_status lathe_planes_decode(const lathe_param *row, void *const *planes, void *out,
                                 int32_t dtype)
{
    const lathe_quant_v1 *table = row->format->table;
    const int64_t rows = row->desc.dims[0], cols = row->desc.dims[1];
    void *self = row->format->self;
    const int64_t bytes =
        LATHE_HAS(table, decode_scratch) ? table->decode_scratch(self, rows, cols) : 0;
    void *scratch = bytes > 0 ? room(bytes) : NULL;
    if (bytes > 0 && !scratch)
        return lathe_error(LATHE_E_NOMEM, "no memory to decode '%s'", row->name);
    const lathe_status status =
        table->decode(self, rows, cols, (const void *const *)planes, out, dtype, scratch, NULL);
    free(scratch);
    return status;
}

static lathe_status decode(const lathe_store *store, int32_t param, void *out, int32_t dtype)
{
    const lathe_param *row = store->params->rows[param];
    void *planes[LATHE_MAX_PLANES] = {NULL};
    for (int32_t k = 0; k < row->n_planes; k++)
        planes[k] = room(lathe_desc_bytes(&row->planes[k].desc));
    lathe_status status = get_planes(store, param, planes);
    if (status == LATHE_OK)
        status = lathe_planes_decode(row, planes, out, dtype);
    for (int32_t k = 0; k < row->n_planes; k++)
        free(planes[k]);
    return status;
}

lathe_status lathe_weight_decode(const lathe_store *store, int32_t param, float *out)
{
    return decode(store, param, out, LATHE_F32);
}

static lathe_status get_values(const lathe_store *store, int32_t param, void *out, int32_t dtype)
{
    const lathe_param *row = store->params->rows[param];
    const void *whole = NULL;
    if (row->format)
        return decode(store, param, out, dtype);
    LATHE_TRY(lathe_store_whole(store, param, -1, &whole));
    return lathe_store_get(store, out, whole,
                           lathe_desc_count(&row->desc) * lathe_dtype_bytes(dtype));
}

lathe_status lathe_weight_read(const lathe_store *store, int32_t param, float *out)
{
    const lathe_param *row = store->params->rows[param];
    const int32_t dtype = lathe_params_value_dtype(store->params, param);
    const int64_t n = lathe_desc_count(&row->desc);
    if (dtype == LATHE_F32)
        return get_values(store, param, out, dtype);
    void *narrow = room(n * lathe_dtype_bytes(dtype));
    if (!narrow)
        return lathe_error(LATHE_E_NOMEM, "no memory to read '%s'", row->name);
    lathe_status status = get_values(store, param, narrow, dtype);
    if (status == LATHE_OK)
        status = lathe_convert(out, LATHE_F32, narrow, dtype, n);
    free(narrow);
    return status;
}

/* Some rows of a quantized matrix: it is decoded as a whole. */
static lathe_status decode_rows(const lathe_store *store, int32_t param, const int32_t *rows,
                                int64_t n, float *out)
{
    const lathe_desc *desc = &store->params->rows[param]->desc;
    float *all = room(4 * lathe_desc_count(desc));
    lathe_status status = all ? lathe_weight_read(store, param, all)
                              : lathe_error(LATHE_E_NOMEM, "no memory to decode '%s'",
                                            store->params->rows[param]->name);
    for (int64_t k = 0; k < n && status == LATHE_OK; k++)
        memcpy(out + k * desc->dims[1], all + rows[k] * desc->dims[1],
               (size_t)desc->dims[1] * sizeof *out);
    free(all);
    return status;
}

lathe_status lathe_weight_read_rows(const lathe_store *store, int32_t param, const int32_t *rows,
                                    int64_t n, float *out)
{
    const lathe_param *row = store->params->rows[param];
    const int32_t dtype = lathe_params_value_dtype(store->params, param);
    const int64_t cols = row->desc.dims[1], bytes = cols * lathe_dtype_bytes(dtype);
    const void *whole = NULL;
    if (row->format)
        return decode_rows(store, param, rows, n, out);
    void *narrow = room(bytes);
    lathe_status status =
        narrow ? lathe_store_whole(store, param, -1, &whole)
               : lathe_error(LATHE_E_NOMEM, "no memory to read rows of '%s'", row->name);
    for (int64_t k = 0; k < n && status == LATHE_OK; k++) {
        status = lathe_store_get(store, narrow, (const char *)whole + rows[k] * bytes, bytes);
        if (status == LATHE_OK)
            status = lathe_convert(out + k * cols, LATHE_F32, narrow, dtype, cols);
    }
    free(narrow);
    return status;
}
