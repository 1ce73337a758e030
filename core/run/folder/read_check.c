/* Compares the model, the adapter and the format of a run file with those of its checkpoint. */
#include "run/folder/read_check.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"
#include "checkpoint/state/model_folder.h"
#include "checkpoint/state/parents.h"
#include "config/config_changes.h"
#include "run/resume/resume_check.h"
#include "run/resume/resume_refusal.h"
#include "run/state/run_saved.h"

static int is_in(const char *name, const char *section)
{
    const size_t n = strlen(section);
    return strncmp(name, section, n) == 0 && name[n] == '.';
}

/* Whether the section has a plugin, then or now. */
static int is_used(const json_t *config, const char *section)
{
    return json_object_get(json_object_get(config, section), "plugin") != NULL;
}

/* Whether the choice of the adapter changes what is computed: one of the two adds parameters, or
 * decides which weights are quantized. Methods that train the model's own weights compute the same
 * as none. */
static int adapter_matters(const lathe_run *run, const char *dir, const json_t *before,
                           const json_t *now)
{
    const lathe_adapter_v1 *table = run->parts.adapter.component ? run->parts.adapter.table : NULL;
    const int has_file = lathe_folder_holds(dir, "adapter_model.safetensors");
    return LATHE_HAS(table, wrap) || has_file || is_used(before, "quant") || is_used(now, "quant");
}

/* Whether a key differs only because the plugin got it after the checkpoint was written. */
static int is_new_default(const lathe_run *run, const char *section, const char *key,
                          const json_t *change)
{
    const lathe_value *value = lathe_config_get(run->config, section, key);
    return json_is_null(json_object_get(change, "from")) && value && !value->is_explicit;
}

static lathe_status refuse(const lathe_run *run, const char *dir, const char *section,
                           const char *key, const json_t *change)
{
    lathe_buffer was = LATHE_BUFFER_INIT, is = LATHE_BUFFER_INIT;
    lathe_change_value_put(json_object_get(change, "from"), &was);
    lathe_change_value_put(json_object_get(change, "to"), &is);
    const lathe_status status = lathe__run_refuse(
        run, section, key,
        "%s.%s is %s, but %s was written with %s: set it back, or name the folder %s instead of "
        "the run file",
        section, key, is.data ? is.data : "?", dir, was.data ? was.data : "?", dir);
    lathe_buffer_fini(&was);
    lathe_buffer_fini(&is);
    return status;
}

static lathe_status compare(const lathe_run *run, const char *dir, const json_t *before,
                            const json_t *now)
{
    json_t *changes = lathe_config_changes(before, now), *change;
    const int with_adapter = adapter_matters(run, dir, before, now);
    const char *name;
    lathe_status status =
        changes ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory to compare settings");
    json_object_foreach(changes, name, change)
    {
        char section[64], key[64];
        lathe__resume_split_name(name, section, key);
        const int is_plugin = strcmp(name + strlen(section), ".plugin") == 0;
        if (!(is_in(name, "adapter") && with_adapter) && !is_in(name, "quant") &&
            !(is_in(name, "model") && (lathe_change_effect(name) & LATHE_CHANGE_FIXED)))
            continue;
        if (!is_plugin && (strcmp(key, "name") == 0 || strcmp(key, "version") == 0 ||
                           is_new_default(run, section, key, change)))
            continue;
        status = refuse(run, dir, section, key, change);
        break;
    }
    json_decref(changes);
    return status;
}

/* Places a message about another model at the key. On the command line it is meant. */
static lathe_status other_model(lathe_run *run, const char *section, const char *key)
{
    const char *why = lathe_arena_strdup(&run->arena, lathe_error_message());
    if (why == NULL)
        return LATHE_E_NOMEM;
    lathe_error_clear();
    if (lathe_config_is_override(run->config, section, key)) {
        lathe__run_warn(run, section, key, "%s", why);
        return LATHE_OK;
    }
    return lathe__run_refuse(run, section, key,
                             "%s; restore it, or, if it is meant, give it on the command line: "
                             "--%s.%s",
                             why, section, key);
}

/* Compares the models under and beside the checkpoint's weights with those that its run had. A
 * checkpoint of a whole model needs none to generate. */
static lathe_status check_models(lathe_run *run, const char *dir, const json_t *meta)
{
    const char *section = "model", *key = "path";
    lathe_model_folder folder;
    LATHE_TRY(lathe_model_folder_find(dir, LATHE_WEIGHTS_TRAINING, &run->arena, &folder));
    const int needs_base = !folder.has_model || run->params.has_reference;
    lathe_status status = LATHE_OK;
    if (needs_base && run->set.model_path)
        status = lathe__checkpoint_check_model(meta, run->set.model_path);
    if (status == LATHE_OK && lathe__run_evaluates(run))
        status = lathe__checkpoint_check_others(lathe__run_saved(run), meta, &section, &key);
    return status == LATHE_E_CONFIG ? other_model(run, section, key) : status;
}

lathe_status lathe_read_check(lathe_run *run)
{
    const char *dir = NULL;
    json_t *meta = NULL, *now = NULL;
    LATHE_TRY(lathe_resume_meta(run, &dir, &meta));
    if (meta == NULL)
        return LATHE_OK;
    const json_t *before = json_object_get(meta, "config");
    lathe_status status = lathe_config_object(run->config, &now);
    if (status == LATHE_OK && before)
        status = compare(run, dir, before, now);
    if (status == LATHE_OK)
        status = check_models(run, dir, meta);
    json_decref(now);
    json_decref(meta);
    return status;
}
