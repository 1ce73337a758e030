/* Reads the settings of the run that wrote a checkpoint. */
#include "run/folder/folder_settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/toml.h"
#include "checkpoint/state/checkpoint_info.h"
#include "checkpoint/state/folder_renderer.h"
#include "checkpoint/state/folder_tokenizer.h"
#include "checkpoint/state/parents.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/manifest.h"
#include "lathe/stage.h"
#include "plug/core_schema.h"
#include "plug/registry.h"

enum { MAX_SETTINGS = 256 };

int32_t lathe_folder_has(const char *dir, const char *name)
{
    return lathe_model_has(dir, name);
}

lathe_status lathe_folder_config(const char *dir, lathe_arena *arena, json_t **out_config,
                                 int32_t *out_has_manifest)
{
    json_t *meta = NULL;
    *out_config = NULL;
    *out_has_manifest = lathe_folder_has(dir, LATHE_MANIFEST_NAME);
    const char *from = NULL;
    LATHE_TRY(lathe__manifest_folder(dir, arena, &from));
    if (!from)
        return LATHE_OK;
    LATHE_TRY(lathe_checkpoint_meta(from, &meta));
    json_t *config = json_object_get(meta, "config");
    *out_config = json_is_object(config) ? json_incref(config) : NULL;
    json_decref(meta);
    return LATHE_OK;
}

lathe_status lathe_folder_tokenizer(const char *dir, lathe_arena *arena, const char **out)
{
    int reads_bytes = 0;
    *out = NULL;
    if (lathe_model_has(dir, "tokenizer.json")) {
        *out = dir;
        return LATHE_OK;
    }
    LATHE_TRY(lathe_folder_reads_bytes(dir, arena, &reads_bytes));
    if (reads_bytes)
        *out = "bytes";
    return LATHE_OK;
}

lathe_status lathe_folder_bytes_template(const char *dir, lathe_arena *arena, const char **out)
{
    static const char name[] = "chat_template.jinja";
    *out = NULL;
    if (!lathe_path_is_dir(dir) || lathe_model_has(dir, "tokenizer.json") ||
        !lathe_folder_has(dir, name))
        return LATHE_OK;
    *out = lathe_path_join(arena, dir, name);
    return *out ? LATHE_OK : LATHE_E_NOMEM;
}

lathe_status lathe_settings_init(lathe_setting_list *list, lathe_arena *arena)
{
    *list = (lathe_setting_list){.n = 0};
    list->edits = lathe_arena_alloc(arena, MAX_SETTINGS * (int64_t)sizeof *list->edits);
    return list->edits ? LATHE_OK : LATHE_E_NOMEM;
}

const lathe_toml_node *lathe_settings_value(const lathe_setting_list *list, const char *key)
{
    for (int32_t i = 0; i < list->n; i++)
        if (strcmp(list->edits[i].key, key) == 0)
            return list->edits[i].value;
    return NULL;
}

int32_t lathe_settings_have(const lathe_setting_list *list, const char *key)
{
    return lathe_settings_value(list, key) != NULL;
}

static lathe_toml_node *node_of(const json_t *value, const char *origin, lathe_arena *arena);

static int take_child(lathe_toml_node *node, const char *key, const json_t *value,
                      lathe_arena *arena)
{
    lathe_toml_node *child = node_of(value, node->origin, arena);
    if (child && key)
        child->key = lathe_arena_strdup(arena, key);
    node->children[node->n_children++] = child;
    return child && (!key || child->key);
}

/* The members of an object or array. Returns 0 without memory. */
static int take_children(lathe_toml_node *node, const json_t *value, lathe_arena *arena)
{
    const int is_table = json_is_object(value);
    const size_t n = is_table ? json_object_size(value) : json_array_size(value);
    const char *key;
    json_t *inner;
    int is_whole = 1;
    node->children = lathe_arena_alloc(arena, (int64_t)((n + 1) * sizeof(void *)));
    if (!node->children)
        return 0;
    for (size_t i = 0; i < n && !is_table; i++)
        is_whole &= take_child(node, NULL, json_array_get(value, i), arena);
    if (is_table)
        json_object_foreach((json_t *)(uintptr_t)value, key, inner) is_whole &=
            json_is_null(inner) || take_child(node, key, inner, arena);
    return is_whole;
}

