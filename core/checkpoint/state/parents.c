/* Records what a run was made of: parents and data, with hashes. */
#include "checkpoint/state/parents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/model_path.h"
#include "checkpoint/state/checkpoint.h"
#include "checkpoint/state/checkpoint_info.h"
#include "checkpoint/state/reward_programs.h"
#include "config/config_changes.h"
#include "files/safetensors/manifest.h"
#include "plug/answers.h"

enum { MAX_FILES = 256 };

#define MAX_HASHED ((int64_t)1 << 30) /* bytes of data files */

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

int32_t lathe__is_weight_file(const char *name)
{
    return ends_with(name, ".safetensors") || ends_with(name, ".safetensors.index.json") ||
           strcmp(name, "config.json") == 0 || strcmp(name, "adapter_config.json") == 0;
}

lathe_status lathe__manifest_folder(const char *dir, lathe_arena *arena, const char **out)
{
    static const char end[] = "/average";
    *out = lathe_folder_holds(dir, LATHE_MANIFEST_NAME) ? dir : NULL;
    if (*out || !ends_with(dir, end))
        return LATHE_OK;
    const char *above = lathe_arena_strndup(arena, dir, (int64_t)(strlen(dir) - strlen(end)));
    if (above == NULL)
        return LATHE_E_NOMEM;
    *out = lathe_folder_holds(above, LATHE_MANIFEST_NAME) ? above : NULL;
    return LATHE_OK;
}

/* The absolute path without links, or the path as it is. */
static const char *absolute(const char *path, lathe_arena *arena)
{
    char *real = realpath(path, NULL);
    const char *copy = lathe_arena_strdup(arena, real ? real : path);
    free(real);
    return copy;
}

/* ---- one folder ---- */

lathe_status lathe__parent_put(const char *path, const char *roles, lathe_arena *arena,
                               lathe_buffer *out)
{
    char hex[65];
    const char *where = absolute(path, arena);
    if (where == NULL)
        return LATHE_E_NOMEM;
    lathe_buffer_printf(out, "{\"roles\": [%s], \"path\": ", roles);
    lathe_buffer_json_string(out, where);
    const char *checkpoint = NULL;
    LATHE_TRY(lathe__manifest_folder(where, arena, &checkpoint));
    if (checkpoint && lathe_manifest_self(checkpoint, hex) == LATHE_OK) {
        lathe_buffer_printf(out, ", \"manifest\": \"%s\"", hex);
    } else if (checkpoint) {
        lathe_log(LATHE_LOG_WARN, "%s; the lineage of this run names it without its manifest",
                  lathe_error_message());
        lathe_error_clear();
    }
    lathe_buffer_puts(out, ", \"files\": ");
    LATHE_TRY(lathe_files_list(where, lathe__is_weight_file, out));
    lathe_buffer_puts(out, "}");
    return out->status;
}

const char *lathe__parents_place(const char *path, lathe_arena *arena)
{
    const char *slash = strrchr(path, '/');
    const char *parent = slash ? lathe_arena_strndup(arena, path, slash - path) : ".";
    char *real = parent ? realpath(parent[0] ? parent : "/", NULL) : NULL;
    const char *whole =
        real ? lathe_arena_printf(arena, "%s/%s", real, slash ? slash + 1 : path) : NULL;
    free(real);
    return whole;
}

void lathe__parents_put_place(const char *path, lathe_arena *arena, lathe_buffer *b)
{
    const char *whole = lathe__parents_place(path, arena);
    if (whole == NULL)
        return;
    lathe_buffer_puts(b, ", \"folder\": ");
    lathe_buffer_json_string(b, whole);
}

/* Other models that a run reads, by the keys that name their folders. */
static const struct {
    const char *role, *section, *key;
} others[] = {{"adapter", "model", "adapter"},
              {"reference_adapter", "model", "reference_adapter"},
              {"teacher", "teacher", "path"},
              {"teacher", "teacher", "stored"},
              {"reward", "reward", "model"}};

#define N_OTHERS (sizeof others / sizeof others[0])

/* The reward model, of which a run has one at most; NULL: none. */
static const char *reward_model(const lathe_config *config)
{
    int32_t n = 0;
    const lathe_config_reward *list = lathe_config_rewards(config, &n);
    for (int32_t i = 0; i < n; i++)
        if (list[i].model)
            return list[i].model;
    return NULL;
}

