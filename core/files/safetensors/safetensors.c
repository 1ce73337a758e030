/* Opens safetensors files and their shards, and finds tensors. */
#include "files/safetensors/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/map.h"
#include "base/model_path.h"
#include "files/safetensors/st_header.h"

struct lathe_safetensors {
    lathe_st_table table; /* sorted by name once open */
    lathe_map *maps;
    int64_t n_maps;
    const char *path;     /* path as opened, or the name of a parsed image */
    lathe_st_owner owner; /* of the tensors of another format */
    int32_t n_holders;
};

static int name_order(const void *a, const void *b)
{
    return strcmp(((const lathe_st_tensor *)a)->name, ((const lathe_st_tensor *)b)->name);
}

static lathe_status set_sort(lathe_safetensors *set)
{
    if (set->table.n > 0)
        qsort(set->table.tensors, (size_t)set->table.n, sizeof *set->table.tensors, name_order);
    for (int64_t i = 1; i < set->table.n; i++)
        if (strcmp(set->table.tensors[i - 1].name, set->table.tensors[i].name) == 0)
            return lathe_error(LATHE_E_CORRUPT, "tensor %s is in both %s and %s",
                               set->table.tensors[i].name, set->table.tensors[i - 1].file,
                               set->table.tensors[i].file);
    return LATHE_OK;
}

static lathe_status set_create(const char *path, int32_t takes_all, int64_t n_maps,
                               lathe_safetensors **out)
{
    lathe_safetensors *set = calloc(1, sizeof *set);
    if (set != NULL) {
        set->path = lathe_arena_strdup(&set->table.arena, path);
        set->n_holders = 1;
        set->table.takes_all = takes_all;
        set->table.metadata = json_object();
        set->maps = calloc((size_t)(n_maps > 0 ? n_maps : 1), sizeof *set->maps);
    }
    if (set == NULL || set->path == NULL || set->table.metadata == NULL || set->maps == NULL) {
        lathe_safetensors_close(set);
        return lathe_error(LATHE_E_NOMEM, "%s: no memory to open it", path);
    }
    *out = set;
    return LATHE_OK;
}

static lathe_status set_map(lathe_safetensors *set, const char *path)
{
    const char *file = lathe_arena_strdup(&set->table.arena, path);
    if (file == NULL)
        return LATHE_E_NOMEM;
    lathe_map *map = &set->maps[set->n_maps];
    LATHE_TRY(lathe_map_open(file, map));
    set->n_maps++;
    return lathe__st_table_add(&set->table, file, map->data, map->bytes);
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
    for (int64_t i = 0; i < set->table.n; i++)
        if (json_object_get(weight_map, set->table.tensors[i].name) == NULL)
            return lathe_error(LATHE_E_CORRUPT, "%s: tensor %s of %s is not in its weight_map",
                               path, set->table.tensors[i].name, set->table.tensors[i].file);
    return LATHE_OK;
}

static lathe_status open_shards(const char *path, int32_t all, json_t *weight_map, json_t *files,
                                lathe_safetensors **out)
{
    LATHE_TRY(set_create(path, all, (int64_t)json_object_size(files), out));
    lathe_safetensors *set = *out;
    const char *slash = strrchr(path, '/');
    const char *dir =
        slash != NULL ? lathe_arena_strndup(&set->table.arena, path, slash - path) : ".";
    const char *file;
    json_t *ignored;
    json_object_foreach(files, file, ignored)
    {
        const char *full = dir != NULL ? lathe_path_join(&set->table.arena, dir, file) : NULL;
        if (full == NULL)
            return LATHE_E_NOMEM;
        const lathe_status status = set_map(set, full);
        if (status == LATHE_E_NOT_FOUND)
            return lathe_error_context(status, "%s names a shard that does not exist", path);
        LATHE_TRY(status);
    }
    LATHE_TRY(set_sort(set));
    return index_check(set, path, weight_map);
}

static lathe_status open_index(const char *path, int32_t all, lathe_safetensors **out)
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
        status = open_shards(path, all, weight_map, files, out);
    json_decref(files);
    json_decref(index);
    return status;
}

static lathe_status open_single(const char *path, int32_t all, lathe_arena *arena,
                                lathe_safetensors **out)
{
    const char *index = lathe_arena_printf(arena, "%s.index.json", path);
    if (index == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_path_exists(path) && lathe_path_exists(index))
        return open_index(index, all, out);
    LATHE_TRY(set_create(path, all, 1, out));
    LATHE_TRY(set_map(*out, path));
    return set_sort(*out);
}

/* The file of weights in a form that is not read; NULL: the folder has none. */
static const char *other_weights(const char *path)
{
    static const char *const names[] = {"pytorch_model.bin",
                                        "pytorch_model.bin.index.json",
                                        "consolidated.00.pth",
                                        "pytorch_model.pt",
                                        "tf_model.h5",
                                        "flax_model.msgpack",
                                        "consolidated.safetensors",
                                        "model.pt"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (lathe_folder_holds(path, names[i]))
            return names[i];
    }
    return NULL;
}

