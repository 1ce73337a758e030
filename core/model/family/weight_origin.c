/* Records where a model's weights were read from. */
#include "model/family/weight_origin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "files/safetensors/convert.h"
#include "model/family/tower_names.h"
#include "model/family/weights.h"

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

/* A tensor of another tower. */
typedef struct carried {
    lathe_st_tensor tensor; /* texts in the arena */
    int32_t file;
} carried;

struct lathe_weight_origin {
    origin_file *files;
    int32_t n_files, capacity;
    origin_row *rows; /* [n_rows] */
    int32_t n_rows;
    lathe_safetensors *set; /* held, if a row is coded */
    carried *carried;       /* [n_carried], in the order of names */
    int64_t n_carried;
    lathe_arena arena;
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
    lathe_arena_fini(&o->arena);
    free(o->carried);
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

static lathe_status read_file(const origin_file *file, int64_t offset, void *to, int64_t bytes)
{
    char *at = to;
    while (bytes > 0) {
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

lathe_status lathe_weight_origin_read(const lathe_weight_origin *o, int32_t param, int64_t offset,
                                      void *to, int64_t bytes)
{
    const origin_row *row = &o->rows[param];
    const origin_file *file = &o->files[row->file];
    if (offset < 0 || bytes < 0 || bytes > row->bytes - offset)
        return lathe_error(LATHE_E_ARG, "%s: bytes %lld..%lld of a tensor of %lld", file->path,
                           (long long)offset, (long long)(offset + bytes), (long long)row->bytes);
    if (row->coded != NULL)
        return read_coded(o, row, offset, to, bytes);
    return read_file(file, row->offset + offset, to, bytes);
}

int64_t lathe_weight_origin_n_carried(const lathe_weight_origin *o)
{
    return o != NULL ? o->n_carried : 0;
}

const lathe_st_tensor *lathe_weight_origin_carried(const lathe_weight_origin *o, int64_t i)
{
    return &o->carried[i].tensor;
}

lathe_status lathe_weight_origin_read_carried(const lathe_weight_origin *o, int64_t i,
                                              int64_t offset, void *to, int64_t bytes)
{
    const carried *c = &o->carried[i];
    if (offset < 0 || bytes < 0 || bytes > lathe_desc_bytes(&c->tensor.desc) - offset)
        return lathe_error(LATHE_E_ARG, "%s: bytes %lld..%lld of %s", o->files[c->file].path,
                           (long long)offset, (long long)(offset + bytes), c->tensor.name);
    return read_file(&o->files[c->file], c->tensor.offset + offset, to, bytes);
}

lathe_status lathe_weight_origin_check_plain(const lathe_weight_origin *o)
{
    for (int64_t i = 0; i < lathe_weight_origin_n_carried(o); i++) {
        const lathe_st_tensor *t = &o->carried[i].tensor;
        const char *dot = strrchr(t->name, '.');
        const int is_weight =
            dot != NULL && (strncmp(dot, ".weight", 7) == 0 || strcmp(dot, ".qweight") == 0);
        if (is_weight && !lathe_convert_takes(t->desc.dtype))
            return lathe_error(LATHE_E_UNSUPPORTED,
                               "%s: '%s' of another tower is quantized, too: its weights are "
                               "carried as they are, and mean nothing without the "
                               "quantization_config, which the decoded text model must not have; "
                               "use the folder that this one was made from",
                               t->file, t->name);
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
    return keep_file(o, f, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), out);
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

static lathe_status add_carried(lathe_weight_origin *o, const lathe_st_tensor *t)
{
    carried *c = &o->carried[o->n_carried];
    *c = (carried){.tensor = *t};
    c->tensor.name = lathe_arena_strdup(&o->arena, t->name);
    c->tensor.header = t->header != NULL ? lathe_arena_strdup(&o->arena, t->header) : NULL;
    c->tensor.data = NULL;
    if (c->tensor.name == NULL || (t->header != NULL && c->tensor.header == NULL))
        return LATHE_E_NOMEM;
    LATHE_TRY(take_file(o, t->file, &c->file));
    c->tensor.file = o->files[c->file].path;
    o->n_carried++;
    return LATHE_OK;
}

/* Marks the tensors that rows take, so that one of another tower is not written twice. */
static lathe_status add_all_carried(lathe_weight_origin *o, const lathe_safetensors *set,
                                    const lathe_model_config *config, const lathe_params *params)
{
    const int64_t n = lathe_safetensors_count(set);
    uint8_t *used = config->wrapper != NULL ? calloc((size_t)n + 1, 1) : NULL;
    lathe_status status = LATHE_OK;
    if (config->wrapper == NULL)
        return LATHE_OK;
    o->carried = calloc((size_t)n + 1, sizeof *o->carried);
    if (used == NULL || o->carried == NULL)
        status = lathe_error(LATHE_E_NOMEM, "no memory for the tensors of other towers");
    for (int32_t i = 0; i < params->n && status == LATHE_OK; i++) {
        const lathe_st_tensor *t = lathe_weights_find(set, config, params->rows[i]->name);
        if (t != NULL && lathe_weights_is_model_row(params->rows[i]))
            used[t - lathe_safetensors_at(set, 0)] = 1;
    }
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        if (used[i] || !lathe_text_tower_carries(config, t->name))
            continue;
        status = t->decode == NULL
                     ? add_carried(o, t)
                     : lathe_error(LATHE_E_UNSUPPORTED,
                                   "%s: %s of another tower holds experts, which are not carried",
                                   t->file, t->name);
    }
    free(used);
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
    lathe_status status = add_rows(o, set, config, params, earlier);
    if (status == LATHE_OK)
        status = add_all_carried(o, set, config, params);
    if (status != LATHE_OK) {
        lathe_weight_origin_destroy(o);
        return status;
    }
    *out = o;
    return LATHE_OK;
}
