/* Opens the adapter of the reference model. */
#include "opening/reference_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/checkpoint_folder.h"
#include "io/file_hashes.h"
#include "lathe/adapter.h"
#include "opening/adapter_folder.h"
#include "plug/answers.h"
#include "run/adapter_check.h"

#define KEY "model", "reference_adapter"

lathe_status lathe__reference_adapter_resolve(lathe_run *run, int *out_changed)
{
    const char *named = run->set.model_reference_adapter, *found = NULL;
    const int32_t n = run->open.n_overrides;
    *out_changed = 0;
    if (!named || !lathe_path_is_dir(named) || lathe_adapter_folder_is(named))
        return LATHE_OK;
    if (lathe_checkpoint_resolve(&run->arena, named, &found) != LATHE_OK)
        lathe_error_clear(); /* said where the folder is opened */
    if (!found || strcmp(found, named) == 0)
        return LATHE_OK;
    lathe_override *list = lathe_arena_alloc(&run->arena, (n + 1) * (int64_t)sizeof *list);
    if (!list)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < n; i++)
        list[i] = run->open.overrides[i];
    list[n] = (lathe_override){"model.reference_adapter", found};
    run->open.overrides = list;
    run->open.n_overrides = n + 1;
    *out_changed = 1;
    return LATHE_OK;
}

/* Refuses what is no adapter's folder. */
static lathe_status check_folder(const lathe_run *run)
{
    const char *named = run->set.model_reference_adapter;
    if (!lathe_path_is_dir(named))
        return lathe__run_refuse(run, KEY,
                                 lathe_path_exists(named)
                                     ? "model.reference_adapter: a file, expected a folder: %s"
                                     : "model.reference_adapter: no such folder: %s",
                                 named);
    if (lathe_adapter_folder_is(named))
        return LATHE_OK;
    return lathe__run_refuse(run, KEY,
                             "model.reference_adapter = \"%s\": the folder has no "
                             "adapter_model.safetensors, so it is not an adapter's",
                             named);
}

/* Refuses settings with which the adapter would have no effect, or no meaning. */
static lathe_status check_settings(const lathe_run *run)
{
    const lathe_component *stage = run->parts.stage.component;
    if (!run->set.model_path)
        return lathe__run_refuse(run, KEY,
                                 "model.reference_adapter belongs to a model's folder, and "
                                 "model.path names none");
    if (!stage || !(lathe_answer_needs(&run->parts.stage) & LATHE_NEEDS_REFERENCE))
        return lathe__run_refuse(run, KEY,
                                 "model.reference_adapter has no effect: stage \"%s\" with its "
                                 "settings compares with no reference; take the key out",
                                 stage ? stage->plugin->name : "none");
    if (lathe__adapter_starts_elsewhere(&run->parts.adapter))
        return lathe__run_refuse(run, KEY,
                                 "model.reference_adapter with adapter.init = \"loftq\": the "
                                 "weights under the trained adapter are then not those that the "
                                 "reference was trained over; use another init");
    return LATHE_OK;
}

static int32_t is_weights(const char *name)
{
    const size_t n = strlen(name), end = strlen(".safetensors");
    return n > end && strcmp(name + n - end, ".safetensors") == 0 &&
           strncmp(name, "adapter_", 8) != 0;
}

/* Whether two models are one folder or file, or folders whose files of weights are the same. */
static lathe_status is_same_model(const char *a, const char *b, int *out)
{
    char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
    lathe_buffer files_a = LATHE_BUFFER_INIT, files_b = LATHE_BUFFER_INIT;
    lathe_status status = LATHE_OK;
    *out = real_a && real_b && strcmp(real_a, real_b) == 0;
    if (!*out && lathe_path_is_dir(a) && lathe_path_is_dir(b)) {
        status = lathe_files_list(a, is_weights, &files_a);
        if (status == LATHE_OK)
            status = lathe_files_list(b, is_weights, &files_b);
        if (status == LATHE_OK)
            status = files_a.status == LATHE_OK ? files_b.status : files_a.status;
        *out = status == LATHE_OK && strcmp(files_a.data, "{}") != 0 &&
               strcmp(files_a.data, files_b.data) == 0;
    }
    lathe_buffer_fini(&files_a);
    lathe_buffer_fini(&files_b);
    free(real_a);
    free(real_b);
    return status;
}

/* Refuses an adapter that names another model than the run's. A name that is no folder here, such
 * as one of a hub, says nothing; the shapes are checked when the file is read. */
