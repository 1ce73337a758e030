/* Reads safetensors: checks headers, opens shards, finds tensors. */
#include "io/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/json_record.h"
#include "base/map.h"

#define HEADER_LIMIT 100000000

struct lathe_safetensors {
    lathe_arena arena;
    lathe_st_tensor *tensors; /* sorted by name once open */
    int64_t n, capacity;
    lathe_map *maps;
    int64_t n_maps;
    json_t *metadata; /* merged __metadata__ */
    const char *path; /* path as opened, or the name of a parsed image */
};

static const struct {
    const char *text;
    int32_t dtype;
} dtype_names[] = {
    {"F32", LATHE_F32},    {"BF16", LATHE_BF16},       {"F16", LATHE_F16},
    {"F64", LATHE_F64},    {"I8", LATHE_I8},           {"U8", LATHE_U8},
    {"I32", LATHE_I32},    {"I64", LATHE_I64},         {"BOOL", LATHE_BOOL},
    {"I16", LATHE_I16},    {"F8_E4M3", LATHE_F8_E4M3}, {"F8_E5M2", LATHE_F8_E5M2},
    {"F8_E8M0", LATHE_U8}, /* an exponent byte, read as a plain byte */
};

const char *lathe_st_dtype_text(int32_t dtype)
{
    for (size_t i = 0; i < sizeof dtype_names / sizeof dtype_names[0]; i++)
        if (dtype_names[i].dtype == dtype)
            return dtype_names[i].text;
    return NULL;
}

int32_t lathe_st_dtype_find(const char *text)
{
    for (size_t i = 0; i < sizeof dtype_names / sizeof dtype_names[0]; i++)
        if (strcmp(dtype_names[i].text, text) == 0)
            return dtype_names[i].dtype;
    return -1;
}

/* ---- one file ---- */

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

static lathe_status set_reserve(lathe_safetensors *set, int64_t more)
{
    if (set->n + more <= set->capacity)
        return LATHE_OK;
    const int64_t capacity = (set->n + more) * 3 / 2 + 16;
    lathe_st_tensor *grown = realloc(set->tensors, (size_t)capacity * sizeof *grown);
    if (grown == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld tensor entries", (long long)capacity);
    set->tensors = grown;
    set->capacity = capacity;
    return LATHE_OK;
}

/* Reads the shape of an entry into desc, and its byte count into out_bytes. */
static lathe_status read_shape(const char *file, const char *name, const json_t *shape,
                               lathe_desc *desc, int64_t *out_bytes)
{
    if (!json_is_array(shape))
        return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s has no shape array", file, name);
    const size_t rank = json_array_size(shape);
    if (rank > LATHE_MAX_RANK)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: tensor %s has %zu dimensions, at most %d are supported", file, name,
                           rank, LATHE_MAX_RANK);
    desc->rank = (int32_t)rank;
    int64_t bytes = lathe_dtype_bytes(desc->dtype);
    for (size_t i = 0; i < LATHE_MAX_RANK; i++)
        desc->dims[i] = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s: dimension %zu is not a count", file,
                               name, i);
        desc->dims[i] = json_integer_value(dim);
        if (__builtin_mul_overflow(bytes, desc->dims[i], &bytes))
            return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s: its size overflows 64 bits", file,
                               name);
    }
    *out_bytes = bytes;
    return LATHE_OK;
}

static lathe_status read_entry(const char *file, const char *name, const json_t *entry,
                               int64_t data_bytes, lathe_desc *desc, span *out)
{
    if (!json_is_object(entry))
        return lathe_error(LATHE_E_CORRUPT, "%s: entry of tensor %s is not an object", file, name);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (dtype == NULL)
        return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s has no dtype", file, name);
    desc->dtype = lathe_st_dtype_find(dtype);
    if (desc->dtype < 0)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: tensor %s has dtype %s, which is not supported", file, name, dtype);
    int64_t bytes = 0;
    LATHE_TRY(read_shape(file, name, json_object_get(entry, "shape"), desc, &bytes));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s: data_offsets is not [begin, end]", file,
                           name);
    out->begin = json_integer_value(begin);
    out->end = json_integer_value(end);
    if (out->begin < 0 || out->end < out->begin || out->end > data_bytes)
        return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s lies at %lld..%lld of %lld data bytes%s",
                           file, name, (long long)out->begin, (long long)out->end,
                           (long long)data_bytes,
                           out->end > data_bytes ? ": the file is truncated" : "");
    if (out->end - out->begin != bytes)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: tensor %s holds %lld bytes, its shape and dtype need %lld", file,
                           name, (long long)(out->end - out->begin), (long long)bytes);
    return LATHE_OK;
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