/* The TOML value of a JSON value. A null in an
 * array is a number that JSON cannot write. NULL: no memory. */
static lathe_toml_node *node_of(const json_t *value, const char *origin, lathe_arena *arena)
{
    lathe_toml_node *node = lathe_arena_alloc(arena, (int64_t)sizeof *node);
    if (!node)
        return NULL;
    *node = (lathe_toml_node){.origin = origin};
    if (json_is_object(value) || json_is_array(value)) {
        node->kind = json_is_object(value) ? LATHE_TOML_TABLE : LATHE_TOML_ARRAY;
        return take_children(node, value, arena) ? node : NULL;
    }
    if (json_is_string(value)) {
        node->kind = LATHE_TOML_STRING;
        node->s = lathe_arena_strdup(arena, json_string_value(value));
        return node->s ? node : NULL;
    }
    node->kind = json_is_boolean(value)   ? LATHE_TOML_BOOL
                 : json_is_integer(value) ? LATHE_TOML_INT
                                          : LATHE_TOML_FLOAT;
    node->i = json_is_integer(value) ? (int64_t)json_integer_value(value) : json_is_true(value);
    node->f = json_is_null(value) ? (double)NAN : json_number_value(value);
    return node;
}

lathe_status lathe_settings_take(lathe_setting_list *list, const lathe_edit *one)
{
    if (lathe_settings_have(list, one->key))
        return LATHE_OK;
    if (list->n == MAX_SETTINGS)
        return lathe_error(LATHE_E_UNSUPPORTED, "more than %d settings of a run", MAX_SETTINGS);
    list->edits[list->n++] = *one;
    return LATHE_OK;
}

lathe_status lathe_settings_add(lathe_setting_list *list, lathe_arena *arena, const char *section,
                                const char *key, const json_t *value)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    if (!value || json_is_null(value))
        return LATHE_OK;
    const char *origin = lathe_arena_printf(arena, "--%s.%s", section, key);
    lathe_toml_node *node = origin ? node_of(value, list->dir ? list->dir : origin, arena) : NULL;
    if (!node)
        return LATHE_E_NOMEM;
    if (!node->s) { /* for a key that wants a text */
        lathe_toml_json(node, &text);
        node->s = text.status == LATHE_OK ? lathe_arena_strdup(arena, text.data) : NULL;
        lathe_buffer_fini(&text);
        if (!node->s)
            return LATHE_E_NOMEM;
    }
    return lathe_settings_take(
        list, &(lathe_edit){.key = origin + 2, .value = node, .by = LATHE_BY_FOLDER});
}

/* Keys that say how a run trains its adapter, and nothing of what the adapter computes. */
static int is_of_training(const char *section, const char *key)
{
    return (strcmp(section, "adapter") == 0 && strncmp(key, "merge_", 6) == 0) ||
           (strcmp(section, "quant") == 0 && strncmp(key, "noise", 5) == 0) ||
           (strcmp(section, "model") == 0 &&
            (strcmp(key, "reference_adapter") == 0 || strcmp(key, "weights") == 0));
}

/* Whether a key is a setting: not one that identifies the plugin, and not the path of the model,
 * which is found separately. */
static int is_setting(const char *section, const char *key)
{
    return !is_of_training(section, key) && strcmp(key, "plugin") != 0 &&
           strcmp(key, "version") != 0 &&
           (strcmp(section, "model") != 0 || strcmp(key, "path") != 0);
}

lathe_status lathe_settings_add_section(lathe_setting_list *list, lathe_arena *arena,
                                        const json_t *config, const char *section)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(config, section), key, value)
    {
        if (is_setting(section, key))
            LATHE_TRY(lathe_settings_add(list, arena, section, key, value));
    }
    return LATHE_OK;
}

