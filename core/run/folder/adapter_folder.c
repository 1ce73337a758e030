/* Reads the settings of an adapter's folder. */
#include "run/folder/adapter_folder.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "checkpoint/state/model_folder.h"
#include "run/folder/peft_config.h"

#define WEIGHTS "adapter_model.safetensors"

/* Files of an adapter in Python's pickle format. */
static const char *const pickled[] = {"adapter_model.bin"};

static const char *pickle_of(const char *dir)
{
    for (size_t i = 0; i < sizeof pickled / sizeof pickled[0]; i++)
        if (lathe_folder_has(dir, pickled[i]))
            return pickled[i];
    return NULL;
}

static int has_weights(const char *dir)
{
    return lathe_folder_has(dir, WEIGHTS) || lathe_folder_has(dir, WEIGHTS ".index.json");
}

int32_t lathe_adapter_folder_is(const char *dir)
{
    return lathe_folder_has_adapter(dir);
}

/* A file of pickled tensors is named: beside the file that is read, or in its place. */
static lathe_status check_files(const char *dir)
{
    const char *other = pickle_of(dir);
    if (other == NULL)
        return LATHE_OK;
    if (!has_weights(dir))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the adapter's weights are in %s, in Python's pickle format, which "
                           "can run code and is not read; expected " WEIGHTS
                           ": load the folder with PEFT, and save it by save_pretrained",
                           dir, other);
    lathe_log(LATHE_LOG_WARN, "%s: %s is not read, as " WEIGHTS " stands beside it", dir, other);
    return LATHE_OK;
}

lathe_status lathe_adapter_settings_add(lathe_setting_list *list, lathe_arena *arena,
                                        const json_t *config)
{
    const json_t *quant = json_object_get(json_object_get(config, "quant"), "name");
    const char *name = json_string_value(quant);
    LATHE_TRY(lathe_settings_add_section(list, arena, config, "adapter"));
    LATHE_TRY(lathe_settings_add_tokens(list, arena, config));
    return name && strcmp(name, "none") != 0
               ? lathe_settings_add_section(list, arena, config, "quant")
               : LATHE_OK;
}

static lathe_status add_run(lathe_adapter_folder *f, lathe_arena *arena, const json_t *config,
                            int whole_model)
{
    LATHE_TRY(lathe_adapter_settings_add(&f->settings, arena, config));
    if (!whole_model && json_object_get(json_object_get(config, "model"), "path") == NULL)
        LATHE_TRY(lathe_settings_add_section(&f->settings, arena, config, "model"));
    return lathe_settings_add_precision(&f->settings, arena, config);
}

lathe_status lathe_adapter_folder_find(const char *path, lathe_arena *arena, const char **out)
{
    const char *found = NULL;
    *out = NULL;
    LATHE_TRY(lathe_checkpoint_resolve(arena, path, &found));
    *out = lathe_path_is_dir(found) && lathe_adapter_folder_is(found) ? found : NULL;
    return LATHE_OK;
}

lathe_status lathe_adapter_folder_is_classifier(const char *dir, int32_t *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *peft = NULL;
    const lathe_status status = lathe_peft_config_read(dir, &arena, &peft);
    *out = lathe_peft_is_classifier(peft);
    json_decref(peft);
    lathe_arena_fini(&arena);
    return status;
}

/* The stage that reads the score of a reward model: the run's, or rm. */
static lathe_status add_stage(lathe_adapter_folder *f, lathe_arena *arena, const json_t *config,
                              const json_t *peft)
{
    const char *own = json_string_value(json_object_get(json_object_get(config, "stage"), "name"));
    json_t *name = lathe_peft_is_reward(peft) ? json_string(own ? own : "rm") : NULL;
    const lathe_status status = lathe_settings_add(&f->settings, arena, "stage", "name", name);
    json_decref(name);
    return status;
}

/* ---- the model ---- */

/* Finds the model: the folder itself if it contains the whole model, else the user's, else the one
 * that the adapter names. */
static lathe_status find_base(lathe_adapter_folder *f, lathe_arena *arena, const char *dir,
                              const char *given, const json_t *config, const json_t *peft)
{
    const char *of_peft = json_string_value(json_object_get(peft, "base_model_name_or_path"));
    const char *of_run =
        json_string_value(json_object_get(json_object_get(config, "model"), "path"));
    const char *named = of_peft && of_peft[0] ? of_peft : of_run;
    if (given || lathe_folder_has(dir, "config.json")) {
        f->base = given ? given : dir;
        return LATHE_OK;
    }
    if (named && !lathe_path_is_model(named) && of_run && lathe_path_is_model(of_run))
        named = of_run;
    if (named == NULL)
        return lathe_error(LATHE_E_CONFIG,
                           "%s holds an adapter, and no file in it names the adapter's model "
                           "(base_model_name_or_path in adapter_config.json): name the model's "
                           "folder in model.path",
                           dir);
    if (!lathe_path_is_model(named))
        return lathe_error(LATHE_E_CONFIG,
                           "%s holds an adapter of the model %s, which does not exist: name the "
                           "model's folder in model.path",
                           dir, named);
    f->base = lathe_arena_strdup(arena, named);
    return f->base ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status read_settings(lathe_adapter_folder *f, lathe_arena *arena, const char *dir,
                                  const char *base, const json_t *config, const json_t *peft)
{
    LATHE_TRY(find_base(f, arena, dir, base, config, peft));
    LATHE_TRY(add_stage(f, arena, config, peft));
    if (config)
        return add_run(f, arena, config, strcmp(f->base, dir) == 0);
    if (peft)
        return lathe_peft_config_settings(dir, peft, arena, &f->settings, &f->fixed);
    return lathe_error(LATHE_E_CONFIG,
                       "%s holds an adapter, but neither manifest.json nor adapter_config.json has "
                       "its settings: name the run file that trained it instead",
                       dir);
}

lathe_status lathe_adapter_folder_read(const char *dir, const char *base, lathe_arena *arena,
                                       lathe_adapter_folder *out)
{
    json_t *config = NULL, *peft = NULL;
    *out = (lathe_adapter_folder){.base = NULL};
    lathe_status status = check_files(dir);
    if (status == LATHE_OK)
        status = lathe_settings_init(&out->settings, arena);
    out->settings.dir = lathe_arena_strdup(arena, dir);
    if (status != LATHE_OK)
        goto out;
    if (out->settings.dir == NULL) {
        status = LATHE_E_NOMEM;
        goto out;
    }
    if ((status = lathe_folder_config(dir, arena, &config, &out->has_manifest)) != LATHE_OK)
        goto out;
    if ((status = lathe_peft_config_read(dir, arena, &peft)) != LATHE_OK)
        goto out;
    status = read_settings(out, arena, dir, base, config, peft);
out:
    json_decref(config);
    json_decref(peft);
    return status;
}
