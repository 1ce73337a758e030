/* Opens GGUF files and checks everything in them. */
#include "files/gguf/gguf_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "base/utf8.h"

#define MAX_TENSORS 262144
#define MAX_KEYS 65536
#define MAX_NAME 1024
#define MAX_ALIGNMENT (1 << 20)

struct lathe_gguf {
    lathe_arena arena; /* names */
    lathe_map map;     /* of an opened file */
    const char *path;
    lathe_gguf_entry *values; /* sorted by key */
    int64_t n_values;
    lathe_gguf_tensor *tensors; /* sorted by name */
    int64_t n_tensors;
};

/* A walk over the bytes of the file: nothing from `end` on is read. */
typedef struct walk {
    const char *name; /* of the file */
    const uint8_t *begin, *at, *end;
} walk;

/* "FILE: at byte N: " before the message of a failed step is added by the callers, which know the
 * key or the tensor. */
static lathe_status truncated(const walk *w, const char *what)
{
    return lathe_error(LATHE_E_CORRUPT,
                       "%s: the file ends at byte %lld, inside %s: it was cut short, or a count in "
                       "it is wrong",
                       w->name, (long long)(w->end - w->begin), what);
}

static lathe_status read_u64(walk *w, const char *what, uint64_t *out)
{
    if (w->end - w->at < 8)
        return truncated(w, what);
    memcpy(out, w->at, 8);
    w->at += 8;
    return LATHE_OK;
}

static lathe_status read_u32(walk *w, const char *what, uint32_t *out)
{
    if (w->end - w->at < 4)
        return truncated(w, what);
    memcpy(out, w->at, 4);
    w->at += 4;
    return LATHE_OK;
}

/* Reads a text and checks it. */
static lathe_status read_text(walk *w, const char *what, const char **out, int64_t *out_bytes)
{
    const long long place = w->at - w->begin;
    uint64_t n = 0;
    LATHE_TRY(read_u64(w, what, &n));
    if (n > (uint64_t)(w->end - w->at))
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: at byte %lld, in %s: a text of %llu bytes, but only %lld bytes "
                           "follow: the file was cut short, or the length is wrong",
                           w->name, place, what, (unsigned long long)n,
                           (long long)(w->end - w->at));
    if (memchr(w->at, 0, (size_t)n) != NULL)
        return lathe_error(LATHE_E_CORRUPT, "%s: at byte %lld, in %s: a text with a NUL in it",
                           w->name, place, what);
    if (lathe_utf8_prefix(w->at, (int64_t)n) != (int64_t)n)
        return lathe_error(LATHE_E_CORRUPT, "%s: at byte %lld, in %s: a text that is not UTF-8",
                           w->name, place, what);
    *out = (const char *)w->at;
    *out_bytes = (int64_t)n;
    w->at += n;
    return LATHE_OK;
}

/* Reads the name of a key or tensor into the arena. */
static lathe_status read_name(walk *w, lathe_arena *arena, const char *what, const char **out)
{
    const char *text;
    int64_t n;
    LATHE_TRY(read_text(w, what, &text, &n));
    if (n == 0 || n > MAX_NAME)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: before byte %lld, in %s: a name of %lld bytes; expected 1 to %d",
                           w->name, (long long)(w->at - w->begin), what, (long long)n, MAX_NAME);
    *out = lathe_arena_strndup(arena, text, n);
    return *out != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

/* ---- keys ---- */

/* Bytes of a value of fixed size; 0: text, array or unknown. */
static int64_t value_bytes(int32_t type)
{
    static const int8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type >= 0 && type < (int32_t)sizeof bytes ? bytes[type] : 0;
}

static lathe_status unknown_type(const walk *w, const char *key, int64_t type)
{
    return lathe_error(LATHE_E_CORRUPT,
                       "%s: key %s has a value of type %lld; expected 0 to 12, arrays not nested",
                       w->name, key, (long long)type);
}

/* Passes the elements of value v, which have its type. */
static lathe_status read_elements(walk *w, lathe_gguf_entry *v)
{
    const int64_t each = value_bytes(v->type);
    v->data = w->at;
    if (v->type == LATHE_GGUF_TEXT) {
        const char *text;
        int64_t n;
        for (int64_t i = 0; i < v->n; i++)
            LATHE_TRY(read_text(w, v->key, &text, &n));
    } else if (each == 0) {
        return unknown_type(w, v->key, v->type);
    } else if (v->n > (w->end - w->at) / each) {
        return truncated(w, v->key);
    } else {
        w->at += v->n * each;
    }
    v->end = w->at;
    for (const uint8_t *b = v->data; v->type == LATHE_GGUF_BOOL && b < v->end; b++)
        if (*b > 1)
            return lathe_error(LATHE_E_CORRUPT, "%s: key %s: a bool is %d; expected 0 or 1",
                               w->name, v->key, *b);
    return LATHE_OK;
}

