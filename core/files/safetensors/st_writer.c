/* Writes safetensors: layout, shards, headers, and a durable finish. */
#include "files/safetensors/st_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/unfinished.h"
#include "files/safetensors/safetensors.h"

typedef struct entry {
    const char *name;
    const char *header; /* lathe_st_tensor.header; NULL: desc says it */
    lathe_desc desc;
    int32_t aligned_as; /* dtype that decides the place in the file */
    int64_t bytes;
    _Atomic int64_t written;
    int64_t offset; /* offset of its data in the file */
    int32_t shard;
} entry;

typedef struct shard {
    const char *path, *temporary;
    int fd;
} shard;

struct lathe_st_writer {
    lathe_arena arena;
    const char *dir, *base;
    int64_t max_shard_bytes, total_bytes;
    entry *entries; /* in the order of add */
    int64_t n, capacity;
    shard *shards;
    int32_t n_shards;
    lathe_buffer metadata; /* ,"key":"value" pairs */
    int32_t finished;
};

lathe_status lathe_st_writer_create(const char *dir, const char *base, int64_t max_shard_bytes,
                                    lathe_st_writer **out)
{
    *out = NULL;
    lathe_st_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a safetensors writer");
    w->dir = lathe_arena_strdup(&w->arena, dir);
    w->base = lathe_arena_strdup(&w->arena, base);
    w->max_shard_bytes = max_shard_bytes;
    if (w->dir == NULL || w->base == NULL) {
        lathe_st_writer_destroy(w);
        return LATHE_E_NOMEM;
    }
    *out = w;
    return LATHE_OK;
}

lathe_status lathe_st_writer_metadata(lathe_st_writer *w, const char *key, const char *value)
{
    if (w->shards != NULL || strcmp(key, "format") == 0)
        return lathe_error(LATHE_E_STATE, "metadata key %s: added after begin, or already present",
                           key);
    lathe_buffer_puts(&w->metadata, ",");
    lathe_buffer_json_string(&w->metadata, key);
    lathe_buffer_puts(&w->metadata, ":");
    lathe_buffer_json_string(&w->metadata, value);
    return w->metadata.status;
}

lathe_status lathe_st_writer_add(lathe_st_writer *w, const char *name, const lathe_desc *desc)
{
    if (w->shards != NULL)
        return lathe_error(LATHE_E_STATE, "tensor %s was declared after begin", name);
    if (lathe_st_dtype_text(desc->dtype) == NULL)
        return lathe_error(LATHE_E_DTYPE, "tensor %s has dtype %d, which safetensors does not have",
                           name, (int)desc->dtype);
    if (w->n == w->capacity) {
        const int64_t capacity = w->capacity * 2 + 64;
        entry *grown = realloc(w->entries, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for %lld tensors", (long long)capacity);
        w->entries = grown;
        w->capacity = capacity;
    }
    const char *copy = lathe_arena_strdup(&w->arena, name);
    if (copy == NULL)
        return LATHE_E_NOMEM;
    entry *e = &w->entries[w->n++];
    memset(e, 0, sizeof *e);
    e->name = copy;
    e->desc = *desc;
    e->aligned_as = desc->dtype;
    e->bytes = lathe_desc_bytes(desc);
    w->total_bytes += lathe_desc_bytes(desc);
    return LATHE_OK;
}

/* A dtype of the size of one that Lathe does not have, which the number in its name tells ("U32",
 * "C64"): readers view the file's bytes as elements, which must lie at multiples of their size. */
static int32_t aligned_as(const lathe_st_tensor *tensor)
{
    static const char start[] = "\"dtype\":\"";
    const char *name = tensor->header + sizeof start - 1;
    if (lathe_st_dtype_text(tensor->desc.dtype) != NULL && tensor->desc.dtype != LATHE_U8)
        return tensor->desc.dtype;
    const long bits = strtol(name + strcspn(name, "0123456789\""), NULL, 10);
    return bits == 64 ? LATHE_I64 : bits == 32 ? LATHE_I32 : bits == 16 ? LATHE_I16 : LATHE_U8;
}

lathe_status lathe_st_writer_add_copy(lathe_st_writer *w, const lathe_st_tensor *tensor)
{
    LATHE_TRY(lathe_st_writer_add(w, tensor->name, &tensor->desc));
    if (tensor->header == NULL)
        return LATHE_OK;
    const char *copy = lathe_arena_strdup(&w->arena, tensor->header);
    w->entries[w->n - 1].header = copy;
    w->entries[w->n - 1].aligned_as = aligned_as(tensor);
    return copy != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

/* ---- layout ---- */

/* Rank of a dtype in the reference implementation's order: by alignment first. */
static int dtype_rank(int32_t dtype)
{
    static const int32_t order[] = {LATHE_BOOL,    LATHE_U8,  LATHE_I8,  LATHE_F8_E5M2,
                                    LATHE_F8_E4M3, LATHE_I16, LATHE_F16, LATHE_BF16,
                                    LATHE_I32,     LATHE_F32, LATHE_F64, LATHE_I64};
    for (int i = 0; i < (int)(sizeof order / sizeof order[0]); i++)
        if (order[i] == dtype)
            return i;
    return -1;
}

static int layout_order(const void *a, const void *b)
{
    const entry *x = *(entry *const *)a, *y = *(entry *const *)b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    const int rx = dtype_rank(x->aligned_as), ry = dtype_rank(y->aligned_as);
    return rx != ry ? ry - rx : strcmp(x->name, y->name);
}

enum { NO_SHARD = -1 };

/* Makes a shard of the tensors that are waiting for one. */
static void close_shard(lathe_st_writer *w, int64_t *first, int64_t end)
{
    for (; *first < end; ++*first)
        if (w->entries[*first].shard == NO_SHARD)
            w->entries[*first].shard = w->n_shards;
    w->n_shards++;
}

/* Splits as huggingface_hub does: a tensor above the limit gets its own shard; others fill a shard
 * in order until the next one would exceed the limit. */
static void assign_shards(lathe_st_writer *w)
{
    const int64_t max = w->max_shard_bytes > 0 ? w->max_shard_bytes : INT64_MAX;
    int64_t filled = 0, first = 0, n_waiting = 0;
    w->n_shards = 0;
    for (int64_t i = 0; i < w->n; i++) {
        entry *e = &w->entries[i];
        if (e->bytes > max) {
            e->shard = w->n_shards++;
            continue;
        }
        if (n_waiting > 0 && filled + e->bytes > max) {
            close_shard(w, &first, i);
            filled = n_waiting = 0;
        }
        e->shard = NO_SHARD;
        filled += e->bytes;
        n_waiting++;
    }
    if (n_waiting > 0 || w->n_shards == 0)
        close_shard(w, &first, w->n);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(entry *const *)a)->name, (*(entry *const *)b)->name);
}