static lathe_status check_base(lathe_run *run, const char *dir)
{
    lathe_adapter_folder own;
    int same = 0;
    const lathe_status status = lathe_adapter_folder_read(dir, NULL, &run->arena, &own);
    if (status == LATHE_E_CONFIG) {
        lathe_log(LATHE_LOG_INFO, "%s; taken as one of %s", lathe_error_message(),
                  run->set.model_path);
        lathe_error_clear();
        return LATHE_OK;
    }
    LATHE_TRY(status);
    LATHE_TRY(is_same_model(own.base, run->set.model_path, &same));
    if (same)
        return LATHE_OK;
    return lathe__run_refuse(
        run, KEY,
        "model.reference_adapter = \"%s\" is an adapter of the model %s, and "
        "the run's is %s, with other weights: both adapters must belong to one "
        "model",
        dir, own.base, run->set.model_path);
}

static const char *setting(const lathe_setting_list *list, const char *key)
{
    for (int32_t i = 0; i < list->n; i++)
        if (strcmp(list->list[i].key, key) == 0)
            return list->list[i].value;
    return NULL;
}

/* Compares a name with a TOML literal of it, which may be quoted. */
static int is_name(const char *literal, const char *name)
{
    const size_t n = strlen(name);
    return strcmp(literal, name) == 0 || (literal[0] == '"' && strncmp(literal + 1, name, n) == 0 &&
                                          strcmp(literal + 1 + n, "\"") == 0);
}

/* An adapter that was trained over quantized weights belongs to them. */
static lathe_status check_format(const lathe_run *run, const char *dir,
                                 const lathe_setting_list *settings)
{
    const char *trained_over = setting(settings, "quant.name");
    const lathe_component *format = run->parts.quant.component;
    if (!trained_over || is_name(trained_over, format ? format->plugin->name : "none"))
        return LATHE_OK;
    return lathe__run_refuse(run, KEY,
                             "model.reference_adapter = \"%s\" was trained over a base with "
                             "quant.name = %s, and the run's base has \"%s\": train over the same",
                             dir, trained_over, format ? format->plugin->name : "none");
}

/* Reads the settings as those of a run, and makes the instance. */
static lathe_status make_instance(lathe_run *run, const char *dir,
                                  const lathe_setting_list *settings)
{
    lathe_override *list =
        lathe_arena_alloc(&run->arena, (settings->n + 1) * (int64_t)sizeof *list);
    lathe_diags unsaid = {0};
    int32_t n = 0;
    if (!list)
        return LATHE_E_NOMEM;
    list[n++] = (lathe_override){"model.path", run->set.model_path};
    for (int32_t i = 0; i < settings->n; i++)
        if (strncmp(settings->list[i].key, "adapter.", 8) == 0)
            list[n++] = settings->list[i];
    lathe_status status = lathe_config_load(NULL, list, n, 1u << LATHE_KIND_ADAPTER, run->registry,
                                            &unsaid, &run->reference_config);
    lathe_diags_fini(&unsaid);
    const lathe_part *part =
        status == LATHE_OK ? lathe_config_part(run->reference_config, LATHE_KIND_ADAPTER) : NULL;
    const char *init = part ? lathe_config_string(run->reference_config, "adapter", "init") : NULL;
    if (status == LATHE_OK &&
        (!part || !part->component ||
         !LATHE_HAS((const lathe_adapter_v1 *)part->component->plugin->table, wrap)))
        status = lathe_error(LATHE_E_CONFIG, "its method has no parameters of its own");
    if (status == LATHE_OK && init && (strcmp(init, "pissa") == 0 || strcmp(init, "loftq") == 0))
        status = lathe_error(LATHE_E_CONFIG,
                             "its init is \"%s\", which a reference adapter may not have", init);
    if (status == LATHE_OK)
        status = lathe_instance_init(&run->parts.reference_adapter, part->component, part->values);
    if (status != LATHE_E_CONFIG)
        return status;
    const char *why = lathe_arena_strdup(&run->arena, lathe_error_message());
    return lathe__run_refuse(run, KEY, "model.reference_adapter = \"%s\": %s", dir,
                             why ? why : "no memory");
}

lathe_status lathe__reference_adapter_open(lathe_run *run)
{
    lathe_adapter_folder folder;
    const char *const dir = run->set.model_reference_adapter;
    if (!dir || run->open.mode == LATHE_OPEN_INFER)
        return LATHE_OK;
    LATHE_TRY(check_settings(run));
    LATHE_TRY(check_folder(run));
    const lathe_status status =
        lathe_adapter_folder_read(dir, run->set.model_path, &run->arena, &folder);
    if (status == LATHE_E_CONFIG) {
        const char *why = lathe_arena_strdup(&run->arena, lathe_error_message());
        return lathe__run_refuse(run, KEY, "%s", why ? why : "no memory");
    }
    LATHE_TRY(status);
    LATHE_TRY(check_base(run, dir));
    LATHE_TRY(check_format(run, dir, &folder.settings));
    LATHE_TRY(make_instance(run, dir, &folder.settings));
    lathe_log(LATHE_LOG_INFO, "the reference is the model with the adapter in %s", dir);
    return LATHE_OK;
}
