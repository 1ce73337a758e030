/* Reads and writes the memory of the parameters, on the host or on the device. */
#include "exec/store/store_io.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/parallel.h"
#include "exec/store/cut_unit.h"
#include "exec/store/gathered.h"
#include "exec/store/row_kernels.h"
#include "exec/store/state_offload.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/tensor_pieces.h"

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

lathe_status lathe_store_borrow(const lathe_store *store, void *at, int64_t bytes, void **out)
{
    *out = at;
    if (store->is_host)
        return LATHE_OK;
    *out = malloc((size_t)bytes + 1);
    if (*out == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld bytes from the device",
                           (long long)bytes);
    const lathe_status status = lathe_store_get(store, *out, at, bytes);
    if (status != LATHE_OK) {
        free(*out);
        *out = NULL;
    }
    return status;
}

lathe_status lathe_store_write_back(const lathe_store *store, void *at, int64_t bytes,
                                    const void *data)
{
    return data == at ? LATHE_OK : lathe_store_put(store, at, data, bytes);
}

void lathe_store_release(const lathe_store *store, void *data)
{
    if (!store->is_host)
        free(data);
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

/* ---- families that ranks divide ---- */

void *lathe_store_family(const lathe_store *store, int32_t family, int32_t param, int32_t slot)
{
    if (family == LATHE_FAMILY_SLOTS)
        return lathe_store_slot(store, param, slot);
    return family == LATHE_FAMILY_AVERAGES ? lathe_store_average(store, param)
                                           : lathe_store_master(store, param);
}

lathe_extent lathe_store_family_bytes(const lathe_store *store, int32_t family, int32_t param,
                                      int32_t slot, int32_t rank)
{
    const lathe_store_row *row = &store->rows[param];
    const int64_t n = lathe_desc_count(&store->params->rows[param]->desc);
    const int is_whole = family == LATHE_FAMILY_MASTERS && !store->is_average &&
                         !lathe_params_has_shadow(store->params, param) &&
                         !lathe_store_is_gathered(store, param);
    lathe_extent own = {0, n};
    if (store->division && store->division->n[param] > 0 && !is_whole)
        own = lathe_division_of(store->division, param, rank);
    if (family != LATHE_FAMILY_SLOTS)
        return (lathe_extent){4 * own.begin, 4 * own.n};
    const int64_t begin =
        own.begin > 0 ? lathe_slot_bytes(&row->slots[slot], n, own.begin, row->unit) : 0;
    const int64_t end =
        own.n > 0 ? lathe_slot_bytes(&row->slots[slot], n, own.begin + own.n, row->unit) : begin;
    return (lathe_extent){begin, end - begin};
}

lathe_status lathe_store_stream(const lathe_store *store, int32_t family, int32_t param,
                                int32_t slot, lathe_piece_fn fn, void *arg)
{
    const int32_t rank = store->division ? store->division->rank : 0;
    const lathe_extent held = lathe_store_family_bytes(store, family, param, slot, rank);
    const int64_t whole = family == LATHE_FAMILY_SLOTS
                              ? lathe_desc_bytes(&store->rows[param].slots[slot].desc)
                              : 4 * lathe_desc_count(&store->params->rows[param]->desc);
    if (held.n == whole)
        return lathe_store_read(store, lathe_store_family(store, family, param, slot), whole, fn,
                                arg);
    if (!store->peers)
        return lathe_error(LATHE_E_STATE, "'%s' is divided among ranks",
                           store->params->rows[param]->name);
    return store->peers->collect(store->peers->arg,
                                 store->is_average ? LATHE_FAMILY_AVERAGES : family, param, slot,
                                 fn, arg);
}

lathe_status lathe_store_put_held(const lathe_store *store, int32_t family, int32_t param,
                                  int32_t slot, const void *whole)
{
    const int32_t rank = store->division ? store->division->rank : 0;
    const lathe_extent held = lathe_store_family_bytes(store, family, param, slot, rank);
    return held.n == 0 ? LATHE_OK
                       : lathe_store_put(store, lathe_store_family(store, family, param, slot),
                                         (const char *)whole + held.begin, held.n);
}

lathe_status lathe_store_write_master(const lathe_store *store, lathe_st_writer *w, int64_t tensor,
                                      int32_t param)
{
    tensor_of_file t = {w, tensor};
    return lathe_store_stream(store, LATHE_FAMILY_MASTERS, param, 0, write_piece, &t);
}

/* Like lathe_store_write_all for tensors that ranks divide, one after the other. */
static lathe_status write_divided(const lathe_store *store, lathe_st_writer *w,
                                  const lathe_store_part *parts, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        tensor_of_file t = {w, parts[i].tensor};
        if (parts[i].family < 0)
            return lathe_error(LATHE_E_STATE,
                               "ranks that divide a training save no gradients: end the step with "
                               "lathe_step, or leave it with lathe_zero_grad");
        LATHE_TRY(lathe_store_stream(store, parts[i].family, parts[i].param, parts[i].slot,
                                     write_piece, &t));
    }
    return LATHE_OK;
}