static lathe_status read_value(walk *w, lathe_arena *arena, lathe_gguf_entry *v)
{
    uint32_t type = 0;
    uint64_t n = 1;
    LATHE_TRY(read_name(w, arena, "the keys", &v->key));
    LATHE_TRY(read_u32(w, v->key, &type));
    if (type > LATHE_GGUF_DOUBLE)
        return unknown_type(w, v->key, type);
    if (type == LATHE_GGUF_ARRAY) {
        LATHE_TRY(read_u32(w, v->key, &type));
        LATHE_TRY(read_u64(w, v->key, &n));
        if (type > LATHE_GGUF_DOUBLE || type == LATHE_GGUF_ARRAY)
            return unknown_type(w, v->key, type);
        v->is_array = 1;
        if (n > (uint64_t)(w->end - w->at))
            return truncated(w, v->key);
    }
    v->type = (int32_t)type;
    v->n = (int64_t)n;
    return read_elements(w, v);
}

static int key_order(const void *a, const void *b)
{
    return strcmp(((const lathe_gguf_entry *)a)->key, ((const lathe_gguf_entry *)b)->key);
}

static lathe_status read_values(walk *w, lathe_gguf *file, int64_t n)
{
    file->values = calloc((size_t)(n > 0 ? n : 1), sizeof *file->values);
    if (file->values == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for its keys", w->name);
    file->n_values = n;
    for (int64_t i = 0; i < n; i++)
        LATHE_TRY(read_value(w, &file->arena, &file->values[i]));
    qsort(file->values, (size_t)n, sizeof *file->values, key_order);
    for (int64_t i = 1; i < n; i++)
        if (strcmp(file->values[i - 1].key, file->values[i].key) == 0)
            return lathe_error(LATHE_E_CORRUPT, "%s: the key %s is there twice", w->name,
                               file->values[i].key);
    return LATHE_OK;
}

/* ---- tensors ---- */

static lathe_status read_shape(walk *w, lathe_gguf_tensor *t)
{
    uint32_t rank = 0;
    int64_t count = 1;
    LATHE_TRY(read_u32(w, t->name, &rank));
    if (rank < 1 || rank > LATHE_MAX_RANK)
        return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s has %u dimensions; expected 1 to %d",
                           w->name, t->name, rank, LATHE_MAX_RANK);
    t->rank = (int32_t)rank;
    for (int32_t i = 0; i < LATHE_MAX_RANK; i++)
        t->dims[i] = 1;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        uint64_t dim = 0;
        LATHE_TRY(read_u64(w, t->name, &dim));
        if (dim < 1 || dim > INT64_MAX || __builtin_mul_overflow(count, (int64_t)dim, &count))
            return lathe_error(LATHE_E_CORRUPT,
                               "%s: tensor %s has a dimension of %llu: none may be 0, and their "
                               "product must be below 2^63",
                               w->name, t->name, (unsigned long long)dim);
        t->dims[i] = (int64_t)dim;
    }
    t->cols = t->dims[t->rank - 1];
    t->rows = count / t->cols;
    return LATHE_OK;
}

static lathe_status refuse_type(const walk *w, const lathe_gguf_tensor *t, uint32_t type)
{
    const char *name = lathe_gguf_type_name(type);
    if (name == NULL)
        return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s has type %u, which GGUF does not have",
                           w->name, t->name, type);
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "%s: tensor %s has type %s, which Lathe does not read; it reads F32, F16, "
                       "BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K",
                       w->name, t->name, name);
}

/* Reads the entry of a tensor; *out_offset: its place in the data. */
static lathe_status read_tensor(walk *w, lathe_arena *arena, lathe_gguf_tensor *t,
                                uint64_t *out_offset)
{
    uint32_t type = 0;
    LATHE_TRY(read_name(w, arena, "the list of tensors", &t->name));
    LATHE_TRY(read_shape(w, t));
    LATHE_TRY(read_u32(w, t->name, &type));
    t->type = type <= INT32_MAX ? lathe_gguf_type_of((int32_t)type) : NULL;
    if (t->type == NULL)
        return refuse_type(w, t, type);
    if (t->cols % t->type->block != 0)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: tensor %s has rows of %lld elements, which is no multiple of the "
                           "block of %s, %d",
                           w->name, t->name, (long long)t->cols, t->type->name, t->type->block);
    const int64_t row = t->cols / t->type->block;
    if (__builtin_mul_overflow(row, (int64_t)t->type->bytes, &t->bytes) ||
        __builtin_mul_overflow(t->bytes, t->rows, &t->bytes))
        return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s: its size overflows 64 bits", w->name,
                           t->name);
    return read_u64(w, t->name, out_offset);
}