lathe_status lathe_settings_add_tokens(lathe_setting_list *list, lathe_arena *arena,
                                       const json_t *config)
{
    static const char *const of_tokens[] = {"add_tokens", "add_plain", "add_init", "add_seed"};
    static const char of_rows[] = "pad_to_multiple_of";
    const json_t *tokenizer = json_object_get(config, "tokenizer");
    const json_t *multiple = json_object_get(tokenizer, of_rows);
    const int has_tokens = json_array_size(json_object_get(tokenizer, of_tokens[0])) > 0;
    for (size_t i = 0; i < sizeof of_tokens / sizeof of_tokens[0] && has_tokens; i++)
        LATHE_TRY(lathe_settings_add(list, arena, "tokenizer", of_tokens[i],
                                     json_object_get(tokenizer, of_tokens[i])));
    return json_integer_value(multiple) > 1
               ? lathe_settings_add(list, arena, "tokenizer", of_rows, multiple)
               : LATHE_OK;
}

lathe_status lathe_settings_add_precision(lathe_setting_list *list, lathe_arena *arena,
                                          const json_t *config)
{
    json_t *precision = json_object_get(json_object_get(config, "train"), "precision");
    const char *text = json_string_value(precision);
    return text && strcmp(text, "bf16") != 0
               ? lathe_settings_add(list, arena, "train", "precision", precision)
               : LATHE_OK;
}

lathe_status lathe_settings_add_renderer(lathe_setting_list *list, lathe_arena *arena,
                                         json_t *renderer)
{
    if (!lathe_renderer_is_named(renderer))
        return LATHE_OK;
    json_t *config = json_pack("{s:O}", "renderer", renderer);
    if (!config)
        return lathe_error(LATHE_E_NOMEM, "no memory for the renderer's settings");
    const lathe_status status = lathe_settings_add_section(list, arena, config, "renderer");
    json_decref(config);
    return status;
}

static int is_number(const lathe_toml_node *node)
{
    return node->kind == LATHE_TOML_INT || node->kind == LATHE_TOML_FLOAT;
}

/* Whether a value is a key's default. */
static lathe_status is_default(const lathe_toml_node *value, const lathe_field *field,
                               lathe_arena *arena, int *out)
{
    lathe_toml_node *usual = NULL;
    lathe_buffer a = LATHE_BUFFER_INIT, b = LATHE_BUFFER_INIT;
    *out = 0;
    if (!field->default_value)
        return LATHE_OK;
    LATHE_TRY(lathe_toml_literal(field->default_value, arena, &usual));
    if (is_number(value) && is_number(usual)) {
        *out = !(value->f < usual->f) && !(usual->f < value->f);
        return LATHE_OK;
    }
    lathe_toml_json(value, &a);
    lathe_toml_json(usual, &b);
    const lathe_status status = a.status != LATHE_OK ? a.status : b.status;
    *out = status == LATHE_OK && strcmp(a.data, b.data) == 0;
    lathe_buffer_fini(&a);
    lathe_buffer_fini(&b);
    return status;
}

/* Removes the settings of the stage that have their default. The manifest holds all of them, also
 * those that have no meaning beside the others and may not be set. */
static lathe_status drop_defaults(lathe_setting_list *list, const lathe_plugin *stage,
                                  lathe_arena *arena)
{
    int32_t n = 0;
    for (int32_t i = 0; i < list->n; i++) {
        const char *key = list->edits[i].key;
        int drop = 0, same = 0;
        for (int32_t k = 0; k < stage->n_fields; k++) {
            if (strncmp(key, "stage.", 6) != 0 || strcmp(key + 6, stage->fields[k].key) != 0)
                continue;
            LATHE_TRY(is_default(list->edits[i].value, &stage->fields[k], arena, &same));
            drop |= same;
        }
        if (!drop)
            list->edits[n++] = list->edits[i];
    }
    list->n = n;
    return LATHE_OK;
}

