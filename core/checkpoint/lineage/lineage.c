/* Reads the chain from a model back to the first weights. */
#include "checkpoint/lineage/lineage.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/model_path.h"
#include "checkpoint/lineage/lineage_find.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "checkpoint/state/checkpoint_info.h"
#include "checkpoint/state/parents.h"
#include "files/safetensors/manifest.h"

enum { MAX_DEPTH = 32 };

/* The way from the first node to the present one. */
typedef struct walk {
    const char *above[MAX_DEPTH];
    int32_t depth, verify;
    lathe_arena *arena;
} walk;

static json_t *or_null(json_t *value)
{
    return value ? json_incref(value) : json_null();
}

static lathe_status read_node(walk *w, const char *path, json_t **out);

/* ---- data ---- */

/* Compares the data's files with what was recorded. */
static const char *check_data(const walk *w, const json_t *data, json_t *damage)
{
    const json_t *files = json_object_get(data, "files");
    size_t n_missing = 0, n_hashed = 0;
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        const char *path = json_string_value(json_object_get(file, "path"));
        const char *slash = path ? strrchr(path, '/') : NULL;
        if (slash == NULL || json_string_value(json_object_get(file, "sha256")) == NULL)
            continue;
        n_hashed++;
        if (!lathe_path_exists(path)) {
            n_missing++;
            continue;
        }
        const char *dir = lathe_arena_strndup(w->arena, path, slash - path);
        json_t *one = json_object();
        (void)json_object_set(one, slash + 1, (json_t *)(uintptr_t)file);
        if (dir)
            (void)lathe_files_compare(dir[0] ? dir : "/", one, w->verify, lathe__lineage_damage,
                                      damage);
        json_decref(one);
    }
    lathe_error_clear();
    return json_array_size(damage) > 0                           ? "changed"
           : n_missing > 0                                       ? "missing"
           : n_hashed == 0 || n_hashed != json_array_size(files) ? "not recorded"
                                                                 : "same";
}

static void put_data(const walk *w, const json_t *meta, const char *key, json_t *node)
{
    json_t *data = json_object_get(meta, key);
    if (!json_is_object(data))
        return;
    json_t *damage = json_array();
    const char *state = check_data(w, data, damage);
    json_object_set(node, key, data);
    json_object_set_new(data, "state", json_string(state));
    json_object_set_new(data, "damage", damage);
}

/* ---- parents ---- */

static int is_above(const walk *w, const char *path)
{
    for (int32_t i = 0; i < w->depth; i++)
        if (strcmp(w->above[i], path) == 0)
            return 1;
    return 0;
}

/* Removes the messages that `others` has too: the manifest of the parent and that of the child both
 * know the file. */
static void drop_repeated(json_t *damage, const json_t *others)
{
    for (size_t i = json_array_size(damage); i-- > 0;)
        for (size_t k = 0; k < json_array_size(others); k++)
            if (json_equal(json_array_get(damage, i), json_array_get(others, k))) {
                (void)json_array_remove(damage, i);
                break;
            }
}

/* Reads the node of a folder that was found, unless it is an ancestor of itself or too deep. */
static lathe_status read_found(walk *w, const char *found, json_t *entry)
{
    json_t *node = NULL;
    char *real = realpath(found, NULL);
    const char *path = lathe_arena_strdup(w->arena, real ? real : found);
    free(real);
    if (path == NULL)
        return LATHE_E_NOMEM;
    if (is_above(w, path) || w->depth == MAX_DEPTH) {
        lathe__lineage_damage(json_object_get(entry, "damage"),
                              is_above(w, path) ? "this folder is its own ancestor"
                                                : "the chain is too long to follow");
        json_object_set_new(entry, "state", json_string("changed"));
        return LATHE_OK;
    }
    const lathe_status status = read_node(w, path, &node);
    if (status == LATHE_E_NOMEM)
        return status;
    lathe_error_clear();
    json_object_set_new(entry, "found", json_string(path));
    json_object_set_new(entry, "node", node ? node : json_null());
    drop_repeated(json_object_get(entry, "damage"), json_object_get(node, "damage"));
    return LATHE_OK;
}