static lathe_status check_unique(entry **sorted, int64_t n)
{
    qsort(sorted, (size_t)n, sizeof(entry *), by_name);
    for (int64_t i = 1; i < n; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            return lathe_error(LATHE_E_ARG, "tensor %s was declared twice", sorted[i]->name);
    return LATHE_OK;
}

static lathe_status write_all(int fd, const char *path, const void *data, int64_t bytes,
                              int64_t offset)
{
    const char *at = data;
    char shown[PATH_MAX];
    while (bytes > 0) {
        const ssize_t done = pwrite(fd, at, (size_t)bytes, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return lathe_error(LATHE_E_IO, "%s: write: %s", lathe_path_final(path, shown),
                               strerror(done < 0 ? errno : ENOSPC));
        at += done;
        offset += done;
        bytes -= done;
    }
    return LATHE_OK;
}

static void header_entry(lathe_buffer *text, const entry *e, int64_t begin)
{
    lathe_buffer_puts(text, ",");
    lathe_buffer_json_string(text, e->name);
    lathe_buffer_puts(text, ":{");
    if (e->header != NULL)
        lathe_buffer_puts(text, e->header);
    else
        lathe_buffer_printf(text, "\"dtype\":\"%s\",\"shape\":[",
                            lathe_st_dtype_text(e->desc.dtype));
    for (int32_t d = 0; e->header == NULL && d < e->desc.rank; d++)
        lathe_buffer_printf(text, "%s%lld", d > 0 ? "," : "", (long long)e->desc.dims[d]);
    lathe_buffer_printf(text, "%s,\"data_offsets\":[%lld,%lld]}", e->header != NULL ? "" : "]",
                        (long long)begin, (long long)(begin + e->bytes));
}

static lathe_status open_failed(const char *path)
{
    const int cause = errno;
    char shown[PATH_MAX];
    return lathe_error(LATHE_E_IO, "%s: %s", lathe_path_final(path, shown), strerror(cause));
}

static lathe_status shard_open(lathe_st_writer *w, int32_t index)
{
    shard *s = &w->shards[index];
    s->path = w->n_shards == 1
                  ? lathe_arena_printf(&w->arena, "%s/%s.safetensors", w->dir, w->base)
                  : lathe_arena_printf(&w->arena, "%s/%s-%05d-of-%05d.safetensors", w->dir, w->base,
                                       (int)index + 1, (int)w->n_shards);
    s->temporary = s->path != NULL
                       ? lathe_arena_printf(&w->arena, "%s.tmp.%ld", s->path, (long)getpid())
                       : NULL;
    if (s->temporary == NULL)
        return LATHE_E_NOMEM;
    s->fd = open(s->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (s->fd < 0)
        return open_failed(s->temporary);
    return LATHE_OK;
}

/* Writes the header of shard `index` with the entries list[0..n), and places their data. */
static lathe_status shard_begin(lathe_st_writer *w, int32_t index, entry **list, int64_t n)
{
    LATHE_TRY(shard_open(w, index));
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&text, "{\"__metadata__\":{\"format\":\"pt\"");
    if (w->metadata.len > 0)
        lathe_buffer_append(&text, w->metadata.data, w->metadata.len);
    lathe_buffer_puts(&text, "}");
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        header_entry(&text, list[i], at);
        list[i]->offset = at;
        at += list[i]->bytes;
    }
    lathe_buffer_puts(&text, "}");
    while (text.status == LATHE_OK && text.len % 8 != 0)
        lathe_buffer_puts(&text, " ");
    lathe_status status = text.status;
    const int64_t length = text.len;
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)((uint64_t)length >> (8 * i));
    if (status == LATHE_OK)
        status = write_all(w->shards[index].fd, w->shards[index].path, prefix, 8, 0);
    if (status == LATHE_OK)
        status = write_all(w->shards[index].fd, w->shards[index].path, text.data, length, 8);
    for (int64_t i = 0; i < n; i++)
        list[i]->offset += 8 + length;
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status begin_sorted(lathe_st_writer *w, entry **sorted)
{
    for (int64_t i = 0; i < w->n; i++)
        sorted[i] = &w->entries[i];
    LATHE_TRY(check_unique(sorted, w->n));
    assign_shards(w);
    qsort(sorted, (size_t)w->n, sizeof(entry *), layout_order);
    w->shards = calloc((size_t)w->n_shards, sizeof *w->shards);
    if (w->shards == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %d shards", (int)w->n_shards);
    for (int32_t s = 0; s < w->n_shards; s++)
        w->shards[s].fd = -1;
    int64_t first = 0;
    for (int32_t s = 0; s < w->n_shards; s++) {
        int64_t end = first;
        while (end < w->n && sorted[end]->shard == s)
            end++;
        LATHE_TRY(shard_begin(w, s, sorted + first, end - first));
        first = end;
    }
    return LATHE_OK;
}

lathe_status lathe_st_writer_begin(lathe_st_writer *w)
{
    if (w->shards != NULL)
        return lathe_error(LATHE_E_STATE, "the safetensors writer has already begun");
    entry **sorted = calloc((size_t)w->n + 1, sizeof *sorted);
    if (sorted == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld tensors", (long long)w->n);
    const lathe_status status = begin_sorted(w, sorted);
    free(sorted);
    return status;
}

/* The entry of a tensor that may be written now; NULL after recording an error. */
static entry *open_entry(lathe_st_writer *w, int64_t index)
{
    if (w->shards != NULL && !w->finished && index >= 0 && index < w->n)
        return &w->entries[index];
    (void)lathe_error(LATHE_E_STATE,
                      "safetensors write of tensor %lld of %lld outside begin and finish",
                      (long long)index, (long long)w->n);
    return NULL;
}

lathe_status lathe_st_writer_write_piece(lathe_st_writer *w, int64_t index, int64_t offset,
                                         const void *data, int64_t bytes)
{
    entry *e = open_entry(w, index);
    if (e == NULL)
        return LATHE_E_STATE;
    if (offset < 0 || bytes < 0 || offset > e->bytes || bytes > e->bytes - offset)
        return lathe_error(LATHE_E_ARG, "tensor %s: bytes %lld..%lld written, it has %lld", e->name,
                           (long long)offset, (long long)(offset + bytes), (long long)e->bytes);
    LATHE_TRY(write_all(w->shards[e->shard].fd, w->shards[e->shard].temporary, data, bytes,
                        e->offset + offset));
    atomic_fetch_add(&e->written, bytes);
    return LATHE_OK;
}

lathe_status lathe_st_writer_write(lathe_st_writer *w, int64_t index, int64_t offset,
                                   const void *data, int64_t bytes)
{
    entry *e = open_entry(w, index);
    if (e == NULL)
        return LATHE_E_STATE;
    const int64_t written = atomic_load(&e->written);
    if (offset != written || bytes < 0 || bytes > e->bytes - offset)
        return lathe_error(
            LATHE_E_ARG, "tensor %s: bytes %lld..%lld written, expected from %lld, at most to %lld",
            e->name, (long long)offset, (long long)(offset + bytes), (long long)written,
            (long long)e->bytes);
    return lathe_st_writer_write_piece(w, index, offset, data, bytes);
}

/* ---- finish ---- */

/* Writes the index as transformers does: keys in its order, tensors by name. */
static void put_index(const lathe_st_writer *w, entry *const *sorted, lathe_buffer *text)
{
    int64_t n_elements = 0;
    for (int64_t i = 0; i < w->n; i++)
        n_elements += lathe_desc_count(&w->entries[i].desc);
    lathe_buffer_printf(text,
                        "{\n  \"metadata\": {\n    \"total_parameters\": %lld,\n"
                        "    \"total_size\": %lld\n  },\n  \"weight_map\": {",
                        (long long)n_elements, (long long)w->total_bytes);
    for (int64_t i = 0; i < w->n; i++) {
        lathe_buffer_puts(text, i > 0 ? ",\n    " : "\n    ");
        lathe_buffer_json_string(text, sorted[i]->name);
        lathe_buffer_puts(text, ": ");
        lathe_buffer_json_string(text, strrchr(w->shards[sorted[i]->shard].path, '/') + 1);
    }
    lathe_buffer_puts(text, "\n  }\n}\n");
}

static lathe_status write_index(lathe_st_writer *w, const char *path)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    entry **sorted = calloc((size_t)w->n + 1, sizeof *sorted);
    if (sorted == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the index of %lld tensors",
                           (long long)w->n);
    for (int64_t i = 0; i < w->n; i++)
        sorted[i] = &w->entries[i];
    qsort(sorted, (size_t)w->n, sizeof *sorted, by_name);
    put_index(w, sorted, &text);
    free(sorted);
    lathe_status status = text.status;
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(path, text.data, text.len);
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status shard_finish(shard *s)
{
    char shown[PATH_MAX];
    const int synced = fsync(s->fd), sync_errno = errno;
    const int closed = close(s->fd);
    s->fd = -1;
    if (synced != 0 || closed != 0)
        return lathe_error(LATHE_E_IO, "%s: fsync: %s", lathe_path_final(s->temporary, shown),
                           strerror(synced != 0 ? sync_errno : errno));
    if (rename(s->temporary, s->path) != 0)
        return lathe_error(LATHE_E_IO, "%s: rename: %s", lathe_path_final(s->path, shown),
                           strerror(errno));
    s->temporary = NULL;
    return LATHE_OK;
}

lathe_status lathe_st_writer_finish(lathe_st_writer *w)
{
    if (w->shards == NULL || w->finished)
        return lathe_error(LATHE_E_STATE, "finish of a safetensors writer that is not open");
    for (int64_t i = 0; i < w->n; i++)
        if (atomic_load(&w->entries[i].written) != w->entries[i].bytes)
            return lathe_error(LATHE_E_STATE, "tensor %s: %lld of %lld bytes were written",
                               w->entries[i].name, (long long)atomic_load(&w->entries[i].written),
                               (long long)w->entries[i].bytes);
    for (int32_t s = 0; s < w->n_shards; s++)
        LATHE_TRY(shard_finish(&w->shards[s]));
    const char *index =
        lathe_arena_printf(&w->arena, "%s/%s.safetensors.index.json", w->dir, w->base);
    const char *single = lathe_arena_printf(&w->arena, "%s/%s.safetensors", w->dir, w->base);
    if (index == NULL || single == NULL)
        return LATHE_E_NOMEM;
    if (w->n_shards > 1)
        LATHE_TRY(write_index(w, index));
    const char *stale = w->n_shards > 1 ? single : index;
    if (unlink(stale) != 0 && errno != ENOENT)
        return lathe_error(LATHE_E_IO, "%s: unlink: %s", stale, strerror(errno));
    LATHE_TRY(lathe_dir_sync(w->dir));
    w->finished = 1;
    return LATHE_OK;
}

void lathe_st_writer_destroy(lathe_st_writer *w)
{
    if (w == NULL)
        return;
    for (int32_t s = 0; w->shards != NULL && s < w->n_shards; s++) {
        if (w->shards[s].fd >= 0)
            (void)close(w->shards[s].fd);
        if (w->shards[s].temporary != NULL)
            (void)unlink(w->shards[s].temporary);
    }
    free(w->shards);
    free(w->entries);
    lathe_buffer_fini(&w->metadata);
    lathe_arena_fini(&w->arena);
    free(w);
}
