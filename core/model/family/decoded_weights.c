/* Decodes the planes of a quantized folder when their weights are read. */
#include "model/family/decoded_weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/safetensors/convert.h"
#include "model/family/tower_names.h"
#include "model/family/weight_planes.h"
#include "model/family/weights.h"

typedef struct decoded decoded;

/* One row with planes: what its tensor's decode() gets. */
typedef struct coded_row {
    decoded *of;
    const lathe_param *row;
} coded_row;

struct decoded {
    lathe_safetensors *set; /* held */
    const lathe_model_config *config;
    lathe_st_tensor *list;
    coded_row *rows;
    int64_t n;
    pthread_mutex_t lock; /* of the members below */
    const lathe_param *last;
    float *values; /* of `last` */
    int64_t capacity;
};

static lathe_status make_room(decoded *d, const lathe_param *row)
{
    const int64_t n = lathe_desc_count(&row->desc);
    d->last = NULL;
    if (n <= d->capacity)
        return LATHE_OK;
    free(d->values);
    d->values = malloc((size_t)n * sizeof *d->values);
    d->capacity = d->values != NULL ? n : 0;
    return d->capacity > 0 ? LATHE_OK
                           : lathe_error(LATHE_E_NOMEM, "no memory to decode '%s'", row->name);
}

/* Brings d->values into the layout of files. */
static lathe_status transpose(decoded *d, const lathe_param *row)
{
    const int64_t n = lathe_desc_count(&row->desc);
    float *values = malloc((size_t)n * sizeof *values);
    if (values == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to transpose '%s'", row->name);
    const lathe_status status = lathe_weights_turn(row, 1, values, LATHE_F32, d->values, LATHE_F32);
    free(d->values);
    d->values = values;
    d->capacity = n;
    return status;
}

static lathe_status decode_row(decoded *d, const lathe_param *row)
{
    LATHE_TRY(make_room(d, row));
    LATHE_TRY(lathe_weight_planes_decode(d->set, d->config, row, d->values));
    if (lathe_weights_is_turned(row))
        LATHE_TRY(transpose(d, row));
    d->last = row;
    return LATHE_OK;
}

/* lathe_st_decode_fn */
static lathe_status decode(const lathe_st_tensor *t, int64_t begin, int64_t n, float *out)
{
    const coded_row *c = t->coding;
    decoded *d = c->of;
    const int64_t cols = t->desc.dims[t->desc.rank - 1];
    (void)pthread_mutex_lock(&d->lock);
    const lathe_status status = d->last == c->row ? LATHE_OK : decode_row(d, c->row);
    if (status == LATHE_OK)
        memcpy(out, d->values + begin * cols, (size_t)(n * cols) * sizeof *out);
    (void)pthread_mutex_unlock(&d->lock);
    return status;
}

static void add_rows(decoded *d, const lathe_params *params)
{
    const lathe_st_tensor *t;
    for (int32_t i = 0; i < params->n; i++) {
        const lathe_param *row = params->rows[i];
        if (!lathe_weights_is_model_row(row))
            continue;
        const lathe_param *coded = row->stored != NULL ? row->stored : row;
        if (coded->planes_on_file) {
            d->rows[d->n] = (coded_row){d, coded};
            d->list[d->n] = (lathe_st_tensor){.name = row->name,
                                              .file = lathe_safetensors_at(d->set, 0)->file,
                                              .desc = lathe_weights_file_desc(row),
                                              .decode = decode,
                                              .coding = &d->rows[d->n]};
            d->list[d->n++].desc.dtype = LATHE_F32;
        } else if ((t = lathe_weights_find(d->set, d->config, row->name)) != NULL) {
            d->list[d->n++] = *t;
        }
    }
}

/* The tensors of other towers lie in the file as they are. */
static void add_carried(decoded *d)
{
    for (int64_t i = 0; i < lathe_safetensors_count(d->set); i++)
        if (lathe_text_tower_carries(d->config, lathe_safetensors_at(d->set, i)->name))
            d->list[d->n++] = *lathe_safetensors_at(d->set, i);
}

/* ---- lathe_st_owner ---- */

static lathe_status check(const void *arg)
{
    return lathe_safetensors_check(((const decoded *)arg)->set);
}

static void close_all(void *arg)
{
    decoded *d = arg;
    lathe_safetensors_close(d->set);
    (void)pthread_mutex_destroy(&d->lock);
    free(d->values);
    free(d->list);
    free(d->rows);
    free(d);
}

lathe_status lathe_decoded_weights_open(const lathe_safetensors *set,
                                        const lathe_model_config *config,
                                        const lathe_params *params, lathe_safetensors **out)
{
    const size_t n = (size_t)params->n + (size_t)lathe_safetensors_count(set) + 1;
    decoded *d = calloc(1, sizeof *d);
    *out = NULL;
    if (d == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to decode weights");
    (void)pthread_mutex_init(&d->lock, NULL);
    d->set = lathe_safetensors_hold(set);
    d->config = config;
    d->list = calloc(n, sizeof *d->list);
    d->rows = calloc(n, sizeof *d->rows);
    lathe_status status = LATHE_OK;
    if (d->list == NULL || d->rows == NULL) {
        status = lathe_error(LATHE_E_NOMEM, "no memory to decode weights");
    } else {
        const lathe_st_owner owner = {d, check, close_all};
        add_rows(d, params);
        add_carried(d);
        status = lathe_safetensors_make(lathe_safetensors_path(set), d->list, d->n, &owner, out);
    }
    if (status != LATHE_OK)
        close_all(d);
    return status;
}
