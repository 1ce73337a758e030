/* Writes model.safetensors of a saved model, and compares it with a file. */
#include "model/weight_file.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/convert.h"
#include "io/st_writer.h"
#include "io/tensor_pieces.h"
#include "model/weights.h"

#define F16_LIMIT 65520.0f /* the smallest value that F16 rounds to infinity */

static const lathe_param *row_of(const lathe_weight_job *job, int64_t i)
{
    return job->params->rows[job->tensors[i].param];
}

static lathe_desc desc_of(const lathe_weight_job *job, int64_t i)
{
    lathe_desc desc = lathe_weights_file_desc(row_of(job, i));
    desc.dtype = job->tensors[i].dtype;
    return desc;
}

/* ---- the content of tensors, piece by piece ---- */

typedef struct walk walk;

/** `data` holds the piece of the job's tensor `index` as the file has it. */
typedef lathe_status (*content_fn)(const walk *w, int64_t index, int64_t offset, const void *data,
                                   int64_t bytes);

struct walk {
    const lathe_weight_job *job;
    content_fn fn;
    void *arg;
    const int64_t *list; /* [n] indices of the visited tensors in the job */
    /* values of the only visited tensor, in the layout of files; NULL: read them from the job */
    const float *values;
};

/* Converts f32 values in the layout of files. */
static lathe_status from_values(const float *values, int32_t dtype, const lathe_tensor_piece *p,
                                const void **out)
{
    const int64_t size = lathe_dtype_bytes(dtype);
    *out = p->scratch;
    if (size <= 0)
        return lathe_error(LATHE_E_ARG, "no file holds weights in dtype %d", dtype);
    if (dtype != LATHE_F32)
        return lathe_convert(p->scratch, dtype, values + p->offset / size, LATHE_F32,
                             p->bytes / size);
    *out = (const char *)values + p->offset;
    return LATHE_OK;
}

static lathe_status from_origin(const lathe_weight_tensor *t, const lathe_tensor_piece *p,
                                const void **out)
{
    const int32_t dtype = lathe_weight_origin_dtype(t->origin, t->param);
    const int64_t size = lathe_dtype_bytes(t->dtype), wide = lathe_dtype_bytes(dtype);
    char *read = (char *)p->scratch + LATHE_PIECE_BYTES;
    *out = p->scratch;
    if (size <= 0 || wide <= 0)
        return lathe_error(LATHE_E_ARG, "no file holds weights in dtype %d or %d", t->dtype, dtype);
    if (dtype == t->dtype)
        return lathe_weight_origin_read(t->origin, t->param, p->offset, p->scratch, p->bytes);
    LATHE_TRY(lathe_weight_origin_read(t->origin, t->param, p->offset / size * wide, read,
                                       p->bytes / size * wide));
    return lathe_convert(p->scratch, t->dtype, read, dtype, p->bytes / size);
}

/* lathe_tensor_piece_fn */
static lathe_status visit_piece(void *arg, const lathe_tensor_piece *p)
{
    const walk *w = arg;
    const int64_t index = w->list[p->tensor];
    const lathe_weight_tensor *t = &w->job->tensors[index];
    const void *data = NULL;
    if (t->origin != NULL)
        LATHE_TRY(from_origin(t, p, &data));
    else
        LATHE_TRY(from_values(w->values != NULL ? w->values : t->values, t->dtype, p, &data));
    return w->fn(w, index, p->offset, data, p->bytes);
}

/* For a tensor whose values are in memory in the layout of files. */
static int is_ready(const lathe_weight_job *job, int64_t i)
{
    const lathe_weight_tensor *t = &job->tensors[i];
    return t->origin != NULL || (t->values != NULL && !row_of(job, i)->transposed);
}