/* Adds one parent. `recorded`: the child's folder when it was written, or NULL. */
static lathe_status put_parent(walk *w, const json_t *parent, const char *recorded,
                               const char *child, json_t *list)
{
    const char *path = json_string_value(json_object_get(parent, "path")), *found = NULL;
    const json_t *files = json_object_get(parent, "files");
    /* a folder without weights, such as a stored teacher, is known by its manifest */
    const int is_recorded =
        json_object_size(files) > 0 || json_is_string(json_object_get(parent, "manifest"));
    int32_t same = 0;
    json_t *entry = json_object(), *damage = json_array();
    json_array_append_new(list, entry);
    json_object_set_new(entry, "roles", or_null(json_object_get(parent, "roles")));
    json_object_set_new(entry, "path", path ? json_string(path) : json_null());
    json_object_set_new(entry, "files", or_null(json_object_get(parent, "files")));
    json_object_set_new(entry, "found", json_null());
    json_object_set_new(entry, "node", json_null());
    json_object_set_new(entry, "damage", damage);
    if (path == NULL || (files && !json_is_object(files))) {
        lathe__lineage_damage(damage, "the manifest names a parent without a path or in another "
                                      "form than this Lathe knows");
        json_object_set_new(entry, "state", json_string("changed"));
        return LATHE_OK;
    }
    if (is_recorded)
        LATHE_TRY(lathe__lineage_find(parent, recorded, child, w->verify, w->arena, damage, &found,
                                      &same));
    else
        found = lathe_path_is_model(path) ? path : NULL;
    const char *state = found == NULL  ? "missing"
                        : !is_recorded ? "not recorded"
                        : same         ? "same"
                                       : "changed";
    json_object_set_new(entry, "state", json_string(state));
    if (found == NULL)
        return LATHE_OK;
    json_object_set_new(entry, "found", json_string(found));
    return read_found(w, found, entry);
}

/* A parent that is known by its path alone. */
static lathe_status put_path(walk *w, const char *path, const char *child, json_t *list)
{
    if (path == NULL || !path[0])
        return LATHE_OK;
    json_t *parent = json_pack("{s:[s], s:s}", "roles", "model", "path", path);
    const lathe_status status = put_parent(w, parent, NULL, child, list);
    json_decref(parent);
    return status;
}

static lathe_status put_parents(walk *w, const json_t *meta, const char *path, json_t *list)
{
    const json_t *parents = json_object_get(meta, "parents");
    const char *recorded = json_string_value(json_object_get(meta, "folder"));
    const json_t *model = json_object_get(json_object_get(meta, "config"), "model");
    if (parents == NULL) /* of an earlier Lathe */
        return put_path(w, json_string_value(json_object_get(model, "path")), path, list);
    if (!json_is_array(parents)) {
        json_t *none = json_object();
        const lathe_status status = put_parent(w, none, recorded, path, list);
        json_decref(none);
        return status;
    }
    for (size_t i = 0; i < json_array_size(parents); i++)
        LATHE_TRY(put_parent(w, json_array_get(parents, i), recorded, path, list));
    return LATHE_OK;
}

/* ---- nodes ---- */

static json_t *new_node(const char *path, const char *kind)
{
    return json_pack("{s:o, s:s, s:s, s:[], s:[]}", "path", lathe__json_text(path), "kind", kind,
                     "state", "unverified", "damage", "parents");
}

/* Where the checkpoint was resumed from, and whether that is still there. */
static void put_resumed(const json_t *meta, json_t *node)
{
    json_t *resumed = json_object_get(meta, "resumed");
    const char *path = json_string_value(json_object_get(resumed, "path"));
    if (path == NULL)
        return;
    json_object_set(node, "resumed", resumed);
    json_object_set_new(resumed, "is_there", json_boolean(lathe_path_is_dir(path)));
}

static lathe_status read_checkpoint(walk *w, const char *path, const char *covered, json_t *node)
{
    static const char *const copied[] = {"step", "time", "lathe", "made_by", "figures"};
    static const char *const parts[] = {"stage", "adapter", "quant"};
    json_t *meta = NULL, *damage = json_object_get(node, "damage");
    const lathe_status damaged =
        lathe_manifest_survey(covered, w->verify, lathe__lineage_damage, damage, NULL);
    json_object_set_new(node, "state",
                        json_string(damaged != LATHE_OK ? "damaged"
                                    : w->verify         ? "whole"
                                                        : "unverified"));
    lathe_status status = lathe_checkpoint_meta(covered, &meta);
    if (status != LATHE_OK) { /* the survey reported it */
        lathe_error_clear();
        return status == LATHE_E_NOMEM ? status : LATHE_OK;
    }
    const json_t *config = json_object_get(meta, "config");
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++)
        if (json_object_get(meta, copied[i]))
            json_object_set(node, copied[i], json_object_get(meta, copied[i]));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (json_object_get(config, parts[i]))
            json_object_set(node, parts[i], json_object_get(config, parts[i]));
    const json_t *train = json_object_get(config, "train"),
                 *model = json_object_get(config, "model");
    json_t *seed = json_object_get(model, "seed");
    seed = seed ? seed : json_object_get(train, "seed");
    if (seed)
        json_object_set(node, "seed", seed);
    put_data(w, meta, "data", node);
    put_data(w, meta, "validation", node);
    put_data(w, meta, "calibration", node);
    put_resumed(meta, node);
    status = put_parents(w, meta, path, json_object_get(node, "parents"));
    json_decref(meta);
    return status;
}

