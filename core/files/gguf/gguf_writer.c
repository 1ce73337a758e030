/* Writes GGUF files. */
#include "files/gguf/gguf_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/stale.h"
#include "base/unfinished.h"

#define ALIGNMENT 32

struct lathe_gguf_writer {
    lathe_arena arena;
    const char *path, *temporary;
    int fd;            /* -1 before begin */
    lathe_buffer keys; /* as the file has them */
    lathe_buffer list; /* of tensors, as the file has it */
    int64_t n_keys, n_tensors;
    int64_t *bytes; /* [n_tensors] of each tensor */
    int64_t capacity;
    int64_t data_bytes;   /* of all tensors declared so far, padded */
    int64_t tensor, done; /* the tensor that is written, and its bytes so far */
    int32_t finished;
};

lathe_status lathe_gguf_writer_create(const char *path, lathe_gguf_writer **out)
{
    lathe_gguf_writer *w = calloc(1, sizeof *w);
    *out = NULL;
    if (w != NULL) {
        w->fd = -1;
        w->path = lathe_arena_strdup(&w->arena, path);
        w->temporary = lathe_arena_printf(&w->arena, "%s.tmp.%d", path, (int)getpid());
    }
    if (w == NULL || w->path == NULL || w->temporary == NULL) {
        lathe_gguf_writer_destroy(w);
        return lathe_error(LATHE_E_NOMEM, "%s: no memory to write it", path);
    }
    lathe_stale_clear(path);
    *out = w;
    return LATHE_OK;
}

/* ---- keys ---- */

static void append_u32(lathe_buffer *to, uint32_t value)
{
    lathe_buffer_append(to, &value, 4);
}

static void append_u64(lathe_buffer *to, uint64_t value)
{
    lathe_buffer_append(to, &value, 8);
}

void lathe_gguf_append_text(lathe_buffer *elements, const char *text, int64_t bytes)
{
    append_u64(elements, (uint64_t)bytes);
    lathe_buffer_append(elements, text, bytes);
}

static void put_key(lathe_gguf_writer *w, const char *key, uint32_t type)
{
    lathe_gguf_append_text(&w->keys, key, (int64_t)strlen(key));
    append_u32(&w->keys, type);
    w->n_keys++;
}

void lathe_gguf_put_u32(lathe_gguf_writer *w, const char *key, int64_t value)
{
    put_key(w, key, LATHE_GGUF_U32);
    append_u32(&w->keys, (uint32_t)value);
}

void lathe_gguf_put_float(lathe_gguf_writer *w, const char *key, double value)
{
    const float narrow = (float)value;
    put_key(w, key, LATHE_GGUF_FLOAT);
    lathe_buffer_append(&w->keys, &narrow, 4);
}

void lathe_gguf_put_bool(lathe_gguf_writer *w, const char *key, int32_t value)
{
    const uint8_t byte = value != 0;
    put_key(w, key, LATHE_GGUF_BOOL);
    lathe_buffer_append(&w->keys, &byte, 1);
}

void lathe_gguf_put_text(lathe_gguf_writer *w, const char *key, const char *text, int64_t bytes)
{
    put_key(w, key, LATHE_GGUF_TEXT);
    lathe_gguf_append_text(&w->keys, text, bytes);
}

void lathe_gguf_put_array(lathe_gguf_writer *w, const char *key, int32_t type, int64_t n,
                          const lathe_buffer *elements)
{
    put_key(w, key, LATHE_GGUF_ARRAY);
    append_u32(&w->keys, (uint32_t)type);
    append_u64(&w->keys, (uint64_t)n);
    if (elements->len > 0)
        lathe_buffer_append(&w->keys, elements->data, elements->len);
    if (elements->status != LATHE_OK && w->keys.status == LATHE_OK)
        w->keys.status = elements->status;
}

/* ---- tensors ---- */

