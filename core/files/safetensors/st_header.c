/* Reads the header of a safetensors file, one member at a time, and checks it. */
#include "files/safetensors/st_header.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "base/json/json_record.h"

#define HEADER_LIMIT 100000000

typedef struct span {
    int64_t begin, end;
    const char *name;
} span;

static int span_order(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static lathe_status reserve(lathe_st_table *table, int64_t more)
{
    if (table->n + more <= table->capacity)
        return LATHE_OK;
    const int64_t capacity = (table->n + more) * 3 / 2 + 16;
    lathe_st_tensor *grown = realloc(table->tensors, (size_t)capacity * sizeof *grown);
    if (grown == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld tensor entries", (long long)capacity);
    table->tensors = grown;
    table->capacity = capacity;
    return LATHE_OK;
}

/* Reads the shape of an entry into desc, and its byte count into out_bytes; -1: the dtype has no
 * known size. Dimensions beyond those of a desc count in the last one. */
static lathe_status read_shape(const char *file, const char *name, const json_t *shape,
                               lathe_desc *desc, int64_t *out_bytes)
{
    const size_t rank = json_array_size(shape);
    const int64_t size = desc->dtype >= 0 ? lathe_dtype_bytes(desc->dtype) : 1;
    int64_t bytes = size;
    desc->rank = rank < LATHE_MAX_RANK ? (int32_t)rank : LATHE_MAX_RANK;
    for (size_t i = 0; i < LATHE_MAX_RANK; i++)
        desc->dims[i] = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(shape, i);
        const size_t at = i < LATHE_MAX_RANK ? i : LATHE_MAX_RANK - 1;
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s: dimension %zu is not a count", file,
                               name, i);
        const int64_t n = json_integer_value(dim);
        if (__builtin_mul_overflow(bytes, n, &bytes) ||
            __builtin_mul_overflow(desc->dims[at], n, &desc->dims[at]))
            return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s: its size overflows 64 bits", file,
                               name);
    }
    *out_bytes = desc->dtype >= 0 ? bytes : -1;
    return LATHE_OK;
}

static lathe_status refuse_kind(const char *file, const char *name, const char *dtype, size_t rank)
{
    return rank > LATHE_MAX_RANK
               ? lathe_error(LATHE_E_UNSUPPORTED,
                             "%s: tensor %s has %zu dimensions, at most %d are supported", file,
                             name, rank, LATHE_MAX_RANK)
               : lathe_error(LATHE_E_UNSUPPORTED,
                             "%s: tensor %s has dtype %s, which is not supported", file, name,
                             dtype);
}

/* Keeps the members of an entry that a desc does not say, and makes desc a list of its elements, or
 * of its bytes if the dtype is not known. An exponent byte is read as a plain byte, with its shape.
 */
static lathe_status keep_header(lathe_st_table *table, const char *dtype, const json_t *shape,
                                int is_opaque, int64_t bytes, lathe_st_tensor *t)
{
    char *dims = json_dumps(shape, JSON_COMPACT);
    t->header = dims != NULL ? lathe_arena_printf(&table->arena, "\"dtype\":\"%s\",\"shape\":%s",
                                                  dtype, dims)
                             : NULL;
    free(dims);
    if (is_opaque)
        t->desc = t->desc.dtype < 0 ? lathe_desc_1d(LATHE_U8, bytes)
                                    : lathe_desc_1d(t->desc.dtype, lathe_desc_count(&t->desc));
    return t->header != NULL ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for a header");
}

