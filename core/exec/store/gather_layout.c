/* Divides values among ranks, and lays them out. */
#include "exec/store/gather_layout.h"

#include <stdlib.h>

#include "base/error.h"

enum {
    EACH = LATHE_GATHER_TENSORS,
    UNIT = 64 /* bytes between places where frozen tensors may be cut */
};

/* Families of memory of frozen tensors. */
enum { MASTERS, SHADOWS, OTHERS, PLANES, OTHER_PLANES, N_FAMILIES };

/* ---- what is divided ---- */

int lathe_is_divided_value(const lathe_params *params, int32_t shard, int32_t param)
{
    const lathe_param *p = params->rows[param];
    if (!p->trainable && (p->is_derived || p->is_fixed)) /* small, with a master and a copy */
        return 0;
    return shard >= LATHE_SHARD_PARAMETERS && p->desc.rank >= 2 && lathe_desc_count(&p->desc) > 0;
}

static int64_t value_width(const lathe_store *store, int32_t param)
{
    return lathe_dtype_bytes(lathe_params_value_dtype(store->params, param));
}

static int32_t family_of(const lathe_store *store, int32_t param, int32_t tensor)
{
    const lathe_param *p = store->params->rows[param];
    if (tensor > 0)
        return p->other ? OTHER_PLANES : PLANES;
    return p->other ? OTHERS : lathe_params_has_shadow(store->params, param) ? SHADOWS : MASTERS;
}

/* The total of a family, which a layout adds to. */
static int64_t *total_of(lathe_store *store, int32_t family)
{
    int64_t *const totals[N_FAMILIES] = {&store->master_bytes, &store->shadow_bytes,
                                         &store->other_bytes, &store->plane_bytes,
                                         &store->other_bytes};
    return totals[family];
}

static int64_t *place_of(lathe_store_row *row, int32_t family, int32_t tensor)
{
    int64_t *const places[N_FAMILIES] = {&row->master, &row->shadow, &row->other,
                                         &row->plane[tensor > 0 ? tensor - 1 : 0],
                                         &row->plane[tensor > 0 ? tensor - 1 : 0]};
    return places[family];
}

/* Bytes of a frozen tensor: of the values (tensor 0), or of plane tensor - 1. */
static int64_t tensor_bytes(const lathe_store *store, int32_t param, int32_t tensor)
{
    const lathe_param *p = store->params->rows[param];
    return tensor > 0 ? lathe_desc_bytes(&p->planes[tensor - 1].desc)
                      : lathe_desc_count(&p->desc) * value_width(store, param);
}

/* Lists the frozen tensors that ranks divide. out: [n_rows * EACH]. Returns their number. */
static int32_t list_frozen(const lathe_store *store, int32_t shard, lathe_division_row *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < store->n_rows; i++) {
        const lathe_param *p = store->params->rows[i];
        const int32_t first = p->format ? 1 : 0, last = p->format ? p->n_planes : 0;
        if (p->trainable || !lathe_is_divided_value(store->params, shard, i))
            continue;
        for (int32_t k = first; k <= last; k++) {
            const int64_t bytes = tensor_bytes(store, i, k);
            if (bytes > 0)
                out[n++] = (lathe_division_row){.row = i * EACH + k,
                                                .family = family_of(store, i, k),
                                                .n = bytes,
                                                .unit = UNIT,
                                                .cost = 1.0,
                                                .bytes = bytes};
        }
    }
    return n;
}

static lathe_status divide_frozen(const lathe_store *store, const lathe_division_ask *ask,
                                  lathe_division **out)
{
    lathe_division_row *rows = calloc((size_t)store->n_rows * EACH + 1, sizeof *rows);
    if (!rows)
        return lathe_error(LATHE_E_NOMEM, "no memory to divide %d parameters", store->n_rows);
    const int32_t n = list_frozen(store, ask->shard, rows);
    const lathe_status status = lathe_division_make(ask, rows, n, store->n_rows * EACH, out);
    free(rows);
    return status;
}

/* ---- gathers ---- */

/* Notes a frozen tensor's extent. */
static void hold_frozen(lathe_store *store, const lathe_division *d, int32_t tensor)
{
    lathe_store_row *row = &store->rows[tensor / EACH];
    const lathe_extent own = lathe_division_of(d, tensor, d->rank);
    if (tensor % EACH > 0) {
        row->held_plane[tensor % EACH - 1] = own;
        return;
    }
    const int64_t width = value_width(store, tensor / EACH);
    /* A dtype has bytes. NOLINTNEXTLINE(clang-analyzer-core.DivideZero) */
    row->held[LATHE_OF_VALUE] = (lathe_extent){own.begin / width, own.n / width};
    if (family_of(store, tensor / EACH, 0) == MASTERS)
        row->held[LATHE_OF_PARAMETER] = row->held[LATHE_OF_VALUE];
}