/* The folder that such a key names; NULL: none. */
static const char *other_path(const lathe_config *config, size_t i)
{
    const lathe_value *value = lathe_config_get(config, others[i].section, others[i].key);
    const char *path = strcmp(others[i].role, "reward") == 0 ? reward_model(config)
                       : value && value->is_set              ? value->s
                                                             : NULL;
    return path && lathe_path_is_model(path) ? path : NULL;
}

/* Whether the stage compares the model with the one before training. */
static int has_reference(const lathe_saved_state *saved)
{
    return (lathe_answer_needs(&saved->parts->stage) & LATHE_NEEDS_REFERENCE) != 0;
}

/* Whether it is an adapter that is part of the reference, which has no adapter of its own. */
static int is_reference(const lathe_saved_state *saved, size_t i)
{
    return strcmp(others[i].role, "adapter") == 0 && has_reference(saved) &&
           saved->parts->reference_adapter.component == NULL;
}

static lathe_status put_other(const lathe_saved_state *saved, size_t i, lathe_arena *arena,
                              lathe_buffer *out)
{
    const char *role = is_reference(saved, i) ? "\"adapter\", \"reference\""
                                              : lathe_arena_printf(arena, "\"%s\"", others[i].role);
    return role ? lathe__parent_put(other_path(saved->config, i), role, arena, out) : LATHE_E_NOMEM;
}

static lathe_status put_own(const lathe_saved_state *saved, lathe_arena *arena, lathe_buffer *out)
{
    int32_t n = 0;
    lathe_buffer_puts(out, "\"parents\": [");
    if (saved->model_path) {
        n++;
        LATHE_TRY(lathe__parent_put(saved->model_path,
                                    has_reference(saved) ? "\"model\", \"reference\"" : "\"model\"",
                                    arena, out));
    }
    for (size_t i = 0; i < N_OTHERS; i++) {
        if (other_path(saved->config, i) == NULL)
            continue;
        lathe_buffer_puts(out, n++ ? ", " : "");
        LATHE_TRY(put_other(saved, i, arena, out));
    }
    lathe_buffer_puts(out, "]");
    return out->status;
}

/* ---- after resuming ---- */

static int has_role(const json_t *parent, const char *name)
{
    const json_t *roles = json_object_get(parent, "roles");
    for (size_t i = 0; i < json_array_size(roles); i++) {
        const char *role = json_string_value(json_array_get(roles, i));
        if (role && strcmp(role, name) == 0)
            return 1;
    }
    return 0;
}

json_t *lathe__parent_of(const json_t *parents, const char *role)
{
    for (size_t i = 0; i < json_array_size(parents); i++)
        if (has_role(json_array_get(parents, i), role))
            return json_array_get(parents, i);
    return NULL;
}

/* Whether the key may name another model than the recorded one: checkpoint.allow_changed names it,
 * or, for a reward that was added, removed or exchanged, reward.name. */
static int may_differ(const lathe_config *config, size_t i)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.%s", others[i].section, others[i].key);
    return lathe_config_allows_change(config, name) ||
           (strcmp(others[i].role, "reward") == 0 &&
            lathe_config_allows_change(config, "reward.name"));
}

/* Whether a key of the role may name another model. */
static int role_may_differ(const lathe_config *config, const char *role)
{
    for (size_t i = 0; i < N_OTHERS; i++)
        if (strcmp(others[i].role, role) == 0 && may_differ(config, i))
            return 1;
    return 0;
}

static lathe_status add_other(const lathe_saved_state *saved, size_t i, lathe_arena *arena,
                              json_t *parents)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    json_t *parent = NULL;
    lathe_status status = put_other(saved, i, arena, &text);
    if (status == LATHE_OK)
        status = lathe_json_load("the lineage", text.data, text.len, &parent);
    if (status == LATHE_OK && json_array_append_new(parents, parent) != 0)
        status = lathe_error(LATHE_E_NOMEM, "no memory for the lineage");
    lathe_buffer_fini(&text);
    return status;
}

/* Replaces the recorded models that may be others by those that the keys name now. */
static lathe_status renew_others(const lathe_saved_state *saved, lathe_arena *arena,
                                 json_t *parents)
{
    for (size_t i = 0; i < N_OTHERS; i++)
        for (size_t k = json_array_size(parents); k-- > 0;)
            if (role_may_differ(saved->config, others[i].role) &&
                has_role(json_array_get(parents, k), others[i].role))
                (void)json_array_remove(parents, k);
    for (size_t i = 0; i < N_OTHERS; i++)
        if (role_may_differ(saved->config, others[i].role) && other_path(saved->config, i))
            LATHE_TRY(add_other(saved, i, arena, parents));
    return LATHE_OK;
}

