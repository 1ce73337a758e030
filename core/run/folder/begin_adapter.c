/* Reads the settings of the adapter that a run begins with. */
#include "run/folder/begin_adapter.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/model_path.h"
#include "checkpoint/state/model_folder.h"
#include "plug/schema_value.h"
#include "run/folder/adapter_folder.h"
#include "run/folder/folder_check.h"
#include "run/folder/other_adapter.h"

static const char of_adapter[] = "adapter.", of_quant[] = "quant.", of_tokens[] = "tokenizer.";

static int begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Keys that change how the adapter is trained, but not what it computes. */
static int is_training_only(const char *key)
{
    static const char *const free_keys[] = {"adapter.dropout", "adapter.lr_ratio",
                                            "adapter.strict"};
    if (begins_with(key, "adapter.merge_"))
        return 1;
    for (size_t i = 0; i < sizeof free_keys / sizeof free_keys[0]; i++)
        if (strcmp(key, free_keys[i]) == 0)
            return 1;
    return 0;
}

/* ---- the folder ---- */

/* Finds the adapter of model.adapter. */
static lathe_status find_named(lathe_run *run, const char *named, const char **out)
{
    char hint[LATHE_HUB_HINT];
    if (!lathe_path_is_dir(named))
        return lathe__run_refuse(
            run, "model", "adapter",
            lathe_path_exists(named) ? "model.adapter: a file, expected a folder: %s%s"
                                     : "model.adapter: no such folder: %s%s",
            named,
            lathe_hub_hint_of(lathe_config_written(run->config, named), named, hint, sizeof hint));
    if (lathe_adapter_folder_find(named, &run->arena, out) != LATHE_OK) {
        const char *why = lathe_arena_strdup(&run->arena, lathe_error_message());
        return lathe__run_refuse(run, "model", "adapter", "model.adapter: %s",
                                 why ? why : "no memory");
    }
    if (!*out)
        return lathe__run_refuse(run, "model", "adapter",
                                 "model.adapter = \"%s\": the folder has no "
                                 "adapter_model.safetensors, so it is not an adapter's%s",
                                 named, lathe_adapters_hint(named, hint));
    return LATHE_OK;
}

/* Finds the adapter of model.path, which may be a model's folder. */
static const char *adapter_in(lathe_run *run, const char *path)
{
    const char *found;
    if (lathe_adapter_folder_find(path, &run->arena, &found) != LATHE_OK)
        lathe_error_clear(); /* the model's reader says it */
    return found;
}

/* Copies a string out of the configuration, which is destroyed and read again. *io_text may be
 * NULL. */
