/* Memory of the parameters: layout, placement, reading and writing. */
#include "exec/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "exec/state_offload.h"
#include "io/tensor_pieces.h"
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
        for (int32_t k = 0; p->quantized && k < p->n_planes; k++)
            row->plane[k] = take(&store->plane_bytes, lathe_desc_bytes(&p->planes[k].desc));
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
    return at < 0 ? NULL : store->planes + at;
}

void *lathe_store_slot(const lathe_store *store, int32_t param, int32_t slot)
{
    const int64_t at = store->rows[param].slot[slot];
    return at < 0 ? NULL : store->slots + at;
}

void *lathe_store_value(const lathe_store *store, int32_t param)
{
    void *shadow = lathe_store_shadow(store, param);
    return shadow ? shadow : lathe_store_master(store, param);
}

typedef struct round_job {
    const float *from;
    uint16_t *to;
    int32_t dtype; /* LATHE_BF16, LATHE_F16 */
} round_job;

static void round_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const round_job *job = arg;
    (void)worker;
    if (job->dtype == LATHE_BF16)
        for (int64_t i = begin; i < end; i++)
            job->to[i] = lathe_f32_to_bf16(job->from[i]);
    else
        for (int64_t i = begin; i < end; i++)
            job->to[i] = lathe_f32_to_f16(job->from[i]);
}

void lathe_store_refresh(const lathe_store *store, int32_t param)
{
    const round_job job = {lathe_store_master(store, param), lathe_store_shadow(store, param),
                           lathe_params_value_dtype(store->params, param)};
    if (job.from && job.to)
        lathe_parallel_for(lathe_desc_count(&store->params->rows[param]->desc), 1 << 16,
                           round_range, (void *)(uintptr_t)&job);
}

/* Whether the host can access p. Waits for slots in flight. */
static lathe_status on_host(const lathe_store *store, const void *p, int *out)
{
    const char *at = p;
    *out = store->is_host;
    if (store->is_host || !store->slots_on_host || at < store->slots ||
        at >= store->slots + store->slot_bytes)
        return LATHE_OK;
    *out = 1;
    return lathe_offload_settle(store->offload);
}

lathe_status lathe_store_read(const lathe_store *store, const void *from, int64_t bytes,
                              lathe_piece_fn fn, void *arg)
{
    int is_host;
    LATHE_TRY(on_host(store, from, &is_host));
    return is_host ? fn(arg, 0, from, bytes)
                   : lathe_download_pieces(store->m, from, bytes, fn, arg);
}

lathe_status lathe_store_get(const lathe_store *store, void *to, const void *from, int64_t bytes)
{
    int is_host;
    LATHE_TRY(on_host(store, from, &is_host));
    if (!is_host)
        return lathe_download(store->m, to, from, bytes);
    lathe_parallel_copy(to, from, bytes);
    return LATHE_OK;
}

lathe_status lathe_store_put(const lathe_store *store, void *to, const void *from, int64_t bytes)
{
    int is_host;
    LATHE_TRY(on_host(store, to, &is_host));
    if (!is_host)
        return lathe_upload(store->m, to, from, bytes);
    lathe_parallel_copy(to, from, bytes);
    return LATHE_OK;
}

typedef struct tensor_of_file {
    lathe_st_writer *w;
    int64_t index;
} tensor_of_file;

/* lathe_piece_fn */
static lathe_status write_piece(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    const tensor_of_file *t = arg;
    return lathe_st_writer_write(t->w, t->index, offset, data, bytes);
}

lathe_status lathe_store_write(const lathe_store *store, lathe_st_writer *w, int64_t tensor,
                               const void *from, int64_t bytes)
{
    tensor_of_file t = {w, tensor};
    return lathe_store_read(store, from, bytes, write_piece, &t);
}

typedef struct parts_of_file {
    lathe_st_writer *w;
    const lathe_store_part *parts;
} parts_of_file;

/* lathe_tensor_piece_fn */
static lathe_status write_part(void *arg, const lathe_tensor_piece *p)
{
    const parts_of_file *f = arg;
    const lathe_store_part *part = &f->parts[p->tensor];
    return lathe_st_writer_write_piece(f->w, part->tensor, p->offset,
                                       (const char *)part->from + p->offset, p->bytes);
}

lathe_status lathe_store_write_all(const lathe_store *store, lathe_st_writer *w,
                                   const lathe_store_part *parts, int64_t n)
{
    parts_of_file f = {w, parts};
    int all_on_host = 1;
    for (int64_t i = 0; i < n && all_on_host; i++)
        LATHE_TRY(on_host(store, parts[i].from, &all_on_host));
    for (int64_t i = 0; i < n && !all_on_host; i++)
        LATHE_TRY(lathe_store_write(store, w, parts[i].tensor, parts[i].from, parts[i].bytes));
    if (!all_on_host)
        return LATHE_OK;
    int64_t *bytes = calloc((size_t)n + 1, sizeof *bytes);
    if (!bytes)
        return lathe_error(LATHE_E_NOMEM, "no memory to write %lld tensors", (long long)n);
    for (int64_t i = 0; i < n; i++)
        bytes[i] = parts[i].bytes;
    const lathe_status status = lathe_tensor_pieces_each(bytes, n, write_part, &f);
    free(bytes);
    return status;
}

/* Updates the compute copy of a row in memory that the host cannot access. */
static lathe_status upload_shadow(const lathe_store *store, int32_t param, const float *values)
{
    const int64_t n = lathe_desc_count(&store->params->rows[param]->desc);
    round_job job = {values, NULL, lathe_params_value_dtype(store->params, param)};
    uint16_t *narrow = malloc((size_t)(n > 0 ? n : 1) * sizeof *narrow);
    if (!narrow)
        return lathe_error(LATHE_E_NOMEM, "no memory to round '%s'",
                           store->params->rows[param]->name);
    job.to = narrow;
    lathe_parallel_for(n, 1 << 16, round_range, &job);
    const lathe_status status = lathe_upload(store->m, lathe_store_shadow(store, param), narrow,
                                             n * (int64_t)sizeof *narrow);
    free(narrow);
    return status;
}

lathe_status lathe_store_set(const lathe_store *store, int32_t param, const float *values)
{
    float *master = lathe_store_master(store, param);
    if (master && master != values)
        LATHE_TRY(lathe_store_put(store, master, values,
                                  4 * lathe_desc_count(&store->params->rows[param]->desc)));
    if (store->is_host)
        lathe_store_refresh(store, param);
    else if (lathe_store_shadow(store, param))
        return upload_shadow(store, param, values);
    return LATHE_OK;
}
