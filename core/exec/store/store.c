/* Lays out and allocates the memory of the parameters. */
#include "exec/store/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/cut_unit.h"
#include "exec/store/gather_layout.h"
#include "plug/answers.h"

static int64_t take(int64_t *total, int64_t bytes)
{
    const int64_t at = *total;
    *total += (bytes + 63) / 64 * 64;
    return at;
}

/* ---- layout ---- */

static lathe_status ask_slots(lathe_store *store, int32_t i, const lathe_instance *optimizer)
{
    lathe_store_row *row = &store->rows[i];
    const lathe_param_info info = lathe_params_info(store->params, i);
    LATHE_TRY(lathe_answer_slots(optimizer, &info, row->slots, &row->n_slots, &row->partition));
    row->unit = lathe_cut_unit(optimizer, &info, row->partition, row->slots, row->n_slots);
    return LATHE_OK;
}

/* Lays out the gradients of one dtype, of the parameters of step() or of the others. */
static void layout_grads_of(lathe_store *store, int32_t is_wide, int32_t is_matrix)
{
    for (int32_t i = 0; i < store->n_rows; i++) {
        lathe_store_row *row = &store->rows[i];
        const lathe_param *p = store->params->rows[i];
        const int32_t dtype = lathe_params_grad_dtype(store->params, i);
        if (p->trainable && (dtype == LATHE_F32) == is_wide &&
            (row->partition == LATHE_PARTITION_MATRIX) == is_matrix)
            row->grad =
                take(&store->grad_bytes, lathe_dtype_bytes(dtype) * lathe_desc_count(&p->desc));
    }
}

static void layout_grads(lathe_store *store)
{
    layout_grads_of(store, 1, 0);
    layout_grads_of(store, 1, 1);
    store->wide_grad_bytes = store->grad_bytes;
    layout_grads_of(store, 0, 0);
    layout_grads_of(store, 0, 1);
}

/* Bucket by bucket: families of f32 gradients come first. A rank that holds only its extents has
 * them in the order of the bucket, with its padding. */
static void layout_bucket_grads(lathe_store *store, int32_t b)
{
    const lathe_division *d = store->division;
    const int64_t width = lathe_store_bucket_width(store, b);
    const lathe_extent in_bucket = lathe_bucket_extent(d, b, width, d->rank);
    const int is_divided = d->shard >= LATHE_SHARD_GRADIENTS;
    const int64_t n = is_divided ? in_bucket.n : lathe_bucket_counts(d, b, width, NULL);
    const int64_t base = take(&store->grad_bytes, n * width);
    int64_t at = is_divided ? -in_bucket.begin * width : 0; /* bytes */
    for (int32_t k = d->buckets[b].first; k < d->buckets[b].first + d->buckets[b].n; k++) {
        lathe_store_row *row = &store->rows[d->rows[k]];
        if (is_divided)
            row->held[LATHE_OF_GRADIENT] = row->held[LATHE_OF_STATE];
        if (row->held[LATHE_OF_GRADIENT].n > 0)
            row->grad = base + at + row->held[LATHE_OF_GRADIENT].begin * width;
        at += lathe_padded(d->n[d->rows[k]], width);
    }
}

static void layout_divided_grads(lathe_store *store)
{
    const lathe_division *d = store->division;
    for (int32_t b = 0; b < d->n_buckets; b++) {
        const int32_t row = d->rows[d->buckets[b].first];
        layout_bucket_grads(store, b);
        if (lathe_params_grad_dtype(store->params, row) == LATHE_F32)
            store->wide_grad_bytes = store->grad_bytes;
    }
}

static void layout_slots(lathe_store *store, int32_t i)
{
    lathe_store_row *row = &store->rows[i];
    for (int32_t k = 0; k < row->n_slots; k++) {
        const int64_t bytes = lathe_store_slot_held(store, i, k);
        if (row->held[LATHE_OF_STATE].n > 0 || !store->division)
            row->slot[k] = take(&store->slot_bytes, bytes);
    }
}

/* Lays out the values of a row, except those that are in a gather (gathered.h). */
static void layout_values(lathe_store *store, int32_t i)
{
    lathe_store_row *row = &store->rows[i];
    const lathe_params *params = store->params;
    const lathe_param *p = params->rows[i];
    const int64_t n = lathe_desc_count(&p->desc), n_held = row->held[LATHE_OF_PARAMETER].n;
    const int64_t width = lathe_dtype_bytes(lathe_params_value_dtype(params, i));
    const int has_shadow = lathe_params_has_shadow(params, i);
    const int is_gathered = row->gathered[0].gather >= 0;
    if (lathe_params_has_master(params, i) && (n_held > 0 || n == 0) &&
        (has_shadow || !is_gathered))
        row->master = take(&store->master_bytes, 4 * n_held);
    if (has_shadow && !is_gathered)
        row->shadow = take(&store->shadow_bytes, n * width);
    if (p->other && !p->format && !is_gathered)
        row->other = take(&store->other_bytes, n * width);
    for (int32_t k = 0; p->format && k < p->n_planes; k++)
        if (row->gathered[1 + k].gather < 0)
            row->plane[k] = take(p->other ? &store->other_bytes : &store->plane_bytes,
                                 lathe_desc_bytes(&p->planes[k].desc));
}

