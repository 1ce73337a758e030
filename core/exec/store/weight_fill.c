/* Fills the store's rows: f32 rows become master copies, compute copies or quantized planes. */
#include "exec/store/weight_fill.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/gathered.h"
#include "exec/store/store_io.h"
#include "lathe/quant.h"

/* Host memory of at least `bytes` for one row at a time. */
static lathe_status row_buffer(lathe_weight_fill *fill, const lathe_param *row, int64_t bytes)
{
    if (bytes <= fill->bytes)
        return LATHE_OK;
    float *grown = realloc(fill->buffer, (size_t)bytes);
    if (!grown)
        return lathe_error(LATHE_E_NOMEM, "no memory to read '%s'", row->name);
    fill->buffer = grown;
    fill->bytes = bytes;
    return LATHE_OK;
}

static lathe_status place_row(void *arg, int32_t index, const lathe_param *row, void **out_data,
                              int32_t *out_dtype)
{
    lathe_weight_fill *fill = arg;
    const lathe_store *store = fill->store;
    const int64_t n = lathe_desc_count(&row->desc);
    const int is_divided = !lathe_store_is_whole(store, index, LATHE_OF_PARAMETER) ||
                           lathe_store_is_gathered(store, index);
    void *memory = is_divided ? NULL : lathe_store_master(store, index);
    *out_dtype =
        is_divided && !row->trainable ? lathe_params_value_dtype(fill->params, index) : LATHE_F32;
    if (!memory && !is_divided && !row->format) {
        memory = lathe_store_value(store, index);
        *out_dtype = lathe_params_value_dtype(fill->params, index);
    }
    /* the values are encoded or copied to the device afterwards */
    if (!memory || !store->is_host) {
        LATHE_TRY(row_buffer(fill, row, 4 * n));
        memory = fill->buffer;
    }
    *out_data = memory;
    return LATHE_OK;
}

/* Whether the host may write the planes of a row where they are. */
static int writes_planes(const lathe_store *store, int32_t index)
{
    return store->is_host && store->rows[index].gathered[1].gather < 0;
}

/* The host memory of a row's planes: the store's own, or fill->planes, which planes_done copies to
 * the device, or of which it copies this rank's extents. */
static lathe_status place_planes(void *arg, int32_t index, const lathe_param *row, void **planes)
{
    lathe_weight_fill *fill = arg;
    int64_t at[LATHE_MAX_PLANES + 1] = {0};
    for (int32_t k = 0; k < row->n_planes; k++) {
        at[k + 1] = at[k] + (lathe_desc_bytes(&row->planes[k].desc) + 63) / 64 * 64;
        planes[k] = lathe_store_plane(fill->store, index, k);
    }
    if (writes_planes(fill->store, index))
        return LATHE_OK;
    free(fill->planes);
    fill->planes = aligned_alloc(64, (size_t)at[row->n_planes] + 64);
    if (!fill->planes)
        return lathe_error(LATHE_E_NOMEM, "no memory for the planes of '%s'", row->name);
    memset(fill->planes, 0, (size_t)at[row->n_planes]);
    for (int32_t k = 0; k < row->n_planes; k++)
        planes[k] = fill->planes + at[k];
    return LATHE_OK;
}

static lathe_status planes_done(void *arg, int32_t index, const lathe_param *row,
                                void *const *planes)
{
    const lathe_weight_fill *fill = arg;
    for (int32_t k = 0; !writes_planes(fill->store, index) && k < row->n_planes; k++)
        LATHE_TRY(lathe_store_put_plane(fill->store, index, k, planes[k]));
    return LATHE_OK;
}

/* Encodes the planes of a row from its f32 values, on the host. */
static lathe_status encode_row(lathe_weight_fill *fill, int32_t index, const lathe_param *row,
                               const float *values)
{
    const lathe_quant_v1 *table = row->format->table;
    void *planes[LATHE_MAX_PLANES] = {NULL};
    LATHE_TRY(place_planes(fill, index, row, planes));
    LATHE_TRY(
        table->encode(row->format->self, row->desc.dims[0], row->desc.dims[1], values, planes));
    return planes_done(fill, index, row, planes);
}

static lathe_status row_done(void *arg, int32_t index, const lathe_param *row, void *data)
{
    lathe_weight_fill *fill = arg;
    if (row->format && row->loftq_steps > 0)
        return lathe_loftq_add(&fill->loftq, fill->store, index, fill->factors_follow, data);
    if (row->format)
        return encode_row(fill, index, row, data);
    if (!row->trainable && lathe_store_is_gathered(fill->store, index))
        return lathe_store_put_value(fill->store, index, data);
    if (lathe_store_master(fill->store, index) ||
        !lathe_store_is_whole(fill->store, index, LATHE_OF_PARAMETER))
        return lathe_store_set(fill->store, index, data);
    if (fill->store->is_host) /* place_row gave the loader this address */
        return LATHE_OK;
    return lathe_store_put_value(fill->store, index, data);
}

static lathe_status note_head(void *arg, int32_t index)
{
    lathe_weight_fill *fill = arg;
    if (fill->n_new == LATHE_MAX_STAGE_HEADS)
        return lathe_error(LATHE_E_STATE, "more than %d heads to initialise",
                           LATHE_MAX_STAGE_HEADS);
    fill->new_heads[fill->n_new++] = index;
    return LATHE_OK;
}

int32_t lathe_weight_fill_is_new(const lathe_weight_fill *fill, int32_t index)
{
    for (int32_t i = 0; i < fill->n_new; i++)
        if (fill->new_heads[i] == index)
            return 1;
    return 0;
}

lathe_weight_sink lathe_weight_fill_sink(lathe_weight_fill *fill)
{
    const lathe_weight_sink sink = {.place = place_row,
                                    .done = row_done,
                                    .new_head = note_head,
                                    .place_planes = place_planes,
                                    .planes_done = planes_done,
                                    .arg = fill};
    return sink;
}

lathe_status lathe_weight_fill_finish(lathe_weight_fill *fill)
{
    return lathe_loftq_finish(fill->loftq);
}

void lathe_weight_fill_fini(lathe_weight_fill *fill)
{
    lathe_loftq_destroy(fill->loftq);
    fill->loftq = NULL;
    free(fill->buffer);
    free(fill->planes);
    fill->planes = NULL;
    fill->buffer = NULL;
    fill->bytes = 0;
}
