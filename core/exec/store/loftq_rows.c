/* Encodes the weights that adapters with LoftQ begin with. */
#include "exec/store/loftq_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "exec/store/gathered.h"
#include "exec/store/singular.h"
#include "exec/store/store_io.h"
#include "exec/store/weight_read.h"
#include "plug/plugin_instance.h"

#define MAX_AT_ONCE 16 /* weights in host memory */

/* A weight under way. */
typedef struct weight {
    int32_t param;
    int64_t rows, cols, r;
    double scale;
    int32_t steps;
    float *w, *target, *rest; /* [rows, cols]: the weight, what is encoded, what that loses */
    float *a, *b;             /* [r, cols], [rows, r] */
    void *planes[LATHE_MAX_PLANES];
    int32_t decomposes, goes_on; /* in this step: whether A and B, the next target are needed */
    lathe_status status;
} weight;

struct lathe_loftq {
    const lathe_store *store;
    weight list[MAX_AT_ONCE];
    int32_t n, at_once, planes_only, is_told;
};

static void *room(int64_t bytes)
{
    return aligned_alloc(64, (size_t)(bytes + 64) / 64 * 64);
}

static void free_weight(weight *f)
{
    free(f->w);
    free(f->target);
    free(f->rest);
    free(f->a);
    free(f->b);
    for (int32_t k = 0; k < LATHE_MAX_PLANES; k++)
        free(f->planes[k]);
    memset(f, 0, sizeof *f);
}

/* A and B of the weight: the rows that the adapter declared. */
static const lathe_param *factor_of(const lathe_params *params, int32_t param, int32_t init)
{
    for (int32_t i = 0; i < params->n; i++)
        if (params->rows[i]->init == init && params->rows[i]->init_from == param)
            return params->rows[i];
    return NULL;
}

static lathe_status make(const lathe_store *store, int32_t param, const float *w, weight *f)
{
    const lathe_param *row = store->params->rows[param];
    const lathe_param *a = factor_of(store->params, param, LATHE_INIT_LOFTQ_A);
    if (!a || !factor_of(store->params, param, LATHE_INIT_LOFTQ_B))
        return lathe_error(LATHE_E_PLUGIN, "the adapter declares one of two factors of '%s'",
                           row->name);
    *f = (weight){.param = param,
                  .rows = row->desc.dims[0],
                  .cols = row->desc.dims[1],
                  .r = a->desc.dims[0],
                  .scale = a->init_scale,
                  .steps = row->loftq_steps};
    const int64_t bytes = f->rows * f->cols * (int64_t)sizeof *f->w;
    int complete = (f->w = room(bytes)) != NULL && (f->rest = room(bytes)) != NULL &&
                   (f->target = room(bytes)) != NULL &&
                   (f->a = room(f->r * f->cols * (int64_t)sizeof *f->a)) != NULL &&
                   (f->b = room(f->rows * f->r * (int64_t)sizeof *f->b)) != NULL;
    for (int32_t k = 0; complete && k < row->n_planes; k++) {
        const int64_t plane_bytes = lathe_desc_bytes(&row->planes[k].desc);
        f->planes[k] = room(plane_bytes);
        complete = f->planes[k] != NULL;
        if (complete)
            memset(f->planes[k], 0, (size_t)plane_bytes);
    }
    if (!complete)
        return lathe_error(LATHE_E_NOMEM, "no memory for the factors of '%s'", row->name);
    memcpy(f->w, w, (size_t)bytes);
    memcpy(f->target, w, (size_t)bytes);
    return LATHE_OK;
}

/* Encodes the target; `rest` is what its decoded form lacks of the weight. */
static lathe_status encode(const lathe_store *store, weight *f)
{
    const lathe_param *row = store->params->rows[f->param];
    const lathe_quant_v1 *table = row->format->table;
    LATHE_TRY(table->encode(row->format->self, f->rows, f->cols, f->target, f->planes));
    if (!f->decomposes)
        return LATHE_OK;
    LATHE_TRY(lathe_planes_decode(row, f->planes, f->rest, LATHE_F32));
    for (int64_t i = 0; i < f->rows * f->cols; i++)
        f->rest[i] = f->w[i] - f->rest[i];
    return LATHE_OK;
}

/* target = w - b a / scale */
static void subtract_factors(weight *f)
{
    const float factor = (float)(1.0 / f->scale);
    memcpy(f->target, f->w, (size_t)(f->rows * f->cols) * sizeof *f->w);
    for (int64_t o = 0; o < f->rows; o++)
        for (int64_t k = 0; k < f->r; k++) {
            const float by = factor * f->b[o * f->r + k];
            for (int64_t i = 0; i < f->cols; i++)
                f->target[o * f->cols + i] -= by * f->a[k * f->cols + i];
        }
}