static int64_t padded(int64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* dims: the fastest first, as the file has them. */
static lathe_status add_tensor(lathe_gguf_writer *w, const char *name, const lathe_gguf_type *type,
                               const int64_t *dims, uint32_t rank)
{
    int64_t bytes = lathe_gguf_row_bytes(type, dims[0]);
    if (w->n_tensors == w->capacity) {
        const int64_t capacity = w->capacity * 2 + 64;
        int64_t *grown = realloc(w->bytes, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return lathe_error(LATHE_E_NOMEM, "%s: no memory for its list of tensors", w->path);
        w->bytes = grown;
        w->capacity = capacity;
    }
    lathe_gguf_append_text(&w->list, name, (int64_t)strlen(name));
    append_u32(&w->list, rank);
    for (uint32_t i = 0; i < rank; i++) {
        append_u64(&w->list, (uint64_t)dims[i]);
        bytes *= i > 0 ? dims[i] : 1;
    }
    append_u32(&w->list, (uint32_t)type->type);
    append_u64(&w->list, (uint64_t)w->data_bytes);
    w->data_bytes += padded(bytes);
    w->bytes[w->n_tensors++] = bytes;
    return LATHE_OK;
}

lathe_status lathe_gguf_writer_add(lathe_gguf_writer *w, const char *name,
                                   const lathe_gguf_type *type, int64_t rows, int64_t cols)
{
    const int64_t dims[2] = {cols, rows};
    return add_tensor(w, name, type, dims, rows > 0 ? 2 : 1);
}

lathe_status lathe_gguf_writer_add_experts(lathe_gguf_writer *w, const char *name,
                                           const lathe_gguf_type *type, int64_t n, int64_t rows,
                                           int64_t cols)
{
    const int64_t dims[3] = {cols, rows, n};
    return add_tensor(w, name, type, dims, 3);
}

static lathe_status io_failed(const lathe_gguf_writer *w, const char *doing)
{
    const int cause = errno;
    char shown[PATH_MAX];
    return lathe_error(LATHE_E_IO, "%s: cannot %s: %s", lathe_path_final(w->temporary, shown),
                       doing, strerror(cause));
}

static lathe_status write_all(lathe_gguf_writer *w, const void *data, int64_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        const ssize_t n = write(w->fd, from, (size_t)bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_failed(w, "write");
        from += n;
        bytes -= n;
    }
    return LATHE_OK;
}

static lathe_status write_padding(lathe_gguf_writer *w, int64_t n)
{
    static const char zeros[ALIGNMENT];
    return write_all(w, zeros, padded(n) - n);
}

lathe_status lathe_gguf_writer_begin(lathe_gguf_writer *w)
{
    lathe_buffer head = LATHE_BUFFER_INIT;
    lathe_buffer_append(&head, "GGUF", 4);
    append_u32(&head, 3);
    append_u64(&head, (uint64_t)w->n_tensors);
    append_u64(&head, (uint64_t)w->n_keys);
    const int64_t n = head.len + w->keys.len + w->list.len;
    lathe_status status = head.status != LATHE_OK      ? head.status
                          : w->keys.status != LATHE_OK ? w->keys.status
                                                       : w->list.status;
    if (status != LATHE_OK)
        goto out;
    w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0)
        status = io_failed(w, "open");
    if (status != LATHE_OK)
        goto out;
    if ((status = write_all(w, head.data, head.len)) != LATHE_OK)
        goto out;
    if ((status = write_all(w, w->keys.data, w->keys.len)) != LATHE_OK)
        goto out;
    if ((status = write_all(w, w->list.data, w->list.len)) != LATHE_OK)
        goto out;
    status = write_padding(w, n);
out:
    lathe_buffer_fini(&head);
    return status;
}

lathe_status lathe_gguf_writer_write(lathe_gguf_writer *w, const void *data, int64_t bytes)
{
    if (w->tensor >= w->n_tensors || w->done + bytes > w->bytes[w->tensor])
        return lathe_error(LATHE_E_STATE, "%s: more data than its tensors hold", w->path);
    LATHE_TRY(write_all(w, data, bytes));
    w->done += bytes;
    if (w->done < w->bytes[w->tensor])
        return LATHE_OK;
    LATHE_TRY(write_padding(w, w->done));
    w->tensor++;
    w->done = 0;
    return LATHE_OK;
}

lathe_status lathe_gguf_writer_finish(lathe_gguf_writer *w)
{
    if (w->tensor != w->n_tensors)
        return lathe_error(LATHE_E_STATE, "%s: tensor %lld of %lld is incomplete", w->path,
                           (long long)w->tensor, (long long)w->n_tensors);
    if (fsync(w->fd) != 0 || close(w->fd) != 0) {
        w->fd = -1;
        return io_failed(w, "sync");
    }
    w->fd = -1;
    if (rename(w->temporary, w->path) != 0)
        return lathe_error(LATHE_E_IO, "%s: rename: %s", w->path, strerror(errno));
    w->finished = 1;
    return lathe_file_sync_parent(w->path);
}

void lathe_gguf_writer_destroy(lathe_gguf_writer *w)
{
    if (w == NULL)
        return;
    if (w->fd >= 0)
        (void)close(w->fd);
    if (!w->finished && w->temporary != NULL)
        (void)unlink(w->temporary);
    lathe_buffer_fini(&w->keys);
    lathe_buffer_fini(&w->list);
    free(w->bytes);
    lathe_arena_fini(&w->arena);
    free(w);
}
