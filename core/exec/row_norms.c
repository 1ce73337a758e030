/* Computes parameters that begin with the row norms of a weight. */
#include "exec/row_norms.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/parallel.h"
#include "exec/store_io.h"
#include "io/convert.h"
#include "lathe/quant.h"
#include "plug/instance.h"

/* A weight in host memory. */
typedef struct weight {
    int64_t rows, cols;
    int32_t dtype; /* of values */
    void *values;  /* [rows, cols] as computation reads them */
    float *norms;  /* [rows] */
} weight;

static void *room(int64_t bytes)
{
    return aligned_alloc(64, (size_t)(bytes + 64) / 64 * 64);
}

/* Copies the planes of a quantized row into host memory, one after the other. */
static lathe_status get_planes(const lathe_store *store, int32_t param, void *const *planes)
{
    const lathe_param *row = store->params->rows[param];
    for (int32_t k = 0; k < row->n_planes; k++) {
        if (!planes[k])
            return lathe_error(LATHE_E_NOMEM, "no memory to decode '%s'", row->name);
        LATHE_TRY(lathe_store_get(store, planes[k], lathe_store_plane(store, param, k),
                                  lathe_desc_bytes(&row->planes[k].desc)));
    }
    return LATHE_OK;
}

static lathe_status decode(const lathe_store *store, int32_t param, const weight *w)
{
    const lathe_param *row = store->params->rows[param];
    const lathe_quant_v1 *table = row->format->table;
    void *self = row->format->self, *planes[LATHE_MAX_PLANES] = {NULL};
    for (int32_t k = 0; k < row->n_planes; k++)
        planes[k] = room(lathe_desc_bytes(&row->planes[k].desc));
    const int64_t bytes =
        LATHE_HAS(table, decode_scratch) ? table->decode_scratch(self, w->rows, w->cols) : 0;
    void *scratch = bytes > 0 ? room(bytes) : NULL;
    lathe_status status = get_planes(store, param, planes);
    if (status == LATHE_OK && bytes > 0 && !scratch)
        status = lathe_error(LATHE_E_NOMEM, "no memory to decode '%s'", row->name);
    if (status == LATHE_OK)
        status = table->decode(self, w->rows, w->cols, (const void *const *)planes, w->values,
                               w->dtype, scratch, NULL);
    for (int32_t k = 0; k < row->n_planes; k++)
        free(planes[k]);
    free(scratch);
    return status;
}

static void norm_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const weight *w = arg;
    const int64_t stride = w->cols * lathe_dtype_bytes(w->dtype);
    (void)worker;
    for (int64_t o = begin; o < end; o++) {
        double sum = 0.0;
        for (int64_t i = 0; i < w->cols; i++) {
            const char *at = (const char *)w->values + o * stride;
            const float x = w->dtype == LATHE_F32 ? ((const float *)(const void *)at)[i]
                            : w->dtype == LATHE_BF16
                                ? lathe_bf16_to_f32(((const uint16_t *)(const void *)at)[i])
                                : lathe_f16_to_f32(((const uint16_t *)(const void *)at)[i]);
            sum += (double)x * (double)x;
        }
        w->norms[o] = (float)sqrt(sum);
    }
}

lathe_status lathe_row_norms_fill(const lathe_store *store, int32_t param)
{
    const lathe_params *params = store->params;
    const int32_t from = params->rows[param]->init_from;
    const lathe_param *source = params->rows[from];
    weight w = {.rows = source->desc.dims[0],
                .cols = source->desc.dims[1],
                .dtype = lathe_params_value_dtype(params, from)};
    const int64_t bytes = w.rows * w.cols * lathe_dtype_bytes(w.dtype);
    w.values = room(bytes);
    w.norms = room(w.rows * (int64_t)sizeof *w.norms);
    lathe_status status =
        w.values && w.norms
            ? LATHE_OK
            : lathe_error(LATHE_E_NOMEM, "no memory for the norms of '%s'", source->name);
    if (status == LATHE_OK)
        status = source->format
                     ? decode(store, from, &w)
                     : lathe_store_get(store, w.values, lathe_store_value(store, from), bytes);
    if (status == LATHE_OK) {
        lathe_parallel_for(w.rows, 16, norm_rows, &w);
        status = lathe_store_set(store, param, w.norms);
    }
    free(w.values);
    free(w.norms);
    return status;
}

lathe_status lathe_row_norms_fill_derived(const lathe_store *store)
{
    for (int32_t i = 0; i < store->params->n; i++)
        if (store->params->rows[i]->is_derived)
            LATHE_TRY(lathe_row_norms_fill(store, i));
    return LATHE_OK;
}