/* One weight per index. */
static void decompose(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    weight *list = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        weight *f = &list[i];
        if (!f->decomposes)
            continue;
        f->status = lathe_singular_factors(f->rest, f->rows, f->cols, f->r, f->scale, f->a, f->b);
        if (f->status == LATHE_OK && f->goes_on)
            subtract_factors(f);
    }
}

/* One step of all weights; returns whether one of them has further steps. */
static lathe_status step(lathe_loftq *l, int32_t at, int *out_goes_on)
{
    *out_goes_on = 0;
    for (int32_t i = 0; i < l->n; i++) {
        weight *f = &l->list[i];
        f->goes_on = at + 1 < f->steps;
        f->decomposes = at < f->steps && (f->goes_on || !l->planes_only);
        *out_goes_on |= f->goes_on;
        if (at < f->steps)
            LATHE_TRY(encode(l->store, f));
    }
    lathe_parallel_for(l->n, 1, decompose, l->list);
    for (int32_t i = 0; i < l->n; i++)
        if (l->list[i].status != LATHE_OK)
            return lathe_error(l->list[i].status,
                               "the singular vectors of the quantization error of '%s' cannot be "
                               "computed: is it finite?",
                               l->store->params->rows[l->list[i].param]->name);
    return LATHE_OK;
}

/* Writes the planes, and A and B, of one weight. */
static lathe_status store_weight(const lathe_loftq *l, const weight *f)
{
    const lathe_params *params = l->store->params;
    const lathe_param *row = params->rows[f->param];
    for (int32_t k = 0; k < row->n_planes; k++)
        LATHE_TRY(lathe_store_put_plane(l->store, f->param, k, f->planes[k]));
    for (int32_t i = 0; i < params->n && !l->planes_only; i++) {
        const int32_t init = params->rows[i]->init;
        if ((init == LATHE_INIT_LOFTQ_A || init == LATHE_INIT_LOFTQ_B) &&
            params->rows[i]->init_from == f->param)
            LATHE_TRY(lathe_store_set(l->store, i, init == LATHE_INIT_LOFTQ_A ? f->a : f->b));
    }
    return LATHE_OK;
}

/* It takes minutes for models of some size, so the user is told. */
static void say_start(lathe_loftq *l, int32_t steps)
{
    int32_t n = 0;
    for (int32_t i = 0; i < l->store->params->n; i++)
        n += l->store->params->rows[i]->loftq_steps > 0;
    if (!l->is_told && (steps > 1 || !l->planes_only))
        lathe_log(LATHE_LOG_INFO, "LoftQ: encoding %d weights, %d step%s each", n, (int)steps,
                  steps == 1 ? "" : "s");
    l->is_told = 1;
}

lathe_status lathe_loftq_finish(lathe_loftq *l)
{
    int goes_on = l != NULL && l->n > 0;
    lathe_status status = LATHE_OK;
    if (goes_on)
        say_start(l, l->list[0].steps);
    for (int32_t at = 0; goes_on && status == LATHE_OK; at++)
        status = step(l, at, &goes_on);
    for (int32_t i = 0; l && i < l->n; i++) {
        if (status == LATHE_OK)
            status = store_weight(l, &l->list[i]);
        free_weight(&l->list[i]);
    }
    if (l)
        l->n = 0;
    return status;
}

lathe_status lathe_loftq_add(lathe_loftq **io, const lathe_store *store, int32_t param,
                             int32_t planes_only, const float *w)
{
    const int32_t threads = lathe_parallel_threads();
    if (!*io) {
        *io = calloc(1, sizeof **io);
        if (!*io)
            return lathe_error(LATHE_E_NOMEM, "no memory for LoftQ");
        **io = (lathe_loftq){.store = store,
                             .at_once = threads < MAX_AT_ONCE ? threads : MAX_AT_ONCE,
                             .planes_only = planes_only};
    }
    lathe_loftq *l = *io;
    LATHE_TRY(make(store, param, w, &l->list[l->n++]));
    return l->n == l->at_once ? lathe_loftq_finish(l) : LATHE_OK;
}

void lathe_loftq_destroy(lathe_loftq *l)
{
    for (int32_t i = 0; l && i < l->n; i++)
        free_weight(&l->list[i]);
    free(l);
}
