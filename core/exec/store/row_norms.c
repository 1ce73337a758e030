/* Computes parameters that begin with the norms of a weight's rows or columns. */
#include "exec/store/row_norms.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/parallel.h"
#include "exec/store/store_io.h"
#include "exec/store/weight_read.h"

enum { COLUMNS = 64 }; /* summed at a time */

/* A weight in host memory. */
typedef struct weight {
    int64_t rows, cols;
    float *values; /* [rows, cols] */
    float *norms;  /* [rows], or [cols] */
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

/* Adds row by row, so that the weight is read in its order. */
static void norm_columns(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const weight *w = arg;
    (void)worker;
    for (int64_t from = begin; from < end; from += COLUMNS) {
        const int64_t n = end - from < COLUMNS ? end - from : COLUMNS;
        double sums[COLUMNS] = {0.0};
        for (int64_t o = 0; o < w->rows; o++)
            for (int64_t i = 0; i < n; i++) {
                const double x = (double)w->values[o * w->cols + from + i];
                sums[i] += x * x;
            }
        for (int64_t i = 0; i < n; i++)
            w->norms[from + i] = (float)sqrt(sums[i]);
    }
}

lathe_status lathe_row_norms_fill(const lathe_store *store, int32_t param)
{
    const int32_t from = store->params->rows[param]->init_from;
    const lathe_param *source = store->params->rows[from];
    const int of_rows = store->params->rows[param]->init == LATHE_INIT_ROW_NORMS;
    weight w = {.rows = source->desc.dims[0], .cols = source->desc.dims[1]};
    const int64_t n = of_rows ? w.rows : w.cols;
    /* 64-byte aligned, and a multiple of it: a format may decode into it */
    w.values = aligned_alloc(64, (size_t)(4 * w.rows * w.cols + 64) / 64 * 64);
    w.norms = malloc((size_t)n * sizeof *w.norms);
    lathe_status status =
        w.values && w.norms
            ? lathe_weight_read(store, from, w.values)
            : lathe_error(LATHE_E_NOMEM, "no memory for the norms of '%s'", source->name);
    if (status == LATHE_OK) {
        lathe_parallel_for(n, of_rows ? 16 : COLUMNS, of_rows ? norm_rows : norm_columns, &w);
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
            (store->params->rows[i]->init == LATHE_INIT_ROW_NORMS ||
             store->params->rows[i]->init == LATHE_INIT_COLUMN_NORMS))
            LATHE_TRY(lathe_row_norms_fill(store, i));
    return LATHE_OK;
}