/* A GGUF file, or a folder without a manifest: a model, or an adapter with the base that PEFT
 * names. */
static lathe_status read_plain(walk *w, const char *path, int is_adapter, json_t *node)
{
    json_t *peft = NULL;
    const char *file = lathe_path_join(w->arena, path, "adapter_config.json");
    lathe_status status = LATHE_OK;
    if (is_adapter && file && lathe_json_load_file(file, &peft) == LATHE_OK)
        status = put_path(w, json_string_value(json_object_get(peft, "base_model_name_or_path")),
                          path, json_object_get(node, "parents"));
    else if (is_adapter)
        lathe__lineage_damage(json_object_get(node, "damage"), lathe_error_message());
    lathe_error_clear();
    json_decref(peft);
    return status;
}

static lathe_status read_node(walk *w, const char *path, json_t **out)
{
    const char *covered = NULL;
    LATHE_TRY(lathe__manifest_folder(path, w->arena, &covered));
    const int is_adapter = lathe_folder_holds(path, "adapter_config.json"),
              is_file = lathe_path_is_gguf(path);
    if (covered == NULL && !is_adapter && !is_file && !lathe_folder_holds(path, "config.json"))
        return lathe_error(LATHE_E_NOT_FOUND,
                           "%s: has no manifest.json, config.json or adapter_config.json; expected "
                           "a checkpoint, the folder of a run, or a model's folder",
                           path);
    json_t *node = new_node(path, covered ? "checkpoint" : is_adapter ? "adapter" : "model");
    if (node == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the lineage");
    if (is_file && !lathe_file_begins_as_gguf(path))
        lathe__lineage_damage(json_object_get(node, "damage"),
                              "it has the name of a GGUF file, but does not begin as one");
    w->above[w->depth++] = path;
    const lathe_status status =
        covered ? read_checkpoint(w, path, covered, node) : read_plain(w, path, is_adapter, node);
    w->depth--;
    if (status == LATHE_OK)
        *out = node;
    else
        json_decref(node);
    return status;
}

/* ---- the whole ---- */

static int64_t count_damage(const json_t *node)
{
    static const char *const data[] = {"data", "validation", "calibration"};
    const json_t *parents = json_object_get(node, "parents");
    int64_t n = (int64_t)json_array_size(json_object_get(node, "damage"));
    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++)
        n += (int64_t)json_array_size(json_object_get(json_object_get(node, data[i]), "damage"));
    for (size_t i = 0; i < json_array_size(parents); i++) {
        const json_t *parent = json_array_get(parents, i);
        n += (int64_t)json_array_size(json_object_get(parent, "damage"));
        n += count_damage(json_object_get(parent, "node"));
    }
    return n;
}

/* The weights of a first folder that nothing recorded, so that a reader can compare them. */
static lathe_status put_files(const walk *w, const char *path, json_t *node)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    json_t *files = NULL;
    lathe_status status =
        w->verify ? lathe_files_list(path, lathe__is_weight_file, &text) : LATHE_OK;
    if (status == LATHE_OK && text.len > 0)
        status = lathe_json_load(path, text.data, text.len, &files);
    if (files)
        json_object_set_new(node, "files", files);
    lathe_buffer_fini(&text);
    return status;
}

lathe_status lathe_lineage_read(const char *path, int32_t verify, json_t **out,
                                int64_t *out_n_damaged)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    walk w = {.verify = verify, .arena = &arena};
    const char *found = NULL, *covered = NULL;
    char *real = NULL;
    *out = NULL;
    lathe_status status = LATHE_OK;
    if (lathe_path_is_dir(path))
        status = lathe_checkpoint_resolve(&arena, path, &found);
    else if (lathe_path_is_gguf(path))
        found = path;
    else if (lathe_path_exists(path))
        status =
            lathe_error(LATHE_E_NOT_FOUND,
                        "%s: this file is no model; expected a checkpoint, the folder of a run, "
                        "a model's folder, or a GGUF file",
                        path);
    else
        status = lathe_error(LATHE_E_NOT_FOUND, "%s: no such folder or GGUF file", path);
    if (status != LATHE_OK)
        goto out;
    real = realpath(found, NULL);
    if ((status = read_node(&w, real ? real : found, out)) != LATHE_OK)
        goto out;
    if ((status = lathe__manifest_folder(found, &arena, &covered)) != LATHE_OK)
        goto out;
    if (covered == NULL)
        status = put_files(&w, found, *out);
out:
    if (status == LATHE_OK) {
        *out_n_damaged = count_damage(*out);
    } else {
        json_decref(*out);
        *out = NULL;
    }
    free(real);
    lathe_arena_fini(&arena);
    return status;
}
