/* Writes model.safetensors of a saved model, and compares it with a file. */
#include "model/family/weight_file.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/expert_tensors.h"
#include "files/safetensors/st_writer.h"
#include "files/safetensors/tensor_pieces.h"
#include "model/family/tower_names.h"
#include "model/family/weights.h"

#define F16_LIMIT 65520.0f /* the smallest value that F16 rounds to infinity */

static const lathe_param *row_of(const lathe_weight_job *job, int64_t i)
{
    return job->params->rows[job->tensors[i].param];
}

static lathe_desc desc_of(const lathe_weight_job *job, int64_t i)
{
    lathe_desc desc = lathe_weights_file_desc(row_of(job, i));
    if (job->is_divided && lathe_weights_is_by_expert(row_of(job, i)))
        desc.dims[0] /= row_of(job, i)->n_experts;
    desc.dtype = job->tensors[i].dtype;
    return desc;
}

/* The name of the tensor in files. */
static const char *name_of(const lathe_weight_job *job, int64_t i, char out[LATHE_TENSOR_NAME])
{
    const lathe_param *row = row_of(job, i);
    char expert[300];
    const char *name = row->name;
    if (lathe_weights_is_by_expert(row)) {
        (void)lathe_expert_tensor_name(row->name, job->tensors[i].expert, expert, sizeof expert);
        name = expert;
    }
    const char *in_file = lathe_text_tower_file(job->config, name, -1, out, LATHE_TENSOR_NAME);
    if (in_file != expert)
        return in_file;
    (void)snprintf(out, LATHE_TENSOR_NAME, "%s", expert); /* outlives this function */
    return out;
}

/* Makes *out the job with a tensor for each expert instead of one for the row of all of them; its
 * list of tensors is to be freed. */