/* Makes the rows, which hold everything, with the optimizer's answers. */
static lathe_status init_rows(lathe_store *store, lathe_params *params,
                              const lathe_instance *optimizer)
{
    memset(store, 0, sizeof *store);
    store->params = params;
    store->n_rows = params->n;
    store->rows = calloc((size_t)params->n + 1, sizeof *store->rows);
    if (!store->rows)
        return lathe_error(LATHE_E_NOMEM, "no memory for the layout of %d parameters", params->n);
    for (int32_t i = 0; i < params->n; i++) {
        lathe_store_row *row = &store->rows[i];
        memset(row, 0xff, sizeof *row); /* every offset -1 */
        row->n_slots = 0;
        row->partition = LATHE_PARTITION_ELEMENT;
        row->unit = 1;
        for (int32_t k = 0; k < LATHE_N_EXTENTS; k++)
            row->held[k] = (lathe_extent){0, lathe_desc_count(&params->rows[i]->desc)};
        for (int32_t k = 0; k < LATHE_MAX_PLANES; k++)
            row->held_plane[k] =
                (lathe_extent){0, k < params->rows[i]->n_planes
                                      ? lathe_desc_bytes(&params->rows[i]->planes[k].desc)
                                      : 0};
        if (params->rows[i]->trainable && optimizer)
            LATHE_TRY(ask_slots(store, i, optimizer));
    }
    return LATHE_OK;
}

lathe_status lathe_store_init(lathe_store *store, lathe_params *params,
                              const lathe_instance *optimizer, int32_t with_grads)
{
    LATHE_TRY(init_rows(store, params, optimizer));
    for (int32_t i = 0; i < store->n_rows; i++) {
        layout_values(store, i);
        layout_slots(store, i);
    }
    if (with_grads)
        layout_grads(store);
    return LATHE_OK;
}

/* ---- division ---- */

/* Rows of one family have one dtype of gradients, one of values, one way of being cut, and values
 * that are whole or divided. Families of f32 gradients come before the others, those of step()
 * before MATRIX. */
static int32_t family_of(const lathe_store *store, int32_t shard, int32_t i)
{
    const lathe_store_row *row = &store->rows[i];
    const int32_t is_narrow = lathe_params_grad_dtype(store->params, i) != LATHE_F32;
    const int32_t how = row->partition == LATHE_PARTITION_MATRIX ? 2 : row->unit == 0;
    const int32_t of_values = 2 * lathe_is_divided_value(store->params, shard, i) +
                              lathe_params_has_shadow(store->params, i);
    return 12 * is_narrow + 4 * how + of_values;
}

static lathe_division_row describe(const lathe_store *store, int32_t shard, int32_t i)
{
    const lathe_store_row *row = &store->rows[i];
    const int64_t n = lathe_desc_count(&store->params->rows[i]->desc);
    const int64_t grad = lathe_dtype_bytes(lathe_params_grad_dtype(store->params, i));
    int64_t bytes = n * (grad + (lathe_params_has_shadow(store->params, i) ? 4 : 0));
    if (lathe_is_divided_value(store->params, shard, i))
        bytes += n * lathe_dtype_bytes(lathe_params_value_dtype(store->params, i));
    for (int32_t k = 0; k < row->n_slots; k++)
        bytes += lathe_desc_bytes(&row->slots[k].desc);
    return (lathe_division_row){.row = i,
                                .family = family_of(store, shard, i),
                                .n = n,
                                .unit = row->unit,
                                .cost = (double)bytes / (double)n,
                                .bytes = n * grad};
}

lathe_status lathe_store_division(const lathe_store *store, const lathe_division_ask *ask,
                                  lathe_division **out)
{
    int32_t n = 0;
    lathe_division_row *rows = calloc((size_t)store->n_rows + 1, sizeof *rows);
    if (!rows)
        return lathe_error(LATHE_E_NOMEM, "no memory to divide %d parameters", store->n_rows);
    for (int32_t i = 0; i < store->n_rows; i++)
        if (store->params->rows[i]->trainable &&
            lathe_desc_count(&store->params->rows[i]->desc) > 0)
            rows[n++] = describe(store, ask->shard, i);
    const lathe_status status = lathe_division_make(ask, rows, n, store->n_rows, out);
    free(rows);
    return status;
}