static lathe_status read_metadata(lathe_safetensors *set, const char *file, json_t *metadata)
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
        if (json_object_get(set->metadata, key) == NULL &&
            json_object_set(set->metadata, key, value) != 0)
            return lathe_error(LATHE_E_NOMEM, "%s: no memory for its metadata", file);
    }
    return LATHE_OK;
}

/* Adds one member of the header: a tensor, or the metadata. */
static lathe_status add_member(lathe_safetensors *set, const char *file, const char *name,
                               json_t *value, const uint8_t *data, int64_t data_bytes,
                               int64_t file_bytes, span *spans, int64_t *n_spans)
{
    if (strcmp(name, "__metadata__") == 0)
        return read_metadata(set, file, value);
    lathe_st_tensor *t = &set->tensors[set->n];
    span *s = &spans[*n_spans];
    t->file = file;
    t->name = name;
    LATHE_TRY(read_entry(file, name, value, data_bytes, &t->desc, s));
    t->data = data + s->begin;
    t->offset = file_bytes - data_bytes + s->begin;
    s->name = name;
    set->n++;
    ++*n_spans;
    return LATHE_OK;
}

/* Appends the tensors of a checked header; parses its members one at a time. */
static lathe_status add_members(lathe_safetensors *set, const char *file, const char *header,
                                int64_t length, const uint8_t *data, int64_t data_bytes,
                                span *spans)
{
    lathe_json_string key;
    const char *text;
    int64_t n = 0, n_text;
    for (const char *at = header;
         lathe_json_record_next(&at, header + length, &key, &text, &n_text);) {
        char *name = lathe_arena_alloc(&set->arena, key.n + 1);
        json_t *value = NULL;
        if (name == NULL)
            return LATHE_E_NOMEM;
        name[lathe_json_unescape(key.text, key.n_raw, name)] = '\0';
        lathe_status status = lathe_json_load(name, text, n_text, &value);
        status = status == LATHE_OK
                     ? add_member(set, file, name, value, data, data_bytes, 8 + length + data_bytes,
                                  spans, &n)
                     : lathe_error_context(status == LATHE_E_NOMEM ? status : LATHE_E_CORRUPT,
                                           "%s: entry", file);
        json_decref(value);
        LATHE_TRY(status);
    }
    return check_spans(file, spans, n, data_bytes);
}

/* Counts the header's members. Each needs some hundred bytes in memory, which must not be many
 * times the file's size; only a file of empty tensors comes near that. */
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