static lathe_status keep(lathe_run *run, const char **io_text)
{
    if (!*io_text)
        return LATHE_OK;
    *io_text = lathe_arena_strdup(&run->arena, *io_text);
    return *io_text ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status find_folder(lathe_run *run, lathe_begin_adapter *out, const char **out_base)
{
    const char *named = run->set.model_adapter, *path = run->set.model_path;
    LATHE_TRY(keep(run, &named));
    LATHE_TRY(keep(run, &path));
    *out_base = named ? path : NULL;
    *out = (lathe_begin_adapter){.key = named ? "adapter" : "path"};
    if (lathe__is_elsewhere(run, named ? named : path)) {
        /* the folder that is not here may name the method, so keys of [adapter] are not checked
         * if the run names none */
        run->decided.is_other_method |= !lathe_config_names(run->config, LATHE_KIND_ADAPTER);
        return LATHE_OK;
    }
    if (named)
        return find_named(run, named, &out->dir);
    if (path && lathe__run_is_of_file(run))
        out->dir = adapter_in(run, path);
    return LATHE_OK;
}

/* ---- its settings ---- */

static const char adapter_name[] = "adapter.name";

/* Rows of an adapter belong to the tokens that its run added: with others, or in another order,
 * they would be those of other tokens. */
static lathe_status refuse_other_tokens(lathe_run *run, const lathe_begin_adapter *begin)
{
    const lathe_value *own = lathe_config_get(run->config, "tokenizer", "add_tokens");
    for (int32_t i = 0; i < begin->settings.n; i++) {
        const lathe_edit *one = &begin->settings.edits[i];
        if (strcmp(one->key, "tokenizer.add_tokens") != 0 || own == NULL ||
            !lathe_config_is_explicit(run->config, "tokenizer", "add_tokens"))
            continue;
        int same = own->n == one->value->n_children;
        for (int64_t k = 0; same && k < own->n; k++)
            same = one->value->children[k]->s != NULL &&
                   strcmp(own->strs[k], one->value->children[k]->s) == 0;
        if (!same)
            return lathe__run_refuse(run, "tokenizer", "add_tokens",
                                     "tokenizer.add_tokens differs from that of the adapter in %s, "
                                     "whose rows belong to its own tokens: leave the key out, or "
                                     "merge the adapter first (lathe merge), and add tokens to the "
                                     "result",
                                     begin->dir);
    }
    return LATHE_OK;
}

/* Adds what the run does not name: the method, the format of the frozen weights, and the tokens
 * that the model got with the adapter. */
static void append_method(lathe_run *run, const lathe_begin_adapter *begin)
{
    const int has_method = lathe_config_names(run->config, LATHE_KIND_ADAPTER);
    const int has_format = lathe_config_names(run->config, LATHE_KIND_QUANT);
    for (int32_t i = 0; i < begin->settings.n; i++) {
        const lathe_edit *one = &begin->settings.edits[i];
        if ((!has_method && strcmp(one->key, adapter_name) == 0) ||
            (!has_format && begins_with(one->key, of_quant)) ||
            (begins_with(one->key, of_tokens) &&
             !lathe_config_is_explicit(run->config, "tokenizer", one->key + strlen(of_tokens))))
            lathe_edits_add(&run->decided.edits, one);
    }
}

/* Appends the model and the adapter, the adapter's tokenizer, the method and the format. */
static lathe_status append_names(lathe_run *run, const char *base, const lathe_begin_adapter *begin)
{
    const char *tokenizer = NULL, *chat = NULL;
    lathe_edits *edits = &run->decided.edits;
    if (!run->set.tokenizer_path && !run->set.tokenizer_train)
        LATHE_TRY(lathe_folder_tokenizer(begin->dir, &run->arena, &tokenizer));
    if (tokenizer && !run->set.chat_template)
        LATHE_TRY(lathe_folder_bytes_template(begin->dir, &run->arena, &chat));
    lathe_edits_text(edits, LATHE_BY_FOLDER, "model.path", base);
    lathe_edits_text(edits, LATHE_BY_FOLDER, "model.adapter", begin->dir);
    if (tokenizer)
        lathe_edits_text(edits, LATHE_BY_FOLDER, "tokenizer.path", tokenizer);
    if (chat)
        lathe_edits_text(edits, LATHE_BY_FOLDER, "data.chat_template", chat);
    LATHE_TRY(refuse_other_tokens(run, begin));
    append_method(run, begin);
    return edits->status;
}

/* Takes the settings of an adapter that is not made yet, over the model of model.path. */
static lathe_status find_unmade(lathe_run *run, lathe_begin_adapter *out)
{
    json_t *config = NULL;
    const char *text = run->open.awaits.adapter;
    *out = (lathe_begin_adapter){.key = "path", .dir = run->open.awaits.what};
    LATHE_TRY(
        lathe_json_load("the settings of an earlier step", text, (int64_t)strlen(text), &config));
    lathe_status status = lathe_settings_init(&out->settings, &run->arena);
    if (status == LATHE_OK)
        status = lathe_adapter_settings_add(&out->settings, &run->arena, config);
    json_decref(config);
    LATHE_TRY(status);
    append_method(run, out);
    return run->decided.edits.status;
}

/* Whether the run's method has the key; another one than the folder's may lack it. */
static int has_key(const lathe_run *run, const char *key)
{
    return lathe_config_get(run->config, "adapter", key) != NULL;
}

/* Appends the defaults of keys that the file has and the folder has not, so that the check finds
 * other values. A key without a default cannot be unset: it is refused here. */
static lathe_status append_defaults(lathe_run *run, const lathe_begin_adapter *begin)
{
    int32_t n = 0;
    const lathe_field *fields = lathe_config_fields(run->config, "adapter", &n);
    for (int32_t i = 0; i < n; i++) {
        const char *key = lathe_arena_printf(&run->arena, "%s%s", of_adapter, fields[i].key);
        if (!key)
            return LATHE_E_NOMEM;
        if (strcmp(key, adapter_name) == 0 || is_training_only(key) ||
            lathe_settings_have(&begin->settings, key) ||
            !lathe_config_is_explicit(run->config, "adapter", fields[i].key))
            continue;
        if (!fields[i].default_value)
            return lathe__run_refuse(run, "adapter", fields[i].key,
                                     "adapter.%s is set, but the adapter in %s was trained without "
                                     "it: leave the key out",
                                     fields[i].key, begin->dir);
        lathe_toml_node *usual = NULL;
        LATHE_TRY(lathe_toml_literal(fields[i].default_value, &run->arena, &usual));
        lathe_edits_node_of(&run->decided.edits, LATHE_BY_FOLDER, key, usual, begin->dir);
    }
    return run->decided.edits.status;
}

lathe_status lathe__begin_adapter_take(lathe_run *run, lathe_begin_adapter *begin)
{
    begin->first = run->decided.edits.n;
    for (int32_t i = 0; i < begin->settings.n; i++) {
        const lathe_edit *one = &begin->settings.edits[i];
        const char *key = one->key + strlen(of_adapter);
        if (begins_with(one->key, of_adapter) && strcmp(one->key, adapter_name) != 0 &&
            has_key(run, key) &&
            !(is_training_only(one->key) && lathe_config_is_explicit(run->config, "adapter", key)))
            lathe_edits_add(&run->decided.edits, one);
    }
    return append_defaults(run, begin);
}

/* Refuses a model and an adapter of which one has a partner of its own. */
static lathe_status refuse_merged(lathe_run *run, const char *dir, const char *base)
{
    const lathe_status status = lathe_adapter_folder_refuse_merged(dir, base);
    if (status != LATHE_E_CONFIG)
        return status;
    const char *why = lathe_arena_strdup(&run->arena, lathe_error_message());
    return lathe__run_refuse(run, "model", "adapter", "model.adapter = \"%s\": %s", dir,
                             why ? why : "no memory");
}

/* Compares the model that is named for an adapter with the one that it was trained over. */
static lathe_status warn_of_base(lathe_run *run, const char *dir, const char *base)
{
    const char *difference;
    LATHE_TRY(refuse_merged(run, dir, base));
    LATHE_TRY(lathe__adapter_base_difference(dir, base, &run->arena, &difference));
    run->decided.base_warning = difference; /* what is added now goes when the file is read again */
    return LATHE_OK;
}

/* Refuses the model that an adapter itself names, if it is not the one that it was trained over. */
static lathe_status refuse_other_base(lathe_run *run, const char *dir, const char *base)
{
    const lathe_status status = lathe_adapter_base_check(dir, base);
    if (status != LATHE_E_CONFIG)
        return status;
    const char *why = lathe_arena_strdup(&run->arena, lathe_error_message());
    return lathe__run_refuse(run, "model", "path", "%s", why ? why : "no memory");
}

lathe_status lathe__begin_adapter_find(lathe_run *run, lathe_begin_adapter *out)
{
    lathe_adapter_folder folder;
    const char *base = NULL;
    LATHE_TRY(run->open.awaits.adapter ? find_unmade(run, out) : find_folder(run, out, &base));
    if (!out->dir)
        return LATHE_OK;
    if (lathe_config_part(run->config, LATHE_KIND_ADAPTER)->is_auto)
        return lathe__run_refuse(run, "adapter", "name",
                                 "adapter.name = \"auto\" chooses a method, but model.%s names an "
                                 "adapter, which has one: leave the key out",
                                 out->key);
    if (run->open.awaits.adapter)
        return LATHE_OK;
    const lathe_status status = lathe_adapter_folder_read(out->dir, base, &run->arena, &folder);
    if (status == LATHE_E_CONFIG) {
        const char *why = lathe_arena_strdup(&run->arena, lathe_error_message());
        return lathe__run_refuse(run, "model", out->key,
                                 "%s (in a run file: model.path = the model, model.adapter = the "
                                 "adapter)",
                                 why ? why : "no memory");
    }
    LATHE_TRY(status);
    if (folder.fixed && lathe__run_has_step(run))
        return lathe__run_refuse(run, "model", out->key,
                                 "%s/adapter_config.json: %s: this adapter can be read, but not "
                                 "trained further",
                                 out->dir, folder.fixed);
    LATHE_TRY(base ? warn_of_base(run, out->dir, base)
                   : refuse_other_base(run, out->dir, folder.base));
    run->decided.base_is_exact = base == NULL;
    out->settings = folder.settings;
    LATHE_TRY(append_names(run, folder.base, out));
    lathe_log(LATHE_LOG_INFO, "begins with the adapter in %s, over the model in %s", out->dir,
              folder.base);
    return LATHE_OK;
}

/* ---- what the run file says ---- */

static lathe_status refuse_change(lathe_run *run, lathe_config *first, const char *key,
                                  const lathe_begin_adapter *begin)
{
    lathe_buffer own = LATHE_BUFFER_INIT, was = LATHE_BUFFER_INIT;
    lathe_config *const now = run->config;
    lathe_value_json(lathe_config_get(first, "adapter", key), &own);
    lathe_value_json(lathe_config_get(now, "adapter", key), &was);
    lathe_status status = own.status == LATHE_OK ? was.status : own.status;
    if (status == LATHE_OK && strcmp(own.data, was.data) != 0) {
        run->config = first; /* it has the place of the key in the file */
        status = strcmp(key, "init") == 0
                     ? lathe__run_refuse(run, "adapter", key,
                                         "adapter.init is %s, but the adapter in %s has its values "
                                         "already: leave the key out",
                                         own.data, begin->dir)
                     : lathe__run_refuse(run, "adapter", key,
                                         "adapter.%s is %s, but the adapter in %s was trained with "
                                         "%s, and computes something else with another value: "
                                         "leave the key out",
                                         key, own.data, begin->dir, was.data);
        run->config = now;
    }
    lathe_buffer_fini(&own);
    lathe_buffer_fini(&was);
    return status;
}

lathe_status lathe__begin_adapter_check(lathe_run *run, lathe_config *first,
                                        const lathe_begin_adapter *begin)
{
    for (int32_t i = begin->first; i < run->decided.edits.n; i++) {
        const char *key = run->decided.edits.list[i].key + strlen(of_adapter);
        if (lathe_config_is_explicit(first, "adapter", key))
            LATHE_TRY(refuse_change(run, first, key, begin));
    }
    return LATHE_OK;
}