static lathe_status place(const walk *w, lathe_gguf_tensor *t, uint64_t offset, int64_t alignment,
                          const uint8_t *data)
{
    const int64_t n = w->end - data;
    if (offset % (uint64_t)alignment != 0)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: tensor %s begins at byte %llu of the data, which is no multiple of "
                           "the alignment, %lld",
                           w->name, t->name, (unsigned long long)offset, (long long)alignment);
    if (offset > (uint64_t)n || t->bytes > n - (int64_t)offset)
        return lathe_error(
            LATHE_E_CORRUPT,
            "%s: tensor %s takes %lld bytes from byte %llu of the data, but the "
            "data have %lld: the file was cut short, or its list of tensors is wrong",
            w->name, t->name, (long long)t->bytes, (unsigned long long)offset, (long long)n);
    t->data = data + offset;
    return LATHE_OK;
}

static int data_order(const void *a, const void *b)
{
    const lathe_gguf_tensor *x = a, *y = b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static int name_order(const void *a, const void *b)
{
    return strcmp(((const lathe_gguf_tensor *)a)->name, ((const lathe_gguf_tensor *)b)->name);
}

/* Checks that no two tensors share bytes or a name, and sorts by name. */
static lathe_status sort_tensors(const walk *w, lathe_gguf_tensor *list, int64_t n)
{
    qsort(list, (size_t)n, sizeof *list, data_order);
    for (int64_t i = 1; i < n; i++)
        if (list[i - 1].data + list[i - 1].bytes > list[i].data)
            return lathe_error(LATHE_E_CORRUPT, "%s: tensors %s and %s overlap", w->name,
                               list[i - 1].name, list[i].name);
    qsort(list, (size_t)n, sizeof *list, name_order);
    for (int64_t i = 1; i < n; i++)
        if (strcmp(list[i - 1].name, list[i].name) == 0)
            return lathe_error(LATHE_E_CORRUPT, "%s: the tensor %s is there twice", w->name,
                               list[i].name);
    return LATHE_OK;
}

static lathe_status read_alignment(const lathe_gguf *file, int64_t *out)
{
    LATHE_TRY(lathe_gguf_int(file, "general.alignment", 1, MAX_ALIGNMENT, 32, out));
    if ((*out & (*out - 1)) != 0)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: general.alignment is %lld; expected a power of two", file->path,
                           (long long)*out);
    return LATHE_OK;
}

/* Refuses a part of a model that is split into several files. */
static lathe_status refuse_parts(const lathe_gguf *file)
{
    int64_t n;
    LATHE_TRY(lathe_gguf_int(file, "split.count", 0, UINT16_MAX, 0, &n));
    if (n <= 1)
        return LATHE_OK;
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "%s: is one of %lld parts of a model; join them first: "
                       "llama-gguf-split --merge FIRST-PART OUT.gguf",
                       file->path, (long long)n);
}

static lathe_status read_tensors(walk *w, lathe_gguf *file, int64_t n)
{
    int64_t alignment;
    LATHE_TRY(read_alignment(file, &alignment));
    LATHE_TRY(refuse_parts(file));
    file->tensors = calloc((size_t)(n > 0 ? n : 1), sizeof *file->tensors);
    uint64_t *offsets = calloc((size_t)(n > 0 ? n : 1), sizeof *offsets);
    lathe_status status = LATHE_OK;
    if (file->tensors == NULL || offsets == NULL)
        status = lathe_error(LATHE_E_NOMEM, "%s: no memory for its list of tensors", w->name);
    else
        file->n_tensors = n;
    for (int64_t i = 0; i < n && status == LATHE_OK; i++)
        status = read_tensor(w, &file->arena, &file->tensors[i], &offsets[i]);
    const int64_t at = w->at - w->begin;
    const int64_t data = (at + alignment - 1) / alignment * alignment;
    if (status == LATHE_OK && n > 0 && data > w->end - w->begin)
        status = truncated(w, "the padding before the data");
    for (int64_t i = 0; i < n && status == LATHE_OK; i++)
        status = place(w, &file->tensors[i], offsets[i], alignment, w->begin + data);
    free(offsets);
    return status == LATHE_OK ? sort_tensors(w, file->tensors, n) : status;
}

/* ---- the file ---- */