/* Notes in each row what this rank holds of it. */
static void take_extents(lathe_store *store)
{
    const lathe_division *d = store->division;
    for (int32_t k = 0; k < d->n_rows; k++) {
        lathe_store_row *row = &store->rows[d->rows[k]];
        row->held[LATHE_OF_STATE] = lathe_division_of(d, d->rows[k], d->rank);
        if (lathe_params_has_shadow(store->params, d->rows[k]))
            row->held[LATHE_OF_PARAMETER] = row->held[LATHE_OF_STATE];
    }
}

lathe_status lathe_store_init_divided(lathe_store *store, lathe_params *params,
                                      const lathe_instance *optimizer,
                                      const lathe_division_ask *ask)
{
    if (ask->shard == LATHE_SHARD_NONE || ask->n_ranks < 2)
        return lathe_store_init(store, params, optimizer, 1);
    LATHE_TRY(init_rows(store, params, optimizer));
    LATHE_TRY(lathe_store_division(store, ask, &store->division));
    take_extents(store);
    if (ask->shard >= LATHE_SHARD_PARAMETERS)
        LATHE_TRY(lathe_gathers_create(store, ask));
    const lathe_division *d = store->division;
    for (int32_t k = 0; k < d->n_rows; k++)
        layout_values(store, d->rows[k]);
    for (int32_t i = 0; i < store->n_rows; i++) {
        if (d->n[i] == 0)
            layout_values(store, i);
        layout_slots(store, i);
    }
    layout_divided_grads(store);
    if (store->gathers)
        lathe_gathers_layout(store);
    return LATHE_OK;
}

static void layout_average(lathe_store *store, lathe_store_row *row)
{
    if (row->held[LATHE_OF_STATE].n > 0 || !store->division)
        row->average = take(&store->average_bytes, 4 * row->held[LATHE_OF_STATE].n);
}

void lathe_store_add_averages(lathe_store *store)
{
    store->has_averages = 1;
    for (int32_t i = 0; i < store->n_rows; i++)
        if (store->params->rows[i]->trainable)
            layout_average(store, &store->rows[i]);
}

static int64_t step_bytes(const lathe_store *store)
{
    return store->slot_bytes || store->grad_bytes || store->division
               ? (int64_t)sizeof(lathe_step_memory)
               : 0;
}

static int32_t slot_memory(const lathe_store *store)
{
    return store->slots_on_host ? LATHE_MEM_OFFLOAD : LATHE_MEM_OPTIMIZER;
}

void lathe_store_bytes(const lathe_store *store, lathe_mem_bytes *bytes)
{
    bytes->by[LATHE_MEM_PARAMETERS] +=
        store->master_bytes + store->shadow_bytes + store->gathered_bytes;
    bytes->by[LATHE_MEM_GRADIENTS] += store->grad_bytes + store->fresh_bytes;
    bytes->by[slot_memory(store)] += store->slot_bytes;
    bytes->by[LATHE_MEM_OPTIMIZER] += step_bytes(store);
    bytes->by[LATHE_MEM_QUANTIZED] += store->plane_bytes;
    bytes->by[LATHE_MEM_AVERAGE] += store->average_bytes;
    bytes->by[LATHE_MEM_MODELS] += store->other_bytes;
}

lathe_status lathe_store_place(lathe_store *store, lathe_machine *m)
{
    void *p = NULL;
    store->m = m;
    store->is_host = lathe_machine_memory(m)->is_in_place;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_PARAMETERS, store->master_bytes, &p));
    store->masters = p;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_PARAMETERS, store->shadow_bytes, &p));
    store->shadows = p;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_PARAMETERS, store->gathered_bytes, &p));
    store->gathered = p;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_GRADIENTS, store->grad_bytes, &p));
    store->grads = p;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_GRADIENTS, store->fresh_bytes, &p));
    store->fresh = p;
    LATHE_TRY(lathe_machine_alloc(m, slot_memory(store), store->slot_bytes, &p));
    store->slots = p;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_OPTIMIZER, step_bytes(store), &p));
    store->step = p;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_QUANTIZED, store->plane_bytes, &p));
    store->planes = p;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_AVERAGE, store->average_bytes, &p));
    store->averages = p;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_MODELS, store->other_bytes, &p));
    store->others = p;
    return LATHE_OK;
}