static void hold_trained(lathe_store *store, int32_t param)
{
    lathe_store_row *row = &store->rows[param];
    row->held[LATHE_OF_VALUE] = row->held[LATHE_OF_PARAMETER] = row->held[LATHE_OF_STATE];
}

/* Adds bucket b of a division, whose elements are `width` bytes. */
static void add(lathe_store *store, const lathe_division *d, int32_t b, int32_t is_frozen,
                int32_t dtype)
{
    lathe_gathers *x = store->gathers;
    const lathe_bucket *bucket = &d->buckets[b];
    const int64_t width = lathe_dtype_bytes(dtype);
    int64_t at = 0;
    for (int32_t k = bucket->first; k < bucket->first + bucket->n; k++) {
        const int32_t tensor = d->rows[k];
        lathe_store_row *row = &store->rows[is_frozen ? tensor / EACH : tensor];
        if (is_frozen)
            hold_frozen(store, d, tensor);
        else
            hold_trained(store, tensor);
        row->gathered[is_frozen ? tensor % EACH : 0] = (lathe_gathered){x->n, 0, at};
        at += lathe_padded(d->n[tensor], width);
    }
    x->list[x->n++] = (lathe_gather){
        .bucket = b, .is_frozen = is_frozen, .dtype = dtype, .width = (int32_t)width, .bytes = at};
    x->most_bytes = at > x->most_bytes ? at : x->most_bytes;
}

static void add_all(lathe_store *store, int32_t shard)
{
    const lathe_division *d = store->division;
    for (int32_t b = 0; b < d->n_buckets; b++) {
        const int32_t row = d->rows[d->buckets[b].first];
        if (lathe_is_divided_value(store->params, shard, row))
            add(store, d, b, 0, lathe_params_value_dtype(store->params, row));
    }
    d = store->gathers->frozen;
    for (int32_t b = 0; b < d->n_buckets; b++)
        add(store, d, b, 1, LATHE_U8);
    for (int32_t i = 0; i < store->n_rows; i++)
        if (!store->params->rows[i]->format && store->rows[i].gathered[0].gather < 0)
            store->gathers->whole_bytes += tensor_bytes(store, i, 0);
}

lathe_status lathe_gathers_create(lathe_store *store, const lathe_division_ask *ask)
{
    lathe_gathers *x = calloc(1, sizeof *x);
    store->gathers = x;
    if (!x)
        return lathe_error(LATHE_E_NOMEM, "no memory for the gathers of parameters");
    LATHE_TRY(divide_frozen(store, ask, &x->frozen));
    const size_t n = (size_t)x->frozen->n_buckets + (size_t)store->division->n_buckets;
    x->list = calloc(n + 1, sizeof *x->list);
    x->checks = calloc((size_t)store->n_rows + 1, sizeof *x->checks);
    if (!x->list || !x->checks)
        return lathe_error(LATHE_E_NOMEM, "no memory for the gathers of parameters");
    add_all(store, ask->shard);
    store->gathered_bytes = x->most_bytes;
    return LATHE_OK;
}

void lathe_gathers_destroy(lathe_gathers *x)
{
    if (!x)
        return;
    lathe_division_destroy(x->frozen);
    free(x->list);
    free(x->checks);
    free(x);
}

const lathe_division *lathe_gather_division(const lathe_store *store, const lathe_gather *g)
{
    return g->is_frozen ? store->gathers->frozen : store->division;
}

/* ---- memory ---- */

/* This rank's extents of a bucket lie one after the other, as in the bucket. */
static void layout_gather(lathe_store *store, const lathe_gather *g)
{
    const lathe_division *d = lathe_gather_division(store, g);
    const lathe_bucket *b = &d->buckets[g->bucket];
    const lathe_extent own = lathe_bucket_extent(d, g->bucket, g->width, d->rank);
    const int32_t each = g->is_frozen ? EACH : 1, first = d->rows[b->first];
    const int32_t family = family_of(store, first / each, first % each);
    int64_t *total = total_of(store, family);
    const int64_t base = *total;
    *total += lathe_padded(own.n, g->width);
    for (int32_t k = b->first; k < b->first + b->n; k++) {
        const int32_t param = d->rows[k] / each, tensor = d->rows[k] % each;
        const lathe_extent held = lathe_division_of(d, d->rows[k], d->rank);
        if (held.n > 0)
            *place_of(&store->rows[param], family, tensor) =
                base + store->rows[param].gathered[tensor].at + (held.begin - own.begin) * g->width;
    }
}

void lathe_gathers_layout(lathe_store *store)
{
    for (int32_t g = 0; g < store->gathers->n; g++)
        layout_gather(store, &store->gathers->list[g]);
}