/* The plugin of a stage; NULL: it is not found, which opening the run says. */
static lathe_status find_stage(lathe_registry *registry, const char *name, const lathe_plugin **out)
{
    const lathe_component *found = NULL;
    const lathe_status status =
        name ? lathe_registry_find(registry, LATHE_KIND_STAGE, name, &found) : LATHE_OK;
    *out = status == LATHE_OK && found ? found->plugin : NULL;
    if (status != LATHE_OK && status != LATHE_E_NOMEM)
        lathe_error_clear();
    return status == LATHE_E_NOMEM ? status : LATHE_OK;
}

/* Whether a stage compares the model with the one before training. */
static int compares(const lathe_plugin *stage)
{
    const lathe_stage_v1 *table = stage->table;
    return (table->needs & LATHE_NEEDS_REFERENCE) != 0;
}

lathe_status lathe_settings_add_evaluation(lathe_setting_list *list, lathe_arena *arena,
                                           lathe_registry *registry, const json_t *config,
                                           int32_t skip_stage)
{
    static const char *const of_stage[] = {"stage", "teacher"};
    static const char *const of_data[] = {"seq_len", "packing", "overlong"};
    const json_t *data = json_object_get(config, "data");
    for (size_t i = 0; i < sizeof of_stage / sizeof of_stage[0] && !skip_stage; i++)
        LATHE_TRY(lathe_settings_add_section(list, arena, config, of_stage[i]));
    const lathe_plugin *stage = NULL;
    LATHE_TRY(find_stage(
        registry, json_string_value(json_object_get(json_object_get(config, "stage"), "name")),
        &stage));
    if (stage && !skip_stage)
        LATHE_TRY(drop_defaults(list, stage, arena));
    static const char *const of_reference[] = {"adapter", "reference_adapter"};
    for (size_t i = 0; stage && compares(stage) && i < 2; i++)
        LATHE_TRY(
            lathe_settings_add(list, arena, "model", of_reference[i],
                               json_object_get(json_object_get(config, "model"), of_reference[i])));
    for (size_t i = 0; i < sizeof of_data / sizeof of_data[0]; i++)
        LATHE_TRY(
            lathe_settings_add(list, arena, "data", of_data[i], json_object_get(data, of_data[i])));
    const json_t *train = json_object_get(config, "train");
    return lathe_settings_add(list, arena, "train", "micro_batch_size",
                              json_object_get(train, "micro_batch_size"));
}

/* ---- the data of a run ---- */

/* The folder in which the run was started: that of the checkpoint without checkpoint.dir and the
 * name. NULL: not known. */
static const char *start_folder(const json_t *meta, lathe_arena *arena)
{
    const char *folder = json_string_value(json_object_get(meta, "folder"));
    const json_t *config = json_object_get(meta, "config");
    const char *dir =
        json_string_value(json_object_get(json_object_get(config, "checkpoint"), "dir"));
    const char *name = folder ? strrchr(folder, '/') : NULL;
    const size_t n = name ? (size_t)(name - folder) : 0, n_dir = dir ? strlen(dir) : 0;
    if (n_dir == 0 || dir[0] == '/' || n <= n_dir + 1 ||
        strncmp(folder + n - n_dir, dir, n_dir) != 0 || folder[n - n_dir - 1] != '/')
        return NULL;
    return lathe_arena_strndup(arena, folder, (int64_t)(n - n_dir - 1));
}

/* Puts the path of a dataset where it is found. LATHE_E_CONFIG: nowhere. */
static lathe_status find_data(json_t *dataset, const char *dir, const char *start,
                              lathe_arena *arena)
{
    const char *path = json_string_value(json_object_get(dataset, "path"));
    if (!path || lathe_path_exists(path) || strpbrk(path, "*?["))
        return LATHE_OK;
    const char *there = start && path[0] != '/' ? lathe_path_join(arena, start, path) : NULL;
    if (!there || !lathe_path_exists(there))
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: its run was evaluated on %s, which is not here: name the data to evaluate on", dir,
            path);
    return json_object_set_new(dataset, "path", json_string(there)) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "no memory for the data of a run");
}