/* A name of a dtype that may be written back into a header as it is. */
static int is_plain_name(const char *dtype)
{
    const size_t n = strspn(dtype, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return n > 0 && n < 32 && dtype[n] == '\0';
}

static lathe_status read_entry(lathe_st_table *table, const char *file, const char *name,
                               const json_t *entry, int64_t data_bytes, lathe_st_tensor *t,
                               span *out)
{
    if (!json_is_object(entry))
        return lathe_error(LATHE_E_CORRUPT, "%s: entry of tensor %s is not an object", file, name);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    if (dtype == NULL)
        return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s has no dtype", file, name);
    t->desc.dtype = lathe_st_dtype_find(dtype);
    if (t->desc.dtype < 0 && (!table->takes_all || !is_plain_name(dtype)))
        return refuse_kind(file, name, dtype, 0);
    if (!json_is_array(shape))
        return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s has no shape array", file, name);
    const int is_opaque = t->desc.dtype < 0 || json_array_size(shape) > LATHE_MAX_RANK;
    if (is_opaque && !table->takes_all)
        return refuse_kind(file, name, dtype, json_array_size(shape));
    int64_t bytes = 0;
    LATHE_TRY(read_shape(file, name, shape, &t->desc, &bytes));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s: data_offsets is not [begin, end]", file,
                           name);
    out->begin = json_integer_value(begin);
    out->end = json_integer_value(end);
    if (out->begin < 0 || out->end < out->begin || out->end > data_bytes)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: tensor %s is at bytes %lld..%lld of %lld data bytes%s", file, name,
                           (long long)out->begin, (long long)out->end, (long long)data_bytes,
                           out->end > data_bytes ? ": the file is truncated" : "");
    if (bytes >= 0 && out->end - out->begin != bytes)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: tensor %s holds %lld bytes, its shape and dtype need %lld", file,
                           name, (long long)(out->end - out->begin), (long long)bytes);
    const int says_less = strcmp(dtype, is_opaque ? "" : lathe_st_dtype_text(t->desc.dtype)) != 0;
    return says_less ? keep_header(table, dtype, shape, is_opaque, out->end - out->begin, t)
                     : LATHE_OK;
}

/* Checks that the tensors cover all bytes of the data, each byte once. */
static lathe_status check_spans(const char *file, span *spans, int64_t n, int64_t data_bytes)
{
    qsort(spans, (size_t)n, sizeof *spans, span_order);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        if (spans[i].begin != at)
            return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s begins at %lld, expected %lld (%s)",
                               file, spans[i].name, (long long)spans[i].begin, (long long)at,
                               spans[i].begin < at ? "overlap" : "gap");
        at = spans[i].end;
    }
    if (at != data_bytes)
        return lathe_error(LATHE_E_CORRUPT, "%s: %lld bytes after the last tensor", file,
                           (long long)(data_bytes - at));
    return LATHE_OK;
}

static lathe_status read_metadata(lathe_st_table *table, const char *file, json_t *metadata)
{
    if (!json_is_object(metadata))
        return lathe_error(LATHE_E_CORRUPT, "%s: __metadata__ is not an object", file);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return lathe_error(LATHE_E_CORRUPT, "%s: __metadata__ key %s is not a string", file,
                               key);
        if (json_object_get(table->metadata, key) == NULL &&
            json_object_set(table->metadata, key, value) != 0)
            return lathe_error(LATHE_E_NOMEM, "%s: no memory for its metadata", file);
    }
    return LATHE_OK;
}

/* Adds one member of the header: a tensor, or the metadata. */
static lathe_status add_member(lathe_st_table *table, const char *file, const char *name,
                               json_t *value, const uint8_t *data, int64_t data_bytes,
                               int64_t file_bytes, span *spans, int64_t *n_spans)
{
    if (strcmp(name, "__metadata__") == 0)
        return read_metadata(table, file, value);
    lathe_st_tensor *t = &table->tensors[table->n];
    *t = (lathe_st_tensor){.name = NULL};
    span *s = &spans[*n_spans];
    t->file = file;
    t->name = name;
    LATHE_TRY(read_entry(table, file, name, value, data_bytes, t, s));
    t->data = data + s->begin;
    t->offset = file_bytes - data_bytes + s->begin;
    s->name = name;
    table->n++;
    ++*n_spans;
    return LATHE_OK;
}