lathe_status lathe_store_write_all(const lathe_store *store, lathe_st_writer *w,
                                   const lathe_store_part *parts, int64_t n)
{
    parts_of_file f = {w, parts};
    if (store->division)
        return write_divided(store, w, parts, n);
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

lathe_status lathe_store_put_value(const lathe_store *store, int32_t param, const void *whole)
{
    const lathe_extent *own = &store->rows[param].held[LATHE_OF_VALUE];
    const int64_t width = lathe_dtype_bytes(lathe_params_value_dtype(store->params, param));
    lathe_store_note(store, param, -1, whole,
                     width * lathe_desc_count(&store->params->rows[param]->desc));
    return own->n == 0 ? LATHE_OK
                       : lathe_store_put(store, lathe_store_value(store, param),
                                         (const char *)whole + own->begin * width, own->n * width);
}

lathe_status lathe_store_put_plane(const lathe_store *store, int32_t param, int32_t plane,
                                   const void *whole)
{
    const lathe_extent *own = &store->rows[param].held_plane[plane];
    lathe_store_note(store, param, plane, whole,
                     lathe_desc_bytes(&store->params->rows[param]->planes[plane].desc));
    return own->n == 0 ? LATHE_OK
                       : lathe_store_put(store, lathe_store_plane(store, param, plane),
                                         (const char *)whole + own->begin, own->n);
}

/* The values of a frozen row are converted as those of a file are. */
static lathe_status set_value(const lathe_store *store, int32_t param, const float *values)
{
    const int64_t n = lathe_desc_count(&store->params->rows[param]->desc);
    const int32_t dtype = lathe_params_value_dtype(store->params, param);
    void *narrow = malloc((size_t)(n * lathe_dtype_bytes(dtype)) + 1);
    if (!narrow)
        return lathe_error(LATHE_E_NOMEM, "no memory to round '%s'",
                           store->params->rows[param]->name);
    lathe_status status = lathe_convert(narrow, dtype, values, LATHE_F32, n);
    if (status == LATHE_OK)
        status = lathe_store_put_value(store, param, narrow);
    free(narrow);
    return status;
}

/* Rounds what this rank holds of the values that kernels read, on the host, if the device's kernels
 * cannot read the whole. */
static lathe_status set_held_value(const lathe_store *store, int32_t param, const float *values)
{
    const lathe_extent *own = &store->rows[param].held[LATHE_OF_VALUE];
    const int32_t dtype = lathe_params_value_dtype(store->params, param);
    const int64_t bytes = own->n * lathe_dtype_bytes(dtype);
    if (lathe_machine_memory(store->m)->runs_host_code)
        return lathe_row_refresh_from(store, param, values);
    if (store->rows[param].shadow < 0 || own->n == 0)
        return LATHE_OK;
    void *narrow = malloc((size_t)bytes);
    if (!narrow)
        return lathe_error(LATHE_E_NOMEM, "no memory to round '%s'",
                           store->params->rows[param]->name);
    lathe_status status = lathe_convert(narrow, dtype, values + own->begin, LATHE_F32, own->n);
    if (status == LATHE_OK)
        status = lathe_store_put(store, lathe_store_shadow(store, param), narrow, bytes);
    free(narrow);
    return status;
}

lathe_status lathe_store_set(const lathe_store *store, int32_t param, const float *values)
{
    float *master = lathe_store_master(store, param);
    const int is_gathered = lathe_store_is_gathered(store, param);
    if (!store->params->rows[param]->trainable && is_gathered)
        return set_value(store, param, values);
    if (is_gathered || !lathe_store_is_whole(store, param, LATHE_OF_PARAMETER)) {
        lathe_store_note(store, param, -1, values,
                         4 * lathe_desc_count(&store->params->rows[param]->desc));
        LATHE_TRY(lathe_store_put_held(store, LATHE_FAMILY_MASTERS, param, 0, values));
        return set_held_value(store, param, values);
    }
    if (!master)
        return set_value(store, param, values);
    if (master != values)
        LATHE_TRY(lathe_store_put(store, master, values,
                                  4 * lathe_desc_count(&store->params->rows[param]->desc)));
    return lathe_row_refresh(store, param);
}