void lathe_store_fini(lathe_store *store, lathe_machine *m)
{
    if (m && store->rows) {
        lathe_machine_free(m, LATHE_MEM_PARAMETERS, store->master_bytes, store->masters);
        lathe_machine_free(m, LATHE_MEM_PARAMETERS, store->shadow_bytes, store->shadows);
        lathe_machine_free(m, LATHE_MEM_PARAMETERS, store->gathered_bytes, store->gathered);
        lathe_machine_free(m, LATHE_MEM_GRADIENTS, store->grad_bytes, store->grads);
        lathe_machine_free(m, LATHE_MEM_GRADIENTS, store->fresh_bytes, store->fresh);
        lathe_machine_free(m, slot_memory(store), store->slot_bytes, store->slots);
        lathe_machine_free(m, LATHE_MEM_OPTIMIZER, step_bytes(store), store->step);
        lathe_machine_free(m, LATHE_MEM_QUANTIZED, store->plane_bytes, store->planes);
        lathe_machine_free(m, LATHE_MEM_AVERAGE, store->average_bytes, store->averages);
        lathe_machine_free(m, LATHE_MEM_MODELS, store->other_bytes, store->others);
    }
    lathe_gathers_destroy(store->gathers);
    lathe_division_destroy(store->division);
    free(store->rows);
    memset(store, 0, sizeof *store);
}

int lathe_store_is_whole(const lathe_store *store, int32_t param, int32_t what)
{
    return store->rows[param].held[what].n == lathe_desc_count(&store->params->rows[param]->desc);
}

int64_t lathe_store_bucket_width(const lathe_store *store, int32_t bucket)
{
    const int32_t row = store->division->rows[store->division->buckets[bucket].first];
    return lathe_dtype_bytes(lathe_params_grad_dtype(store->params, row));
}

void *lathe_store_bucket_sums(const lathe_store *store, int32_t bucket)
{
    const lathe_bucket *b = &store->division->buckets[bucket];
    for (int32_t k = b->first; k < b->first + b->n; k++)
        if (lathe_store_grad(store, store->division->rows[k]))
            return lathe_store_grad(store, store->division->rows[k]);
    return NULL;
}

int64_t lathe_store_slot_skipped(const lathe_store *store, int32_t param, int32_t slot)
{
    const lathe_store_row *row = &store->rows[param];
    const int64_t n = lathe_desc_count(&store->params->rows[param]->desc);
    const lathe_extent *own = &row->held[LATHE_OF_STATE];
    return own->begin > 0 ? lathe_slot_bytes(&row->slots[slot], n, own->begin, row->unit) : 0;
}

int64_t lathe_store_slot_held(const lathe_store *store, int32_t param, int32_t slot)
{
    const lathe_store_row *row = &store->rows[param];
    const int64_t n = lathe_desc_count(&store->params->rows[param]->desc);
    const lathe_extent *own = &row->held[LATHE_OF_STATE];
    const int64_t end = own->begin + own->n;
    if (own->n == n)
        return lathe_desc_bytes(&row->slots[slot].desc);
    if (own->n == 0)
        return 0;
    return lathe_slot_bytes(&row->slots[slot], n, end, row->unit) -
           lathe_store_slot_skipped(store, param, slot);
}

float *lathe_store_master(const lathe_store *store, int32_t param)
{
    const int64_t at = store->rows[param].master;
    return at < 0 ? NULL : (float *)(void *)(store->masters + at);
}

void *lathe_store_shadow(const lathe_store *store, int32_t param)
{
    const int64_t at = store->rows[param].shadow;
    return at < 0 ? NULL : store->shadows + at;
}

void *lathe_store_grad(const lathe_store *store, int32_t param)
{
    const int64_t at = store->rows[param].grad;
    return at < 0 ? NULL : store->grads + at;
}

void *lathe_store_fresh(const lathe_store *store, int32_t param)
{
    return store->fresh ? store->fresh + store->rows[param].fresh : lathe_store_grad(store, param);
}

float *lathe_store_average(const lathe_store *store, int32_t param)
{
    const int64_t at = store->rows[param].average;
    return at < 0 ? NULL : (float *)(void *)(store->averages + at);
}

void *lathe_store_plane(const lathe_store *store, int32_t param, int32_t plane)
{
    const int64_t at = store->rows[param].plane[plane];
    if (at < 0)
        return NULL;
    return (store->params->rows[param]->other ? store->others : store->planes) + at;
}

void *lathe_store_slot(const lathe_store *store, int32_t param, int32_t slot)
{
    const int64_t at = store->rows[param].slot[slot];
    return at < 0 ? NULL : store->slots + at;
}

void *lathe_store_value(const lathe_store *store, int32_t param)
{
    const int64_t other = store->rows[param].other;
    void *shadow = lathe_store_shadow(store, param);
    if (other >= 0)
        return store->others + other;
    return shadow ? shadow : lathe_store_master(store, param);
}
