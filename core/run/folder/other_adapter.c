/* Checks and makes an adapter beside the run's own. */
#include "run/folder/other_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/state/model_folder.h"
#include "files/safetensors/file_hashes.h"
#include "lathe/adapter.h"
#include "run/folder/adapter_folder.h"

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

lathe_status lathe__other_adapter_check_base(lathe_run *run, const char *what, const char *dir)
{
    lathe_adapter_folder own;
    int same = 0;
    lathe_base_difference d;
    LATHE_TRY(lathe_adapter_folder_refuse_merged(dir, run->set.model_path));
    LATHE_TRY(lathe_adapter_base_compare(dir, run->set.model_path, &run->arena, &d));
    if (d.detail)
        return lathe_error(
            LATHE_E_CONFIG,
            "%s is an adapter of the model %s, which has other weights than %s: name "
            "the adapter's own model, or an adapter of this one (%s)",
            what, d.was, run->set.model_path, d.detail);
    if (d.is_known)
        return LATHE_OK;
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
    return lathe_error(LATHE_E_CONFIG,
                       "%s is an adapter of the model %s, which has other weights than %s: name "
                       "the adapter's own model, or an adapter of this one",
                       what, own.base, run->set.model_path);
}

lathe_status lathe__adapter_base_difference(const char *dir, const char *base, lathe_arena *arena,
                                            const char **out)
{
    lathe_adapter_folder own;
    int same = 0;
    lathe_base_difference d;
    *out = NULL;
    LATHE_TRY(lathe_adapter_base_compare(dir, base, arena, &d));
    if (d.detail) {
        *out =
            lathe_arena_printf(arena,
                               "the adapter in %s was trained over the model %s, and %s has other "
                               "weights (%s)",
                               dir, d.was, base, d.detail);
        return *out ? LATHE_OK : LATHE_E_NOMEM;
    }
    if (d.is_known)
        return LATHE_OK;
    const lathe_status status = lathe_adapter_folder_read(dir, NULL, arena, &own);
    if (status == LATHE_E_CONFIG)
        lathe_error_clear(); /* its model is not here */
    if (status != LATHE_OK || strcmp(own.base, dir) == 0)
        return status == LATHE_E_CONFIG ? LATHE_OK : status;
    LATHE_TRY(is_same_model(own.base, base, &same));
    if (same)
        return LATHE_OK;
    *out = lathe_arena_printf(arena,
                              "the adapter in %s was trained over the model %s, and %s has other "
                              "weights",
                              dir, own.base, base);
    return *out ? LATHE_OK : LATHE_E_NOMEM;
}

lathe_status lathe__other_adapter_check_format(const lathe_run *run, const char *what,
                                               const lathe_setting_list *settings)
{
    const lathe_toml_node *trained_over = lathe_settings_value(settings, "quant.name");
    const lathe_component *format = run->parts.quant.component;
    if (trained_over == NULL ||
        strcmp(trained_over->s, format ? format->plugin->name : "none") == 0)
        return LATHE_OK;
    return lathe_error(
        LATHE_E_CONFIG,
        "%s was trained over a base with quant.name = \"%s\", and the run's base has "
        "\"%s\": train over the same",
        what, trained_over->s, format ? format->plugin->name : "none");
}

/* Refuses what cannot stand beside another adapter. */
static lathe_status check_part(const lathe_config *config, const lathe_part *part)
{
    const char *init = lathe_config_string(config, "adapter", "init");
    if (part->component == NULL ||
        !LATHE_HAS((const lathe_adapter_v1 *)part->component->plugin->table, wrap))
        return lathe_error(LATHE_E_CONFIG, "its method has no parameters of its own");
    if (init && (strcmp(init, "pissa") == 0 || strcmp(init, "loftq") == 0))
        return lathe_error(LATHE_E_CONFIG,
                           "its init is \"%s\", which changes the base under it: two adapters over "
                           "one base may not have it",
                           init);
    return LATHE_OK;
}

lathe_status lathe__other_adapter_make(lathe_run *run, const char *what,
                                       const lathe_setting_list *settings,
                                       lathe_config **out_config, lathe_instance *out)
{
    lathe_edits edits = {.n = 0};
    lathe_diags unsaid = {0};
    lathe_edits_text(&edits, LATHE_BY_FOLDER, "model.path", run->set.model_path);
    for (int32_t i = 0; i < settings->n; i++)
        if (strncmp(settings->edits[i].key, "adapter.", 8) == 0 ||
            strcmp(settings->edits[i].key, "tokenizer.add_tokens") == 0)
            lathe_edits_add(&edits, &settings->edits[i]);
    lathe_status status =
        lathe_config_of_edits(&edits, 1u << LATHE_KIND_ADAPTER, run->registry, &unsaid, out_config);
    lathe_edits_fini(&edits);
    lathe_diags_fini(&unsaid);
    const lathe_part *part =
        status == LATHE_OK ? lathe_config_part(*out_config, LATHE_KIND_ADAPTER) : NULL;
    if (status == LATHE_OK)
        status =
            part ? check_part(*out_config, part) : lathe_error(LATHE_E_CONFIG, "it has no method");
    if (status == LATHE_OK)
        status = lathe_instance_init(out, part->component, part->values);
    return status == LATHE_E_CONFIG ? lathe_error_context(status, "%s", what) : status;
}