/* Copies the parents of the checkpoint, except those that checkpoint.allow_changed lets be others.
 * model.path may have moved: if its files still have their sizes, its present path is recorded. */
static lathe_status put_earlier(const lathe_saved_state *saved, json_t *parents, lathe_arena *arena,
                                lathe_buffer *out)
{
    LATHE_TRY(renew_others(saved, arena, parents));
    json_t *model = lathe__parent_of(parents, "model");
    if (model && saved->model_path) {
        const char *path = absolute(saved->model_path, arena);
        if (path && lathe_files_compare(path, json_object_get(model, "files"), LATHE_HASH_NONE,
                                        NULL, NULL) == LATHE_OK)
            json_object_set_new(model, "path", json_string(path));
        lathe_error_clear();
    }
    char *text = json_dumps(parents, JSON_COMPACT);
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the lineage");
    lathe_buffer_printf(out, "\"parents\": %s", text);
    free(text);
    return out->status;
}

static lathe_status put_resumed(const char *path, const json_t *meta, lathe_arena *arena,
                                lathe_buffer *out)
{
    char hex[65];
    const char *where = absolute(path, arena);
    if (where == NULL)
        return LATHE_E_NOMEM;
    lathe_buffer_puts(out, ", \"resumed\": {\"path\": ");
    lathe_buffer_json_string(out, where);
    lathe_buffer_printf(out, ", \"step\": %lld",
                        (long long)json_integer_value(json_object_get(meta, "step")));
    if (lathe_manifest_self(path, hex) == LATHE_OK)
        lathe_buffer_printf(out, ", \"manifest\": \"%s\"", hex);
    lathe_error_clear();
    lathe_buffer_puts(out, "}");
    return out->status;
}

/* ---- data ---- */

lathe_status lathe__parents_put_data(const char *name, const lathe_shards *shards, const char *more,
                                     lathe_arena *arena, lathe_buffer *out)
{
    int64_t n = 0, bytes = 0;
    char hex[65];
    const lathe_source *list = shards ? lathe_shards_sources(shards, &n) : NULL;
    if (shards == NULL)
        return LATHE_OK;
    for (int64_t i = 0; i < n; i++)
        bytes += list[i].bytes;
    lathe_buffer_printf(out, ", \"%s\": {\"content\": \"%s\", \"tokens\": %lld, \"files\": [", name,
                        lathe_shards_hash(shards), (long long)lathe_shards_tokens(shards));
    for (int64_t i = 0; i < n && i < MAX_FILES; i++) {
        const char *where = absolute(list[i].path, arena);
        if (where == NULL)
            return LATHE_E_NOMEM;
        lathe_buffer_puts(out, i ? ", {\"path\": " : "{\"path\": ");
        lathe_buffer_json_string(out, where);
        lathe_buffer_printf(out, ", \"bytes\": %lld", (long long)list[i].bytes);
        /* a file that is gone by now leaves its size */
        if (bytes <= MAX_HASHED && lathe_sha256_file(where, hex) == LATHE_OK)
            lathe_buffer_printf(out, ", \"sha256\": \"%s\"", hex);
        lathe_error_clear();
        lathe_buffer_puts(out, "}");
    }
    lathe_buffer_printf(out, "], \"n_files\": %lld%s}", (long long)n, more);
    return out->status;
}

/* ---- the whole ---- */

static lathe_status put_all(const lathe_saved_state *saved, const char *resumed, lathe_arena *arena,
                            lathe_buffer *out)
{
    json_t *meta = NULL;
    if (resumed)
        LATHE_TRY(lathe_checkpoint_meta(resumed, &meta));
    json_t *earlier = json_object_get(meta, "parents");
    lathe_status status = json_is_array(earlier) ? put_earlier(saved, earlier, arena, out)
                                                 : put_own(saved, arena, out);
    if (status == LATHE_OK && resumed)
        status = put_resumed(resumed, meta, arena, out);
    json_decref(meta);
    if (status != LATHE_OK)
        return status;
    if ((status = lathe__parents_put_data("data", saved->data->shards, "", arena, out)) != LATHE_OK)
        return status;
    if (saved->data->validation_shards != saved->data->shards)
        status =
            lathe__parents_put_data("validation", saved->data->validation_shards, "", arena, out);
    if (status != LATHE_OK)
        return status;
    /* nothing but a training starts them */
    if (saved->plans)
        status = lathe__programs_put(saved->config, out);
    return status;
}

