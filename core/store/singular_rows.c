/* Computes parameters that begin with the singular vectors of a weight. */
#include "store/singular_rows.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/singular.h"
#include "store/store_io.h"
#include "store/weight_read.h"

#define MOST_AT_ONCE 16 /* weights in host memory */

/* A weight under way. */
typedef struct factors {
    int32_t from; /* its row */
    int64_t rows, cols, r;
    double scale;
    float *w, *a, *b; /* [rows, cols], [r, cols], [rows, r] */
    lathe_status status;
} factors;

static void decompose(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    factors *list = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        factors *f = &list[i];
        f->status = lathe_singular_factors(f->w, f->rows, f->cols, f->r, f->scale, f->a, f->b);
    }
}

static int is_wanted(const lathe_param *row, int32_t derived_only)
{
    return (row->init == LATHE_INIT_SINGULAR_A || row->init == LATHE_INIT_SINGULAR_B) &&
           (row->is_derived || !derived_only);
}

static void *room(int64_t elements)
{
    return aligned_alloc(64, (size_t)(4 * elements + 64) / 64 * 64);
}

static lathe_status read_weight(const lathe_store *store, const lathe_param *row, factors *f)
{
    const lathe_param *source = store->params->rows[row->init_from];
    *f = (factors){.from = row->init_from,
                   .rows = source->desc.dims[0],
                   .cols = source->desc.dims[1],
                   .r = row->desc.dims[row->init == LATHE_INIT_SINGULAR_A ? 0 : 1],
                   .scale = row->init_scale};
    f->w = room(f->rows * f->cols);
    f->a = room(f->r * f->cols);
    f->b = room(f->rows * f->r);
    if (!f->w || !f->a || !f->b)
        return lathe_error(LATHE_E_NOMEM, "no memory for the singular vectors of '%s'",
                           source->name);
    return lathe_weight_read(store, f->from, f->w);
}

static lathe_status write_rows(const lathe_store *store, const factors *f, int32_t derived_only)
{
    if (f->status != LATHE_OK)
        return lathe_error(f->status,
                           "the singular vectors of '%s' cannot be computed: is it "
                           "finite?",
                           store->params->rows[f->from]->name);
    for (int32_t i = 0; i < store->params->n; i++) {
        const lathe_param *row = store->params->rows[i];
        if (is_wanted(row, derived_only) && row->init_from == f->from)
            LATHE_TRY(lathe_store_set(store, i, row->init == LATHE_INIT_SINGULAR_A ? f->a : f->b));
    }
    return LATHE_OK;
}

/* Decomposes the weights of `list`, sets their rows and frees them. */
static lathe_status finish(const lathe_store *store, factors *list, int32_t n, lathe_status status,
                           int32_t derived_only)
{
    if (status == LATHE_OK)
        lathe_parallel_for(n, 1, decompose, list);
    for (int32_t i = 0; i < n; i++) {
        if (status == LATHE_OK)
            status = write_rows(store, &list[i], derived_only);
        free(list[i].w);
        free(list[i].a);
        free(list[i].b);
    }
    return status;
}

/* It takes a minute or more for models of some size, so the user is told. */
static void say_start(const lathe_params *params, int32_t derived_only)
{
    int32_t n = 0, last = -1;
    for (int32_t i = 0; i < params->n; i++) {
        const lathe_param *row = params->rows[i];
        if (!is_wanted(row, derived_only) || row->init_from == last)
            continue;
        last = row->init_from;
        n++;
    }
    if (n > 0)
        lathe_log(LATHE_LOG_INFO, "computing the singular vectors of %d weights", n);
}

lathe_status lathe_singular_rows_fill(const lathe_store *store, int32_t derived_only)
{
    const lathe_params *params = store->params;
    const int32_t threads = lathe_parallel_threads();
    const int32_t at_once = threads < MOST_AT_ONCE ? threads : MOST_AT_ONCE;
    factors list[MOST_AT_ONCE];
    int32_t n = 0, last = -1;
    lathe_status status = LATHE_OK;
    say_start(params, derived_only);
    for (int32_t i = 0; i < params->n && status == LATHE_OK; i++) {
        const lathe_param *row = params->rows[i];
        if (!is_wanted(row, derived_only) || row->init_from == last)
            continue; /* the rows of a weight follow one another */
        last = row->init_from;
        status = read_weight(store, row, &list[n++]);
        if (n == at_once || status != LATHE_OK) {
            status = finish(store, list, n, status, derived_only);
            n = 0;
        }
    }
    return n > 0 ? finish(store, list, n, status, derived_only) : status;
}
