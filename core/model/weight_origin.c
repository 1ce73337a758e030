/* Records where a model's weights were read from. */
#include "model/weight_origin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/convert.h"
#include "model/weights.h"

enum { PART = 1 << 18 }; /* elements compared at a time */

typedef struct origin_file {
    char *path;
    int fd;
    struct stat was; /* when it was opened */
} origin_file;

typedef struct origin_row {
    int32_t file; /* -1: not recorded */
    int32_t dtype;
    int64_t offset, bytes;
    const lathe_st_tensor *coded; /* of `set`: it is decoded when it is read; NULL: plain bytes */
} origin_row;

struct lathe_weight_origin {
    origin_file *files;
    int32_t n_files, capacity;
    origin_row *rows; /* [n_rows] */
    int32_t n_rows;
    lathe_safetensors *set; /* held, if a row is coded */
};

void lathe_weight_origin_destroy(lathe_weight_origin *o)
{
    if (o == NULL)
        return;
    for (int32_t i = 0; i < o->n_files; i++) {
        (void)close(o->files[i].fd);
        free(o->files[i].path);
    }
    lathe_safetensors_close(o->set);
    free(o->files);
    free(o->rows);
    free(o);
}

int32_t lathe_weight_origin_dtype(const lathe_weight_origin *o, int32_t param)
{
    const int held = o != NULL && param < o->n_rows && o->rows[param].file >= 0;
    return held ? o->rows[param].dtype : -1;
}

/* Decodes elements in the dtype of the tensor. The set's map, like an open file, keeps the content
 * while the name may go. */
static lathe_status read_coded(const lathe_weight_origin *o, const origin_row *row, int64_t offset,
                               void *to, int64_t bytes)
{
    const int64_t size = lathe_dtype_bytes(row->dtype);
    if (size <= 0)
        return lathe_error(LATHE_E_CORRUPT, "a tensor has elements without a size");
    LATHE_TRY(lathe_st_read(row->coded, offset / size, bytes / size, to, row->dtype));
    return lathe_safetensors_check(o->set);
}