static lathe_status divide_experts(const lathe_weight_job *job, lathe_weight_job *out)
{
    int64_t n = 0;
    *out = *job;
    out->is_divided = 1;
    for (int64_t i = 0; i < job->n; i++)
        n += lathe_weights_is_by_expert(row_of(job, i)) ? row_of(job, i)->n_experts : 1;
    out->tensors = calloc((size_t)n + 1, sizeof *out->tensors);
    if (out->tensors == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld tensors", (long long)n);
    out->n = 0;
    for (int64_t i = 0; i < job->n; i++) {
        const lathe_param *row = row_of(job, i);
        const int32_t experts = lathe_weights_is_by_expert(row) ? row->n_experts : 1;
        const int64_t each = lathe_desc_count(&row->desc) / experts;
        for (int32_t e = 0; e < experts; e++) {
            lathe_weight_tensor *t = &out->tensors[out->n++];
            *t = job->tensors[i];
            t->expert = e;
            t->first = e * each;
            if (t->values != NULL)
                t->values += t->first;
        }
    }
    return LATHE_OK;
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
        return lathe_weight_origin_read(t->origin, t->param, t->first * size + p->offset,
                                        p->scratch, p->bytes);
    LATHE_TRY(lathe_weight_origin_read(t->origin, t->param, (t->first + p->offset / size) * wide,
                                       read, p->bytes / size * wide));
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
    return t->origin != NULL || (t->values != NULL && !lathe_weights_is_turned(row_of(job, i)));
}

/* For a tensor that must be made or transposed first; with experts, the tensors from `index` on
 * that are of one row, which is made once. */
static lathe_status visit_made(walk *w, int64_t index)
{
    const lathe_param *row = row_of(w->job, index);
    const lathe_desc desc = desc_of(w->job, index);
    const int64_t bytes = lathe_desc_bytes(&desc), n = lathe_desc_count(&desc);
    const int32_t param = w->job->tensors[index].param;
    lathe_status status = LATHE_OK;
    const float *values = w->job->tensors[index].values;
    float *turned = NULL;
    if (values == NULL)
        LATHE_TRY(w->job->make(w->job->arg, w->job->tensors[index].param, &values));
    if (lathe_weights_is_turned(row)) {
        turned = malloc((size_t)(n > 0 ? n : 1) * sizeof *turned);
        if (turned == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory to transpose '%s'", row->name);
        status = lathe_weights_turn(row, 1, turned, LATHE_F32, values, LATHE_F32);
        if (status != LATHE_OK) {
            free(turned);
            return status;
        }
        values = turned;
    }
    for (int64_t i = index; status == LATHE_OK && i < w->job->n; i++) {
        if (w->job->tensors[i].param != param)
            break;
        w->list = &i;
        w->values = values + (w->job->tensors[i].first - w->job->tensors[index].first);
        status = lathe_tensor_pieces_each(&bytes, 1, visit_piece, w);
    }
    w->list = NULL;
    w->values = NULL;
    free(turned);
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
        if ((wanted == NULL || wanted[i]) && !is_ready(job, i) && job->tensors[i].expert == 0)
            status = visit_made(&w, i);
    free(bytes);
    free(list);
    return status;
}

/* ---- tensors of other towers ---- */

typedef struct copying {
    const lathe_weight_job *job;
    lathe_st_writer *writer;      /* copies to here, or */
    const lathe_safetensors *set; /* compares with these */
} copying;

static lathe_status differs(const char *file, const char *name)
{
    return lathe_error(
        LATHE_E_CORRUPT,
        "%s: '%s', read back, differs from what was written: the disk or the memory is faulty",
        file, name);
}

/* lathe_tensor_piece_fn */
static lathe_status copy_piece(void *arg, const lathe_tensor_piece *p)
{
    const copying *c = arg;
    LATHE_TRY(lathe_weight_origin_read_carried(c->job->carried, p->tensor, p->offset, p->scratch,
                                               p->bytes));
    if (c->writer != NULL)
        return lathe_st_writer_write_piece(c->writer, c->job->n + p->tensor, p->offset, p->scratch,
                                           p->bytes);
    const lathe_st_tensor *want = lathe_weight_origin_carried(c->job->carried, p->tensor);
    const lathe_st_tensor *t = lathe_safetensors_find(c->set, want->name);
    return memcmp((const char *)t->data + p->offset, p->scratch, (size_t)p->bytes) == 0
               ? LATHE_OK
               : differs(t->file, t->name);
}

/* Goes through the carried tensors: none is in memory as a whole. */
static lathe_status visit_carried(copying *c)
{
    const int64_t n = lathe_weight_origin_n_carried(c->job->carried);
    int64_t *bytes = calloc((size_t)n + 1, sizeof *bytes);
    if (bytes == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to go through %lld tensors", (long long)n);
    for (int64_t i = 0; i < n; i++)
        bytes[i] = lathe_desc_bytes(&lathe_weight_origin_carried(c->job->carried, i)->desc);
    const lathe_status status = lathe_tensor_pieces_each(bytes, n, copy_piece, c);
    free(bytes);
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

static lathe_status write_divided(const lathe_weight_job *job, const char *folder,
                                  int64_t max_shard_bytes)
{
    lathe_st_writer *w = NULL;
    LATHE_TRY(lathe_st_writer_create(folder, "model", max_shard_bytes, &w));
    lathe_status status = LATHE_OK;
    copying copies = {.job = job, .writer = w};
    for (int64_t i = 0; i < job->n && status == LATHE_OK; i++) {
        const lathe_desc desc = desc_of(job, i);
        char name[LATHE_TENSOR_NAME];
        status = lathe_st_writer_add(w, name_of(job, i, name), &desc);
    }
    if (status != LATHE_OK)
        goto out;
    for (int64_t i = 0; i < lathe_weight_origin_n_carried(job->carried) && status == LATHE_OK; i++)
        status = lathe_st_writer_add_copy(w, lathe_weight_origin_carried(job->carried, i));
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_st_writer_begin(w)) != LATHE_OK)
        goto out;
    if ((status = visit(job, NULL, write_piece, w)) != LATHE_OK)
        goto out;
    if ((status = visit_carried(&copies)) != LATHE_OK)
        goto out;
    status = lathe_st_writer_finish(w);
out:
    lathe_st_writer_destroy(w);
    return status;
}

lathe_status lathe_weight_file_write(const lathe_weight_job *job, const char *folder,
                                     int64_t max_shard_bytes)
{
    lathe_weight_job divided;
    LATHE_TRY(divide_experts(job, &divided));
    const lathe_status status = write_divided(&divided, folder, max_shard_bytes);
    free(divided.tensors);
    return status;
}

/* ---- comparing ---- */

/* content_fn; arg: the set */
static lathe_status compare_piece(const walk *w, int64_t index, int64_t offset, const void *data,
                                  int64_t bytes)
{
    char name[LATHE_TENSOR_NAME];
    const lathe_st_tensor *t = lathe_safetensors_find(w->arg, name_of(w->job, index, name));
    return memcmp((const char *)t->data + offset, data, (size_t)bytes) == 0
               ? LATHE_OK
               : differs(t->file, t->name);
}

static lathe_status find_same(const lathe_safetensors *set, const char *name,
                              const lathe_desc *desc)
{
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    return t != NULL && memcmp(&t->desc, desc, sizeof *desc) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_CORRUPT, "%s: '%s' is missing or of another shape or dtype",
                             lathe_safetensors_path(set), name);
}

static lathe_status compare_divided(const lathe_weight_job *job, const lathe_safetensors *set)
{
    copying copies = {.job = job, .set = set};
    for (int64_t i = 0; i < job->n; i++) {
        const lathe_desc desc = desc_of(job, i);
        char name[LATHE_TENSOR_NAME];
        LATHE_TRY(find_same(set, name_of(job, i, name), &desc));
    }
    for (int64_t i = 0; i < lathe_weight_origin_n_carried(job->carried); i++) {
        const lathe_st_tensor *t = lathe_weight_origin_carried(job->carried, i);
        LATHE_TRY(find_same(set, t->name, &t->desc));
    }
    LATHE_TRY(visit_carried(&copies));
    return visit(job, NULL, compare_piece, (void *)(uintptr_t)set);
}

lathe_status lathe_weight_file_compare(const lathe_weight_job *job, const lathe_safetensors *set)
{
    lathe_weight_job divided;
    LATHE_TRY(divide_experts(job, &divided));
    const lathe_status status = compare_divided(&divided, set);
    free(divided.tensors);
    return status;
}

int32_t lathe_weight_file_dtype(const lathe_weight_job *job, int32_t said)
{
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16, LATHE_F64};
    int64_t max = 0;
    int32_t out = said;
    for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++) {
        int64_t n = 0;
        for (int64_t i = 0; i < job->n; i++)
            if (job->tensors[i].dtype == dtypes[k])
                n += lathe_desc_count(&row_of(job, i)->desc);
        if (n > 0 && dtypes[k] == said)
            return said;
        if (n > max)
            out = dtypes[k];
        max = n > max ? n : max;
    }
    return out;
}