static lathe_status add_header(lathe_safetensors *set, const char *file, const char *header,
                               int64_t length, const uint8_t *data, int64_t data_bytes)
{
    int64_t n;
    LATHE_TRY(check_header(file, header, length));
    LATHE_TRY(count_members(file, header, length, 8 + length + data_bytes, &n));
    LATHE_TRY(set_reserve(set, n));
    span *spans = malloc((size_t)(n + 1) * sizeof *spans);
    if (spans == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for %lld entries", file, (long long)n);
    const lathe_status status = add_members(set, file, header, length, data, data_bytes, spans);
    free(spans);
    return status;
}

static lathe_status add_file(lathe_safetensors *set, const char *file, const uint8_t *bytes,
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
    return add_header(set, file, (const char *)bytes + 8, (int64_t)length, bytes + 8 + length,
                      n - 8 - (int64_t)length);
}

/* ---- the set ---- */

static int name_order(const void *a, const void *b)
{
    return strcmp(((const lathe_st_tensor *)a)->name, ((const lathe_st_tensor *)b)->name);
}

static lathe_status set_sort(lathe_safetensors *set)
{
    if (set->n > 0)
        qsort(set->tensors, (size_t)set->n, sizeof *set->tensors, name_order);
    for (int64_t i = 1; i < set->n; i++)
        if (strcmp(set->tensors[i - 1].name, set->tensors[i].name) == 0)
            return lathe_error(LATHE_E_CORRUPT, "tensor %s is in both %s and %s",
                               set->tensors[i].name, set->tensors[i - 1].file,
                               set->tensors[i].file);
    return LATHE_OK;
}

static lathe_status set_create(const char *path, int64_t n_maps, lathe_safetensors **out)
{
    lathe_safetensors *set = calloc(1, sizeof *set);
    if (set != NULL) {
        set->path = lathe_arena_strdup(&set->arena, path);
        set->metadata = json_object();
        set->maps = calloc((size_t)(n_maps > 0 ? n_maps : 1), sizeof *set->maps);
    }
    if (set == NULL || set->path == NULL || set->metadata == NULL || set->maps == NULL) {
        lathe_safetensors_close(set);
        return lathe_error(LATHE_E_NOMEM, "%s: no memory to open it", path);
    }
    *out = set;
    return LATHE_OK;
}

static lathe_status set_map(lathe_safetensors *set, const char *path)
{
    const char *file = lathe_arena_strdup(&set->arena, path);
    if (file == NULL)
        return LATHE_E_NOMEM;
    lathe_map *map = &set->maps[set->n_maps];
    LATHE_TRY(lathe_map_open(file, map));
    set->n_maps++;
    return add_file(set, file, map->data, map->bytes);
}

/* Collects the distinct file names of a weight map, in order of appearance, as keys of an
 * object. */
static lathe_status index_files(const char *path, const json_t *weight_map, json_t *files)
{
    const char *name;
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)weight_map, name, file)
    {
        const char *text = json_string_value(file);
        if (text == NULL || text[0] == '\0' || text[0] == '.' || strchr(text, '/') != NULL)
            return lathe_error(LATHE_E_CORRUPT,
                               "%s: tensor %s is mapped to %s, which is no file name", path, name,
                               text != NULL ? text : "something");
        if (json_object_set_new(files, text, json_true()) != 0)
            return lathe_error(LATHE_E_NOMEM, "%s: no memory for its files", path);
    }
    return LATHE_OK;
}

/* Checks that every tensor of the index is in the shard that it names, and that every tensor of a
 * shard is in the index. */
static lathe_status index_check(const lathe_safetensors *set, const char *path, json_t *weight_map)
{
    const char *name;
    json_t *file;
    json_object_foreach(weight_map, name, file)
    {
        const lathe_st_tensor *t = lathe_safetensors_find(set, name);
        const char *base = t != NULL ? strrchr(t->file, '/') : NULL;
        base = base != NULL ? base + 1 : (t != NULL ? t->file : "none");
        if (strcmp(base, json_string_value(file)) != 0)
            return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s should be in %s, found in %s", path,
                               name, json_string_value(file), base);
    }
    for (int64_t i = 0; i < set->n; i++)
        if (json_object_get(weight_map, set->tensors[i].name) == NULL)
            return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s of %s is not in its weight_map",
                               path, set->tensors[i].name, set->tensors[i].file);
    return LATHE_OK;
}

static lathe_status open_shards(const char *path, json_t *weight_map, json_t *files,
                                lathe_safetensors **out)
{
    LATHE_TRY(set_create(path, (int64_t)json_object_size(files), out));
    lathe_safetensors *set = *out;
    const char *slash = strrchr(path, '/');
    const char *dir = slash != NULL ? lathe_arena_strndup(&set->arena, path, slash - path) : ".";
    const char *file;
    json_t *ignored;
    json_object_foreach(files, file, ignored)
    {
        const char *full = dir != NULL ? lathe_path_join(&set->arena, dir, file) : NULL;
        if (full == NULL)
            return LATHE_E_NOMEM;
        const lathe_status status = set_map(set, full);
        if (status == LATHE_E_NOT_FOUND)
            return lathe_error_context(status, "%s names a shard that is not there", path);
        LATHE_TRY(status);
    }
    LATHE_TRY(set_sort(set));
    return index_check(set, path, weight_map);
}