/* Appends the tensors of a checked header; parses its members one at a time. */
static lathe_status add_members(lathe_st_table *table, const char *file, const char *header,
                                int64_t length, const uint8_t *data, int64_t data_bytes,
                                span *spans)
{
    lathe_json_string key;
    const char *text;
    int64_t n = 0, n_text;
    for (const char *at = header;
         lathe_json_record_next(&at, header + length, &key, &text, &n_text);) {
        char *name = lathe_arena_alloc(&table->arena, key.n + 1);
        json_t *value = NULL;
        if (name == NULL)
            return LATHE_E_NOMEM;
        name[lathe_json_unescape(key.text, key.n_raw, name)] = '\0';
        lathe_status status = lathe_json_load(name, text, n_text, &value);
        status = status == LATHE_OK
                     ? add_member(table, file, name, value, data, data_bytes,
                                  8 + length + data_bytes, spans, &n)
                     : lathe_error_context(status == LATHE_E_NOMEM ? status : LATHE_E_CORRUPT,
                                           "%s: entry", file);
        json_decref(value);
        LATHE_TRY(status);
    }
    return check_spans(file, spans, n, data_bytes);
}

/* Counts the header's members. Refuses a header whose members, about a hundred bytes of memory
 * each, would need much more memory than the file has bytes. Only a file of empty tensors can. */
static lathe_status count_members(const char *file, const char *header, int64_t length,
                                  int64_t file_bytes, int64_t *out)
{
    const int64_t each = (int64_t)(2 * sizeof(lathe_st_tensor) + sizeof(span)) + 64;
    lathe_json_string key;
    const char *value;
    int64_t n = 0, n_value;
    for (const char *at = header;
         lathe_json_record_next(&at, header + length, &key, &value, &n_value);)
        n++;
    *out = n;
    if (n * each <= file_bytes + ((int64_t)64 << 20))
        return LATHE_OK;
    return lathe_error(LATHE_E_CORRUPT,
                       "%s: a header of %lld tensors in a file of %lld bytes: refused, it would "
                       "take many times the file's size in memory",
                       file, (long long)n, (long long)file_bytes);
}

static lathe_status check_header(const char *file, const char *header, int64_t length)
{
    lathe_json_record *record = calloc(1, sizeof *record);
    if (record == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for its header", file);
    lathe_status status = LATHE_OK;
    int64_t line, column;
    const int read = lathe_json_record_read(record, header, length, NULL, 0, NULL);
    if (read < 0) {
        status = lathe_error(LATHE_E_NOMEM, "%s: no memory for its header", file);
    } else if (read == 0) {
        lathe_json_record_place(record, &line, &column);
        status = lathe_error(LATHE_E_CORRUPT, "safetensors header: %s:%lld:%lld: %s", file,
                             (long long)line, (long long)column, record->walk.what);
    } else if (header[strspn(header, " \t\r\n")] != '{') {
        status = lathe_error(LATHE_E_CORRUPT, "%s: the header is not a JSON object", file);
    }
    lathe_json_record_fini(record);
    free(record);
    return status;
}

static lathe_status add_header(lathe_st_table *table, const char *file, const char *header,
                               int64_t length, const uint8_t *data, int64_t data_bytes)
{
    int64_t n;
    LATHE_TRY(check_header(file, header, length));
    LATHE_TRY(count_members(file, header, length, 8 + length + data_bytes, &n));
    LATHE_TRY(reserve(table, n));
    span *spans = malloc((size_t)(n + 1) * sizeof *spans);
    if (spans == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for %lld entries", file, (long long)n);
    const lathe_status status = add_members(table, file, header, length, data, data_bytes, spans);
    free(spans);
    return status;
}

lathe_status lathe__st_table_add(lathe_st_table *table, const char *file, const uint8_t *bytes,
                                 int64_t n)
{
    if (n < 8)
        return lathe_error(LATHE_E_CORRUPT, "%s: %lld bytes are too few for a safetensors file",
                           file, (long long)n);
    uint64_t length = 0;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)bytes[i] << (8 * i);
    if (length > HEADER_LIMIT)
        return lathe_error(LATHE_E_CORRUPT, "%s: a header of %llu bytes, at most %d are allowed",
                           file, (unsigned long long)length, HEADER_LIMIT);
    if ((int64_t)length > n - 8)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: the header has %llu bytes, the file only %lld: truncated", file,
                           (unsigned long long)length, (long long)n);
    return add_header(table, file, (const char *)bytes + 8, (int64_t)length, bytes + 8 + length,
                      n - 8 - (int64_t)length);
}