static lathe_status read_header(walk *w, uint64_t *out_tensors, uint64_t *out_keys)
{
    uint32_t version = 0;
    if (w->end - w->at < 4 || memcmp(w->at, "GGUF", 4) != 0)
        return lathe_error(LATHE_E_CORRUPT, "%s: is no GGUF file: it does not begin with \"GGUF\"",
                           w->name);
    w->at += 4;
    LATHE_TRY(read_u32(w, "the header", &version));
    if ((version & 0xffff) == 0)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: is a big-endian GGUF file; expected a little-endian one", w->name);
    if (version != 2 && version != 3)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: is GGUF of version %u; expected 2 or 3",
                           w->name, version);
    LATHE_TRY(read_u64(w, "the header", out_tensors));
    LATHE_TRY(read_u64(w, "the header", out_keys));
    /* A tensor takes at least 33 bytes, a key 14. */
    if (*out_tensors > MAX_TENSORS || *out_tensors > (uint64_t)(w->end - w->at) / 33)
        return lathe_error(
            LATHE_E_CORRUPT, "%s: says that it has %llu tensors, more than its %lld bytes can list",
            w->name, (unsigned long long)*out_tensors, (long long)(w->end - w->begin));
    if (*out_keys > MAX_KEYS || *out_keys > (uint64_t)(w->end - w->at) / 14)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: says that it has %llu keys, more than its %lld bytes can hold",
                           w->name, (unsigned long long)*out_keys, (long long)(w->end - w->begin));
    return LATHE_OK;
}

static lathe_status read_all(lathe_gguf *file, const uint8_t *data, int64_t bytes)
{
    walk w = {file->path, data, data, data + bytes};
    uint64_t n_tensors = 0, n_keys = 0;
    if (bytes == 0)
        return lathe_error(LATHE_E_CORRUPT, "%s: is no GGUF file: it is empty", file->path);
    LATHE_TRY(read_header(&w, &n_tensors, &n_keys));
    LATHE_TRY(read_values(&w, file, (int64_t)n_keys));
    return read_tensors(&w, file, (int64_t)n_tensors);
}

static lathe_status create(const char *path, lathe_gguf **out)
{
    lathe_gguf *file = calloc(1, sizeof *file);
    if (file != NULL)
        file->path = lathe_arena_strdup(&file->arena, path);
    if (file == NULL || file->path == NULL) {
        lathe_gguf_close(file);
        return lathe_error(LATHE_E_NOMEM, "%s: no memory to open it", path);
    }
    *out = file;
    return LATHE_OK;
}

lathe_status lathe_gguf_parse(const char *name, const void *data, int64_t bytes, lathe_gguf **out)
{
    lathe_gguf *file = NULL;
    *out = NULL;
    LATHE_TRY(create(name, &file));
    const lathe_status status = read_all(file, data, bytes);
    if (status == LATHE_OK)
        *out = file;
    else
        lathe_gguf_close(file);
    return status;
}

static lathe_status map_and_read(lathe_gguf *file, const char *path)
{
    LATHE_TRY(lathe_map_open(path, &file->map));
    LATHE_TRY(read_all(file, file->map.data, file->map.bytes));
    return lathe_map_check(&file->map);
}

lathe_status lathe_gguf_open(const char *path, lathe_gguf **out)
{
    lathe_gguf *file = NULL;
    *out = NULL;
    LATHE_TRY(create(path, &file));
    const lathe_status status = map_and_read(file, path);
    if (status != LATHE_OK) {
        lathe_gguf_close(file);
        return status;
    }
    *out = file;
    return LATHE_OK;
}

lathe_status lathe_gguf_check(const lathe_gguf *file)
{
    return file->map.data != NULL ? lathe_map_check(&file->map) : LATHE_OK;
}

void lathe_gguf_close(lathe_gguf *file)
{
    if (file == NULL)
        return;
    if (file->map.data != NULL)
        lathe_map_close(&file->map);
    free(file->values);
    free(file->tensors);
    lathe_arena_fini(&file->arena);
    free(file);
}

const char *lathe_gguf_path(const lathe_gguf *file)
{
    return file->path;
}

int64_t lathe_gguf_count(const lathe_gguf *file)
{
    return file->n_tensors;
}

const lathe_gguf_tensor *lathe_gguf_at(const lathe_gguf *file, int64_t i)
{
    return &file->tensors[i];
}

const lathe_gguf_tensor *lathe_gguf_find(const lathe_gguf *file, const char *name)
{
    const lathe_gguf_tensor key = {.name = name};
    return bsearch(&key, file->tensors, (size_t)file->n_tensors, sizeof key, name_order);
}

int64_t lathe_gguf_value_count(const lathe_gguf *file)
{
    return file->n_values;
}

const lathe_gguf_entry *lathe_gguf_value_at(const lathe_gguf *file, int64_t i)
{
    return &file->values[i];
}

const lathe_gguf_entry *lathe_gguf_value(const lathe_gguf *file, const char *key)
{
    const lathe_gguf_entry wanted = {.key = key};
    lathe_gguf_entry *found =
        bsearch(&wanted, file->values, (size_t)file->n_values, sizeof wanted, key_order);
    if (found != NULL) /* of several threads that read, each writes the same */
        __atomic_store_n(&found->is_read, 1, __ATOMIC_RELAXED);
    return found;
}
