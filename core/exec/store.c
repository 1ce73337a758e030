/* Lays out and allocates the memory of the parameters. */
#include "exec/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plug/answers.h"

static int64_t take(int64_t *total, int64_t bytes)
{
    const int64_t at = *total;
    *total += (bytes + 63) / 64 * 64;
    return at;
}

static lathe_status layout_slots(lathe_store *store, int32_t i, const lathe_instance *optimizer)
{
    lathe_store_row *row = &store->rows[i];
    const lathe_param_info info = lathe_params_info(store->params, i);
    LATHE_TRY(lathe_answer_slots(optimizer, &info, row->slots, &row->n_slots, &row->partition));
    for (int32_t k = 0; k < row->n_slots; k++)
        row->slot[k] = take(&store->slot_bytes, lathe_desc_bytes(&row->slots[k].desc));
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

lathe_status lathe_store_init(lathe_store *store, lathe_params *params,
                              const lathe_instance *optimizer, int32_t with_grads)
{
    memset(store, 0, sizeof *store);
    store->params = params;
    store->n_rows = params->n;
    store->rows = calloc((size_t)params->n + 1, sizeof *store->rows);
    if (!store->rows)
        return lathe_error(LATHE_E_NOMEM, "no memory for the layout of %d parameters", params->n);
    for (int32_t i = 0; i < params->n; i++) {
        lathe_store_row *row = &store->rows[i];
        const lathe_param *p = params->rows[i];
        memset(row, 0xff, sizeof *row); /* every offset -1 */
        row->n_slots = 0;
        row->partition = LATHE_PARTITION_ELEMENT;
        const int64_t n = lathe_desc_count(&p->desc);
        if (lathe_params_has_master(params, i))
            row->master = take(&store->master_bytes, 4 * n);
        if (lathe_params_has_shadow(params, i))
            row->shadow = take(&store->shadow_bytes,
                               n * lathe_dtype_bytes(lathe_params_value_dtype(params, i)));
        if (p->other && !p->format)
            row->other = take(&store->other_bytes,
                              n * lathe_dtype_bytes(lathe_params_value_dtype(params, i)));
        for (int32_t k = 0; p->format && k < p->n_planes; k++)
            row->plane[k] = take(p->other ? &store->other_bytes : &store->plane_bytes,
                                 lathe_desc_bytes(&p->planes[k].desc));
        if (p->trainable && optimizer)
            LATHE_TRY(layout_slots(store, i, optimizer));
    }
    if (with_grads)
        layout_grads(store);
    return LATHE_OK;
}

void lathe_store_add_averages(lathe_store *store)
{
    for (int32_t i = 0; i < store->n_rows; i++)
        if (store->params->rows[i]->trainable)
            store->rows[i].average =
                take(&store->average_bytes, 4 * lathe_desc_count(&store->params->rows[i]->desc));
}

static int64_t step_bytes(const lathe_store *store)
{
    return store->slot_bytes || store->grad_bytes ? (int64_t)sizeof(lathe_step_memory) : 0;
}

static int32_t slot_memory(const lathe_store *store)
{
    return store->slots_on_host ? LATHE_MEM_OFFLOAD : LATHE_MEM_OPTIMIZER;
}

void lathe_store_bytes(const lathe_store *store, lathe_mem_bytes *bytes)
{
    bytes->by[LATHE_MEM_PARAMETERS] += store->master_bytes + store->shadow_bytes;
    bytes->by[LATHE_MEM_GRADIENTS] += store->grad_bytes;
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
    store->is_host = lathe_machine_shares(m);
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_PARAMETERS, store->master_bytes, &p));
    store->masters = p;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_PARAMETERS, store->shadow_bytes, &p));
    store->shadows = p;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_GRADIENTS, store->grad_bytes, &p));
    store->grads = p;
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
        lathe_machine_free(m, LATHE_MEM_GRADIENTS, store->grad_bytes, store->grads);
        lathe_machine_free(m, slot_memory(store), store->slot_bytes, store->slots);
        lathe_machine_free(m, LATHE_MEM_OPTIMIZER, step_bytes(store), store->step);
        lathe_machine_free(m, LATHE_MEM_QUANTIZED, store->plane_bytes, store->planes);
        lathe_machine_free(m, LATHE_MEM_AVERAGE, store->average_bytes, store->averages);
        lathe_machine_free(m, LATHE_MEM_MODELS, store->other_bytes, store->others);
    }
    free(store->rows);
    memset(store, 0, sizeof *store);
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