/* For a tensor that must be made or transposed first. */
static lathe_status visit_made(walk *w, int64_t index)
{
    const lathe_param *row = row_of(w->job, index);
    const lathe_desc desc = desc_of(w->job, index);
    const int64_t bytes = lathe_desc_bytes(&desc), n = lathe_desc_count(&desc);
    const float *values = w->job->tensors[index].values;
    float *transposed = NULL;
    if (values == NULL)
        LATHE_TRY(w->job->make(w->job->arg, w->job->tensors[index].param, &values));
    if (row->transposed) {
        transposed = malloc((size_t)(n > 0 ? n : 1) * sizeof *transposed);
        if (transposed == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory to transpose '%s'", row->name);
        const lathe_status status = lathe_convert_transposed(
            transposed, LATHE_F32, values, LATHE_F32, row->desc.dims[0], row->desc.dims[1]);
        if (status != LATHE_OK) {
            free(transposed);
            return status;
        }
        values = transposed;
    }
    w->list = &index;
    w->values = values;
    const lathe_status status = lathe_tensor_pieces_each(&bytes, 1, visit_piece, w);
    w->list = NULL;
    w->values = NULL;
    free(transposed);
    return status;
}

/* Visits every tensor whose `wanted` is 1; NULL: all. */
static lathe_status visit(const lathe_weight_job *job, const uint8_t *wanted, content_fn fn,
                          void *arg)
{
    walk w = {.job = job, .fn = fn, .arg = arg};
    int64_t *list = calloc((size_t)job->n + 1, sizeof *list);
    int64_t *bytes = calloc((size_t)job->n + 1, sizeof *bytes);
    int64_t n = 0;
    lathe_status status = LATHE_OK;
    if (list == NULL || bytes == NULL)
        status =
            lathe_error(LATHE_E_NOMEM, "no memory to go through %lld tensors", (long long)job->n);
    for (int64_t i = 0; i < job->n && status == LATHE_OK; i++)
        if ((wanted == NULL || wanted[i]) && is_ready(job, i)) {
            const lathe_desc desc = desc_of(job, i);
            list[n] = i;
            bytes[n++] = lathe_desc_bytes(&desc);
        }
    w.list = list;
    if (status == LATHE_OK)
        status = lathe_tensor_pieces_each(bytes, n, visit_piece, &w);
    for (int64_t i = 0; i < job->n && status == LATHE_OK; i++)
        if ((wanted == NULL || wanted[i]) && !is_ready(job, i))
            status = visit_made(&w, i);
    free(bytes);
    free(list);
    return status;
}

/* ---- what does not fit F16 ---- */

/* content_fn; arg: an atomic_uchar per tensor */
static lathe_status find_large(const walk *w, int64_t index, int64_t offset, const void *data,
                               int64_t bytes)
{
    const float *x = data;
    (void)offset;
    for (int64_t i = 0; i < bytes / 4; i++)
        if (fabsf(x[i]) >= F16_LIMIT && isfinite(x[i])) {
            atomic_store((atomic_uchar *)w->arg + index, 1);
            break;
        }
    return LATHE_OK;
}

lathe_status lathe_weight_file_widen(const lathe_weight_job *job,
                                     void (*report)(void *arg, const char *name), void *report_arg)
{
    uint8_t *narrow = calloc((size_t)job->n + 1, 1);
    atomic_uchar *large = calloc((size_t)job->n + 1, sizeof *large);
    lathe_status status = LATHE_OK;
    int any = 0;
    if (narrow == NULL || large == NULL)
        status = lathe_error(LATHE_E_NOMEM, "no memory to look at %lld tensors", (long long)job->n);
    for (int64_t i = 0; i < job->n && status == LATHE_OK; i++) {
        lathe_weight_tensor *t = &job->tensors[i];
        narrow[i] =
            t->dtype == LATHE_F16 &&
            (t->origin == NULL || lathe_weight_origin_dtype(t->origin, t->param) != LATHE_F16);
        any |= narrow[i];
        t->dtype = narrow[i] ? LATHE_F32 : t->dtype; /* read as f32 for this check */
    }
    if (status == LATHE_OK && any)
        status = visit(job, narrow, find_large, large);
    for (int64_t i = 0; i < job->n && narrow != NULL && large != NULL; i++) {
        if (narrow[i] && !atomic_load(&large[i]))
            job->tensors[i].dtype = LATHE_F16;
        else if (narrow[i] && status == LATHE_OK)
            report(report_arg, row_of(job, i)->name);
    }
    free(large);
    free(narrow);
    return status;
}

/* ---- writing ---- */

/* content_fn; arg: the writer */
static lathe_status write_piece(const walk *w, int64_t index, int64_t offset, const void *data,
                                int64_t bytes)
{
    return lathe_st_writer_write_piece(w->arg, index, offset, data, bytes);
}

lathe_status lathe_weight_file_write(const lathe_weight_job *job, const char *folder,
                                     int64_t max_shard_bytes)
{
    lathe_st_writer *w = NULL;
    LATHE_TRY(lathe_st_writer_create(folder, "model", max_shard_bytes, &w));
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < job->n && status == LATHE_OK; i++) {
        const lathe_desc desc = desc_of(job, i);
        status = lathe_st_writer_add(w, row_of(job, i)->name, &desc);
    }
    if (status == LATHE_OK)
        status = lathe_st_writer_begin(w);
    if (status == LATHE_OK)
        status = visit(job, NULL, write_piece, w);
    if (status == LATHE_OK)
        status = lathe_st_writer_finish(w);
    lathe_st_writer_destroy(w);
    return status;
}

/* ---- comparing ---- */

/* content_fn; arg: the set */
static lathe_status compare_piece(const walk *w, int64_t index, int64_t offset, const void *data,
                                  int64_t bytes)
{
    const lathe_st_tensor *t = lathe_safetensors_find(w->arg, row_of(w->job, index)->name);
    if (memcmp((const char *)t->data + offset, data, (size_t)bytes) == 0)
        return LATHE_OK;
    return lathe_error(
        LATHE_E_CORRUPT,
        "%s: '%s', read back, differs from what was written: the disk or the memory is faulty",
        t->file, t->name);
}

lathe_status lathe_weight_file_compare(const lathe_weight_job *job, const lathe_safetensors *set)
{
    for (int64_t i = 0; i < job->n; i++) {
        const lathe_desc desc = desc_of(job, i);
        const lathe_st_tensor *t = lathe_safetensors_find(set, row_of(job, i)->name);
        if (t == NULL || memcmp(&t->desc, &desc, sizeof desc) != 0)
            return lathe_error(LATHE_E_CORRUPT, "%s: '%s' is missing or of another shape or dtype",
                               lathe_safetensors_path(set), row_of(job, i)->name);
    }
    return visit(job, NULL, compare_piece, (void *)(uintptr_t)set);
}

int32_t lathe_weight_file_dtype(const lathe_weight_job *job, int32_t said)
{
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16, LATHE_F64};
    int64_t most = 0;
    int32_t out = said;
    for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++) {
        int64_t n = 0;
        for (int64_t i = 0; i < job->n; i++)
            if (job->tensors[i].dtype == dtypes[k])
                n += lathe_desc_count(&row_of(job, i)->desc);
        if (n > 0 && dtypes[k] == said)
            return said;
        if (n > most)
            out = dtypes[k];
        most = n > most ? n : most;
    }
    return out;
}