static lathe_status open_folder(const char *path, int32_t all, lathe_arena *arena,
                                lathe_safetensors **out)
{
    const char *single = lathe_path_join(arena, path, "model.safetensors");
    const char *index = lathe_path_join(arena, path, "model.safetensors.index.json");
    if (single == NULL || index == NULL)
        return LATHE_E_NOMEM;
    if (lathe_path_exists(single))
        return open_single(single, all, arena, out);
    if (lathe_path_exists(index))
        return open_index(index, all, out);
    const char *other = other_weights(path);
    if (other != NULL)
        return lathe_error(LATHE_E_NOT_FOUND,
                           "%s: neither model.safetensors nor model.safetensors.index.json in it, "
                           "but %s: only safetensors are read; convert with transformers, "
                           "AutoModelForCausalLM.from_pretrained(\"%s\").save_pretrained(\"%s\")",
                           path, other, path, path);
    return lathe_error(LATHE_E_NOT_FOUND,
                       "%s: neither model.safetensors nor model.safetensors.index.json in it",
                       path);
}

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static lathe_status open_path(const char *path, int32_t all, lathe_safetensors **out)
{
    *out = NULL;
    lathe_safetensors *set = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status;
    if (lathe_path_is_dir(path))
        status = open_folder(path, all, &arena, &set);
    else if (ends_with(path, ".json"))
        status = open_index(path, all, &set);
    else
        status = open_single(path, all, &arena, &set);
    lathe_arena_fini(&arena);
    if (status != LATHE_OK)
        lathe_safetensors_close(set);
    else
        *out = set;
    return status;
}

lathe_status lathe_safetensors_open(const char *path, lathe_safetensors **out)
{
    return open_path(path, 0, out);
}

lathe_status lathe_safetensors_open_all(const char *path, lathe_safetensors **out)
{
    return open_path(path, 1, out);
}

lathe_status lathe_safetensors_parse(const char *name, const void *data, int64_t bytes,
                                     lathe_safetensors **out)
{
    *out = NULL;
    lathe_safetensors *set = NULL;
    LATHE_TRY(set_create(name, 0, 0, &set));
    const char *file = lathe_arena_strdup(&set->table.arena, name);
    lathe_status status =
        file != NULL ? lathe__st_table_add(&set->table, file, data, bytes) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = set_sort(set);
    if (status != LATHE_OK)
        lathe_safetensors_close(set);
    else
        *out = set;
    return status;
}

lathe_status lathe_safetensors_make(const char *path, const lathe_st_tensor *tensors, int64_t n,
                                    const lathe_st_owner *owner, lathe_safetensors **out)
{
    *out = NULL;
    lathe_safetensors *set = NULL;
    LATHE_TRY(set_create(path, 0, 0, &set));
    lathe_status status = LATHE_OK;
    set->table.tensors = malloc((size_t)(n > 0 ? n : 1) * sizeof *tensors);
    if (set->table.tensors == NULL) {
        status = lathe_error(LATHE_E_NOMEM, "%s: no memory to open it", path);
    } else {
        if (n > 0)
            memcpy(set->table.tensors, tensors, (size_t)n * sizeof *tensors);
        set->table.n = set->table.capacity = n;
        status = set_sort(set);
    }
    if (status == LATHE_OK) {
        set->owner = *owner;
        *out = set;
    } else {
        lathe_safetensors_close(set);
    }
    return status;
}

lathe_safetensors *lathe_safetensors_hold(const lathe_safetensors *set)
{
    lathe_safetensors *held = (lathe_safetensors *)(uintptr_t)set;
    held->n_holders++;
    return held;
}

lathe_status lathe_safetensors_check(const lathe_safetensors *set)
{
    if (set->owner.check != NULL)
        LATHE_TRY(set->owner.check(set->owner.arg));
    for (int64_t i = 0; i < set->n_maps; i++)
        LATHE_TRY(lathe_map_check(&set->maps[i]));
    return LATHE_OK;
}

void lathe_safetensors_close(lathe_safetensors *set)
{
    if (set == NULL || --set->n_holders > 0)
        return;
    if (set->owner.close != NULL)
        set->owner.close(set->owner.arg);
    for (int64_t i = 0; i < set->n_maps; i++)
        lathe_map_close(&set->maps[i]);
    free(set->maps);
    free(set->table.tensors);
    json_decref(set->table.metadata);
    lathe_arena_fini(&set->table.arena);
    free(set);
}

const char *lathe_safetensors_path(const lathe_safetensors *set)
{
    return set->path;
}

int64_t lathe_safetensors_count(const lathe_safetensors *set)
{
    return set->table.n;
}

const lathe_st_tensor *lathe_safetensors_at(const lathe_safetensors *set, int64_t i)
{
    return &set->table.tensors[i];
}

const lathe_st_tensor *lathe_safetensors_find(const lathe_safetensors *set, const char *name)
{
    const lathe_st_tensor key = {.name = name};
    return set->table.n > 0 ? bsearch(&key, set->table.tensors, (size_t)set->table.n,
                                      sizeof *set->table.tensors, name_order)
                            : NULL;
}

const char *lathe_safetensors_metadata(const lathe_safetensors *set, const char *key)
{
    return json_string_value(json_object_get(set->table.metadata, key));
}