static lathe_status find_all(json_t *data, const char *key, const char *dir, const char *start,
                             lathe_arena *arena)
{
    json_t *sets = json_object_get(data, key);
    if (json_is_object(sets))
        return find_data(sets, dir, start, arena);
    for (size_t i = 0; i < json_array_size(sets); i++)
        LATHE_TRY(find_data(json_array_get(sets, i), dir, start, arena));
    return LATHE_OK;
}

static lathe_status is_core_default(const lathe_core_section *section, const char *key,
                                    const lathe_toml_node *value, lathe_arena *arena, int *out)
{
    *out = 0;
    for (int32_t i = 0; i < section->n_fields; i++)
        if (strcmp(section->fields[i].key, key) == 0)
            return is_default(value, &section->fields[i], arena, out);
    return LATHE_OK;
}

/* Adds the keys of [data] that have not their default: some may not be set beside others. */
static lathe_status add_data(lathe_setting_list *list, lathe_arena *arena, json_t *data)
{
    static const char *const of_machine[] = {"cache_dir", "prefetch"};
    const lathe_core_section *section = lathe_core_section_find("data");
    const char *key;
    json_t *value;
    for (size_t i = 0; i < sizeof of_machine / sizeof of_machine[0]; i++)
        (void)json_object_del(data, of_machine[i]);
    json_object_foreach(data, key, value)
    {
        const int32_t n = list->n;
        int same = 0;
        LATHE_TRY(lathe_settings_add(list, arena, "data", key, value));
        if (list->n > n)
            LATHE_TRY(is_core_default(section, key, list->edits[n].value, arena, &same));
        list->n = same ? n : list->n;
    }
    return LATHE_OK;
}

static lathe_status add_validation(lathe_setting_list *list, lathe_arena *arena, const char *dir,
                                   const json_t *meta)
{
    const json_t *config = json_object_get(meta, "config");
    json_t *data = json_object_get(config, "data"), *own = json_object_get(data, "validation");
    const char *start = start_folder(meta, arena);
    const int has_split = json_number_value(json_object_get(data, "validation_split")) > 0.0 ||
                          json_integer_value(json_object_get(data, "validation_count")) > 0;
    if (!json_is_object(data))
        return lathe_error(
            LATHE_E_CONFIG,
            "name a file or folder to evaluate on: %s is of no run, whose validation "
            "data could be taken",
            dir);
    if (!own && !has_split)
        return lathe_error(LATHE_E_CONFIG,
                           "name a file or folder to evaluate on: the run of %s had no validation "
                           "data",
                           dir);
    if (own) { /* what the run was trained on may be gone */
        LATHE_TRY(find_all(data, "validation", dir, start, arena));
        (void)json_object_set(data, "datasets", own);
    } else {
        LATHE_TRY(find_all(data, "datasets", dir, start, arena));
    }
    LATHE_TRY(add_data(list, arena, data));
    /* an evaluation that only reads would replace bf16 by a more exact precision */
    const json_t *train = json_object_get(config, "train");
    LATHE_TRY(
        lathe_settings_add(list, arena, "train", "precision", json_object_get(train, "precision")));
    return lathe_settings_add(list, arena, "train", "seed", json_object_get(train, "seed"));
}

lathe_status lathe_settings_add_validation(lathe_setting_list *list, lathe_arena *arena,
                                           const char *dir)
{
    json_t *meta = NULL;
    const char *from = NULL;
    LATHE_TRY(lathe__manifest_folder(dir, arena, &from));
    if (from)
        LATHE_TRY(lathe_checkpoint_meta(from, &meta));
    const lathe_status status = add_validation(list, arena, dir, meta);
    json_decref(meta);
    return status;
}