static lathe_status open_index(const char *path, lathe_safetensors **out)
{
    json_t *index = NULL;
    LATHE_TRY(lathe_json_load_file(path, &index));
    json_t *weight_map = json_object_get(index, "weight_map");
    json_t *files = json_object();
    lathe_status status;
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0)
        status = lathe_error(LATHE_E_CORRUPT, "%s: no weight_map with tensors in it", path);
    else if (files == NULL)
        status = lathe_error(LATHE_E_NOMEM, "%s: no memory", path);
    else
        status = index_files(path, weight_map, files);
    if (status == LATHE_OK)
        status = open_shards(path, weight_map, files, out);
    json_decref(files);
    json_decref(index);
    return status;
}

static lathe_status open_single(const char *path, lathe_arena *arena, lathe_safetensors **out)
{
    const char *index = lathe_arena_printf(arena, "%s.index.json", path);
    if (index == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_path_exists(path) && lathe_path_exists(index))
        return open_index(index, out);
    LATHE_TRY(set_create(path, 1, out));
    LATHE_TRY(set_map(*out, path));
    return set_sort(*out);
}

static lathe_status open_folder(const char *path, lathe_arena *arena, lathe_safetensors **out)
{
    const char *single = lathe_path_join(arena, path, "model.safetensors");
    const char *index = lathe_path_join(arena, path, "model.safetensors.index.json");
    if (single == NULL || index == NULL)
        return LATHE_E_NOMEM;
    if (lathe_path_exists(single))
        return open_single(single, arena, out);
    if (lathe_path_exists(index))
        return open_index(index, out);
    return lathe_error(LATHE_E_NOT_FOUND,
                       "%s: neither model.safetensors nor model.safetensors.index.json in it",
                       path);
}

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

lathe_status lathe_safetensors_open(const char *path, lathe_safetensors **out)
{
    *out = NULL;
    lathe_safetensors *set = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status;
    if (lathe_path_is_dir(path))
        status = open_folder(path, &arena, &set);
    else if (ends_with(path, ".json"))
        status = open_index(path, &set);
    else
        status = open_single(path, &arena, &set);
    lathe_arena_fini(&arena);
    if (status != LATHE_OK)
        lathe_safetensors_close(set);
    else
        *out = set;
    return status;
}

lathe_status lathe_safetensors_parse(const char *name, const void *data, int64_t bytes,
                                     lathe_safetensors **out)
{
    *out = NULL;
    lathe_safetensors *set = NULL;
    LATHE_TRY(set_create(name, 0, &set));
    const char *file = lathe_arena_strdup(&set->arena, name);
    lathe_status status = file != NULL ? add_file(set, file, data, bytes) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = set_sort(set);
    if (status != LATHE_OK)
        lathe_safetensors_close(set);
    else
        *out = set;
    return status;
}

lathe_status lathe_safetensors_check(const lathe_safetensors *set)
{
    for (int64_t i = 0; i < set->n_maps; i++)
        LATHE_TRY(lathe_map_check(&set->maps[i]));
    return LATHE_OK;
}

void lathe_safetensors_close(lathe_safetensors *set)
{
    if (set == NULL)
        return;
    for (int64_t i = 0; i < set->n_maps; i++)
        lathe_map_close(&set->maps[i]);
    free(set->maps);
    free(set->tensors);
    json_decref(set->metadata);
    lathe_arena_fini(&set->arena);
    free(set);
}

const char *lathe_safetensors_path(const lathe_safetensors *set)
{
    return set->path;
}

int64_t lathe_safetensors_count(const lathe_safetensors *set)
{
    return set->n;
}

const lathe_st_tensor *lathe_safetensors_at(const lathe_safetensors *set, int64_t i)
{
    return &set->tensors[i];
}

const lathe_st_tensor *lathe_safetensors_find(const lathe_safetensors *set, const char *name)
{
    const lathe_st_tensor key = {.name = name};
    return set->n > 0
               ? bsearch(&key, set->tensors, (size_t)set->n, sizeof *set->tensors, name_order)
               : NULL;
}

const char *lathe_safetensors_metadata(const lathe_safetensors *set, const char *key)
{
    return json_string_value(json_object_get(set->metadata, key));
}
