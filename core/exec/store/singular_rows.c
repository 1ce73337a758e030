/* Computes parameters that begin with the singular vectors of a weight. */
#include "exec/store/singular_rows.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "exec/store/singular.h"
#include "exec/store/store_io.h"
#include "exec/store/weight_read.h"

#define MOST_AT_ONCE 16 /* weights in host memory */

/* A weight under way. */
typedef struct factors {
    int32_t from; /* its row */
    int32_t init; /* LATHE_INIT_* of a row that begins with it */
    int64_t rows, cols, r;
    double scale;
    float *w, *a, *b; /* [rows, cols], [r, cols], [rows, r]; MINOR: b alone, of its row's shape */
    lathe_status status;
} factors;

static int is_minor(int32_t init)
{
    return init == LATHE_INIT_MINOR_LEFT || init == LATHE_INIT_MINOR_RIGHT;
}

static void decompose(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    factors *list = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        factors *f = &list[i];
        f->status =
            is_minor(f->init)
                ? lathe_singular_minor(f->w, f->rows, f->cols, f->r,
                                       f->init == LATHE_INIT_MINOR_RIGHT, f->b)
                : lathe_singular_factors(f->w, f->rows, f->cols, f->r, f->scale, f->a, f->b);
    }
}

static int is_wanted(const lathe_param *row, int32_t which)
{
    if (is_minor(row->init))
        return which == LATHE_SINGULAR_ALL;
    return (row->init == LATHE_INIT_SINGULAR_A || row->init == LATHE_INIT_SINGULAR_B) &&
           (row->is_derived || which != LATHE_SINGULAR_DERIVED);
}

/* Whether the row begins with these vectors: those of one weight may be wanted in several ways. */
static int is_of(const lathe_param *row, const factors *f)
{
    return row->init_from == f->from &&
           (is_minor(row->init) ? row->init == f->init : !is_minor(f->init)) &&
           row->desc.dims[row->init != LATHE_INIT_SINGULAR_A] == f->r;
}

static void *room(int64_t elements)
{
    return aligned_alloc(64, (size_t)(4 * elements + 64) / 64 * 64);
}

static lathe_status read_weight(const lathe_store *store, const lathe_param *row, factors *f)
{
    const lathe_param *source = store->params->rows[row->init_from];
    *f = (factors){.from = row->init_from,
                   .init = row->init,
                   .rows = source->desc.dims[0],
                   .cols = source->desc.dims[1],
                   .r = row->desc.dims[row->init == LATHE_INIT_SINGULAR_A ? 0 : 1],
                   .scale = row->init_scale};
    f->w = room(f->rows * f->cols);
    f->a = room(f->r * f->cols);
    f->b = room((row->init == LATHE_INIT_MINOR_RIGHT ? f->cols : f->rows) * f->r);
    if (!f->w || !f->a || !f->b)
        return lathe_error(LATHE_E_NOMEM, "no memory for the singular vectors of '%s'",
                           source->name);
    return lathe_weight_read(store, f->from, f->w);
}

static lathe_status write_rows(const lathe_store *store, const factors *f, int32_t which)
{
    if (f->status == LATHE_E_CONFIG)
        return lathe_error(f->status,
                           "'%s' has fewer singular values above 0 than its shorter side has "
                           "elements, so its last %lld singular vectors are not determined: take "
                           "its module out of the adapter's targets, or use another init",
                           store->params->rows[f->from]->name, (long long)f->r);
    if (f->status != LATHE_OK)
        return lathe_error(f->status,
                           "the singular vectors of '%s' cannot be computed: is it "
                           "finite?",
                           store->params->rows[f->from]->name);
    for (int32_t i = 0; i < store->params->n; i++) {
        const lathe_param *row = store->params->rows[i];
        if (is_wanted(row, which) && is_of(row, f))
            LATHE_TRY(lathe_store_set(store, i, row->init == LATHE_INIT_SINGULAR_A ? f->a : f->b));
    }
    return LATHE_OK;
}

/* Decomposes the weights of `list`, sets their rows and frees them. */
static lathe_status finish(const lathe_store *store, factors *list, int32_t n, lathe_status status,
                           int32_t which)
{
    if (status == LATHE_OK)
        lathe_parallel_for(n, 1, decompose, list);
    for (int32_t i = 0; i < n; i++) {
        if (status == LATHE_OK)
            status = write_rows(store, &list[i], which);
        free(list[i].w);
        free(list[i].a);
        free(list[i].b);
    }
    return status;
}

/* It takes a minute or more for models of some size, so the user is told. */
static void say_start(const lathe_params *params, int32_t which)
{
    int32_t n = 0, last = -1;
    for (int32_t i = 0; i < params->n; i++) {
        const lathe_param *row = params->rows[i];
        if (!is_wanted(row, which) || row->init_from == last)
            continue;
        last = row->init_from;
        n++;
    }
    if (n > 0)
        lathe_log(LATHE_LOG_INFO, "computing the singular vectors of %d weights", n);
}

lathe_status lathe_singular_rows_fill(const lathe_store *store, int32_t which)
{
    const lathe_params *params = store->params;
    const int32_t threads = lathe_parallel_threads();
    const int32_t at_once = threads < MOST_AT_ONCE ? threads : MOST_AT_ONCE;
    factors list[MOST_AT_ONCE];
    int32_t n = 0, last = -1;
    lathe_status status = LATHE_OK;
    say_start(params, which);
    for (int32_t i = 0; i < params->n && status == LATHE_OK; i++) {
        const lathe_param *row = params->rows[i];
        if (!is_wanted(row, which) || row->init_from == last)
            continue; /* the rows of a weight follow one another */
        last = row->init_from;
        status = read_weight(store, row, &list[n++]);
        if (n == at_once || status != LATHE_OK) {
            status = finish(store, list, n, status, which);
            n = 0;
        }
    }
    return n > 0 ? finish(store, list, n, status, which) : status;
}