lathe_status lathe__checkpoint_know_parents(const lathe_saved_state *saved, const char *resumed)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_status status = put_all(saved, resumed, &arena, &text);
    if (status == LATHE_OK) {
        saved->checkpoints->parents_json = lathe_arena_strdup(saved->arena, text.data);
        status = saved->checkpoints->parents_json ? LATHE_OK : LATHE_E_NOMEM;
    }
    lathe_buffer_fini(&text);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__checkpoint_put_parents(const lathe_saved_state *saved, lathe_buffer *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = LATHE_OK;
    lathe_buffer_puts(out, ", ");
    if (saved->checkpoints->parents_json)
        lathe_buffer_puts(out, saved->checkpoints->parents_json);
    else
        status = put_all(saved, NULL, &arena, out);
    lathe_arena_fini(&arena);
    return status;
}

/* ---- the base of a run that resumes ---- */

/* Compares the manifest of a folder without weights, such as a stored teacher, with the recorded
 * one. */
static lathe_status check_manifest(const json_t *parent, const char *path)
{
    const char *was = json_string_value(json_object_get(parent, "manifest"));
    char hex[65];
    if (was == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_manifest_self(path, hex));
    return strcmp(was, hex) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_CONFIG, "%s: its content changed since the run began", path);
}

/* Compares a folder with the recorded parent of a role, if there is one. */
static lathe_status check_role(const json_t *parents, const char *role, const char *path)
{
    const json_t *parent = lathe__parent_of(parents, role);
    if (parent == NULL || path == NULL)
        return LATHE_OK;
    if (json_object_size(json_object_get(parent, "files")) == 0)
        return check_manifest(parent, path);
    const lathe_status status =
        lathe_files_compare(path, json_object_get(parent, "files"), LATHE_HASH_UNKNOWN, NULL, NULL);
    return status == LATHE_E_CORRUPT ? lathe_error(LATHE_E_CONFIG, "%s", lathe_error_message())
                                     : status;
}

/* A reference adapter that is left out, or new, makes another loss. */
static lathe_status check_same_reference(const json_t *parents, const char *path)
{
    const json_t *parent = lathe__parent_of(parents, "reference_adapter");
    if (!json_is_array(parents) || (parent == NULL) == (path == NULL))
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       parent ? "the run began with the reference adapter %s, and the "
                                "configuration has no model.reference_adapter"
                              : "the run began without a reference adapter, and the configuration "
                                "has model.reference_adapter = \"%s\"",
                       parent ? json_string_value(json_object_get(parent, "path")) : path);
}

/* Warns of other files under the recorded path. Another path is reported as a changed key. */
static lathe_status warn_of_role(const json_t *parents, const char *role, const char *path)
{
    const char *was = json_string_value(json_object_get(lathe__parent_of(parents, role), "path"));
    char *real = path ? realpath(path, NULL) : NULL;
    const int is_same_path = was && real && strcmp(was, real) == 0;
    free(real);
    const lathe_status status = is_same_path ? check_role(parents, role, path) : LATHE_OK;
    if (status != LATHE_E_CONFIG)
        return status;
    lathe_log(LATHE_LOG_WARN, "%s; the run continues with it, as checkpoint.allow_changed permits",
              lathe_error_message());
    lathe_error_clear();
    return LATHE_OK;
}

lathe_status lathe__checkpoint_check_model(const json_t *meta, const char *path)
{
    return check_role(json_object_get(meta, "parents"), "model", path);
}

lathe_status lathe__checkpoint_check_others(const lathe_saved_state *saved, const json_t *meta,
                                            const char **out_section, const char **out_key)
{
    const json_t *parents = json_object_get(meta, "parents");
    for (size_t i = 0; i < N_OTHERS; i++) {
        const char *path = other_path(saved->config, i);
        if (!saved->plans && strcmp(others[i].role, "reward") == 0)
            continue; /* nothing but a training asks it */
        *out_section = others[i].section;
        *out_key = others[i].key;
        LATHE_TRY(may_differ(saved->config, i) ? warn_of_role(parents, others[i].role, path)
                                               : check_role(parents, others[i].role, path));
        if (strcmp(others[i].role, "reference_adapter") == 0)
            LATHE_TRY(check_same_reference(parents, path));
    }
    return LATHE_OK;
}

lathe_status lathe__checkpoint_check_base(const lathe_saved_state *saved, const json_t *meta,
                                          const char **out_section, const char **out_key)
{
    const int needed = has_reference(saved) || !lathe__checkpoint_has_model(saved);
    *out_section = "model";
    *out_key = "path";
    if (needed && saved->model_path)
        LATHE_TRY(lathe__checkpoint_check_model(meta, saved->model_path));
    return lathe__checkpoint_check_others(saved, meta, out_section, out_key);
}