lathe_status lathe_weight_origin_read(const lathe_weight_origin *o, int32_t param, int64_t offset,
                                      void *to, int64_t bytes)
{
    const origin_row *row = &o->rows[param];
    const origin_file *file = &o->files[row->file];
    char *at = to;
    if (offset < 0 || bytes < 0 || bytes > row->bytes - offset)
        return lathe_error(LATHE_E_ARG, "%s: bytes %lld..%lld of a tensor of %lld", file->path,
                           (long long)offset, (long long)(offset + bytes), (long long)row->bytes);
    if (row->coded != NULL)
        return read_coded(o, row, offset, to, bytes);
    for (offset += row->offset; bytes > 0;) {
        const ssize_t n = pread(file->fd, at, (size_t)bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return lathe_error(LATHE_E_IO, "%s: cannot read weights that do not train: %s",
                               file->path, n < 0 ? strerror(errno) : "the file was cut short");
        at += n;
        offset += n;
        bytes -= n;
    }
    return LATHE_OK;
}

lathe_status lathe_weight_origin_check(const lathe_weight_origin *o)
{
    struct stat is;
    for (int32_t i = 0; o != NULL && i < o->n_files; i++) {
        const origin_file *f = &o->files[i];
        if (fstat(f->fd, &is) != 0)
            return lathe_error(LATHE_E_IO, "%s: %s", f->path, strerror(errno));
        if (is.st_size != f->was.st_size || is.st_mtim.tv_sec != f->was.st_mtim.tv_sec ||
            is.st_mtim.tv_nsec != f->was.st_mtim.tv_nsec)
            return lathe_error(LATHE_E_CORRUPT,
                               "%s was changed after the run read it; weights that do not train "
                               "are copied from it: restore the file and resume",
                               f->path);
    }
    return LATHE_OK;
}

/* ---- making one ---- */

/* Adds a file with its path; makes room for it. */
static lathe_status add_file(lathe_weight_origin *o, const char *path, origin_file **out)
{
    if (o->n_files == o->capacity) {
        const int32_t capacity = 2 * o->capacity + 8;
        origin_file *grown = realloc(o->files, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for the files of a model");
        o->files = grown;
        o->capacity = capacity;
    }
    *out = &o->files[o->n_files];
    (*out)->path = strdup(path);
    return (*out)->path != NULL ? LATHE_OK
                                : lathe_error(LATHE_E_NOMEM, "no memory for the files of a model");
}

/* The file is counted only when its descriptor is known. */
static lathe_status keep_file(lathe_weight_origin *o, origin_file *f, int fd, int32_t *out)
{
    if (fd < 0 || fstat(fd, &f->was) != 0) {
        const lathe_status status = lathe_error(LATHE_E_IO, "%s: %s", f->path, strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        free(f->path);
        return status;
    }
    f->fd = fd;
    *out = o->n_files++;
    return LATHE_OK;
}

/* Index of the file in o->files; opens it if it is new. */
static lathe_status take_file(lathe_weight_origin *o, const char *path, int32_t *out)
{
    origin_file *f = NULL;
    for (*out = 0; *out < o->n_files; ++*out)
        if (strcmp(o->files[*out].path, path) == 0)
            return LATHE_OK;
    LATHE_TRY(add_file(o, path, &f));
    return keep_file(o, f, open(path, O_RDONLY | O_CLOEXEC), out);
}

/* Adds a file of another origin with a duplicate of its descriptor, since the path may name another
 * file by now. */
static lathe_status share_file(lathe_weight_origin *o, const origin_file *from, int32_t *out)
{
    origin_file *f = NULL;
    for (*out = 0; *out < o->n_files; ++*out)
        if (o->files[*out].was.st_ino == from->was.st_ino &&
            o->files[*out].was.st_dev == from->was.st_dev)
            return LATHE_OK;
    LATHE_TRY(add_file(o, from->path, &f));
    LATHE_TRY(keep_file(o, f, fcntl(from->fd, F_DUPFD_CLOEXEC, 0), out));
    o->files[*out].was = from->was;
    return LATHE_OK;
}

/* Whether the tensor of the earlier origin, rounded to the dtype of `t`, equals `t` bit by bit.
 * part: two buffers of PART elements, 8 bytes each. */
static lathe_status gives(const lathe_weight_origin *earlier, int32_t param,
                          const lathe_st_tensor *t, char *part, int *out)
{
    const int32_t dtype = lathe_weight_origin_dtype(earlier, param);
    const int64_t n = lathe_desc_count(&t->desc), size = lathe_dtype_bytes(t->desc.dtype);
    *out = 0;
    if (dtype < 0 || earlier->rows[param].bytes != n * lathe_dtype_bytes(dtype))
        return LATHE_OK;
    for (int64_t at = 0; at < n; at += PART) {
        const int64_t m = n - at < PART ? n - at : PART;
        char *rounded = part + PART * 8;
        LATHE_TRY(lathe_weight_origin_read(earlier, param, at * lathe_dtype_bytes(dtype), part,
                                           m * lathe_dtype_bytes(dtype)));
        LATHE_TRY(lathe_convert(rounded, t->desc.dtype, part, dtype, m));
        if (memcmp(rounded, (const char *)t->data + at * size, (size_t)(m * size)) != 0)
            return LATHE_OK;
    }
    *out = 1;
    return LATHE_OK;
}

static lathe_status add_row(lathe_weight_origin *o, int32_t param, const lathe_st_tensor *t,
                            const lathe_weight_origin *earlier, char *part)
{
    origin_row *row = &o->rows[param];
    int32_t file;
    int same = 0;
    if (earlier != NULL && t->decode == NULL)
        LATHE_TRY(gives(earlier, param, t, part, &same));
    if (same) {
        LATHE_TRY(share_file(o, &earlier->files[earlier->rows[param].file], &file));
        *row = earlier->rows[param];
        if (row->coded != NULL && o->set == NULL)
            o->set = lathe_safetensors_hold(earlier->set);
    } else {
        LATHE_TRY(take_file(o, t->file, &file));
        *row = (origin_row){0, t->desc.dtype, t->offset, lathe_desc_bytes(&t->desc),
                            t->decode != NULL ? t : NULL};
    }
    row->file = file;
    return LATHE_OK;
}

static lathe_status add_rows(lathe_weight_origin *o, const lathe_safetensors *set,
                             const lathe_model_config *config, const lathe_params *params,
                             const lathe_weight_origin *earlier)
{
    lathe_status status = LATHE_OK;
    char *part = earlier != NULL ? malloc((size_t)PART * 16) : NULL;
    if (earlier != NULL && part == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to compare weights that do not train");
    for (int32_t i = 0; i < params->n && status == LATHE_OK; i++) {
        const lathe_param *row = params->rows[i];
        if (lathe_param_changes(row) || !lathe_weights_is_model_row(row))
            continue;
        const lathe_st_tensor *t = lathe_weights_find(set, config, row->name);
        if (t != NULL)
            status = add_row(o, i, t, earlier, part);
        if (t != NULL && t->decode != NULL && o->set == NULL)
            o->set = lathe_safetensors_hold(set);
    }
    free(part);
    return status;
}

lathe_status lathe_weight_origin_create(const lathe_safetensors *set,
                                        const lathe_model_config *config,
                                        const lathe_params *params,
                                        const lathe_weight_origin *earlier,
                                        lathe_weight_origin **out)
{
    *out = NULL;
    lathe_weight_origin *o = calloc(1, sizeof *o);
    if (o != NULL)
        o->rows = calloc((size_t)params->n + 1, sizeof *o->rows);
    if (o == NULL || o->rows == NULL) {
        lathe_weight_origin_destroy(o);
        return lathe_error(LATHE_E_NOMEM, "no memory for the places of weights");
    }
    o->n_rows = params->n;
    for (int32_t i = 0; i < params->n; i++)
        o->rows[i].file = -1;
    const lathe_status status = add_rows(o, set, config, params, earlier);
    if (status != LATHE_OK) {
        lathe_weight_origin_destroy(o);
        return status;
    }
    *out = o;
    return LATHE_OK;
}
