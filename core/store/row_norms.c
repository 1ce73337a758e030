/* Computes parameters that begin with the row norms of a weight. */
#include "store/row_norms.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/parallel.h"
#include "store/store_io.h"
#include "store/weight_read.h"

/* A weight in host memory. */
typedef struct weight {
    int64_t rows, cols;
    float *values; /* [rows, cols] */
    float *norms;  /* [rows] */
} weight;

static void norm_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const weight *w = arg;
    (void)worker;
    for (int64_t o = begin; o < end; o++) {
        double sum = 0.0;
        for (int64_t i = 0; i < w->cols; i++) {
            const double x = (double)w->values[o * w->cols + i];
            sum += x * x;
        }
        w->norms[o] = (float)sqrt(sum);
    }
}

lathe_status lathe_row_norms_fill(const lathe_store *store, int32_t param)
{
    const int32_t from = store->params->rows[param]->init_from;
    const lathe_param *source = store->params->rows[from];
    weight w = {.rows = source->desc.dims[0], .cols = source->desc.dims[1]};
    /* 64-byte aligned, and a multiple of it: a format may decode into it */
    w.values = aligned_alloc(64, (size_t)(4 * w.rows * w.cols + 64) / 64 * 64);
    w.norms = malloc((size_t)w.rows * sizeof *w.norms);
    lathe_status status =
        w.values && w.norms
            ? lathe_weight_read(store, from, w.values)
            : lathe_error(LATHE_E_NOMEM, "no memory for the norms of '%s'", source->name);
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
        if (store->params->rows[i]->is_derived &&
            store->params->rows[i]->init == LATHE_INIT_ROW_NORMS)
            LATHE_TRY(lathe_row_norms_fill(store, i));
    return LATHE_OK;
}
