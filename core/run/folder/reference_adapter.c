/* Opens the adapter of the reference model. */
#include "run/folder/reference_adapter.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "plug/answers.h"
#include "run/decide/adapter_check.h"
#include "run/folder/adapter_folder.h"
#include "run/folder/other_adapter.h"

#define KEY "model", "reference_adapter"

/* Places a message about the folder at the key. */
static lathe_status at_key(lathe_run *run, lathe_status status)
{
    if (status != LATHE_E_CONFIG && status != LATHE_E_CORRUPT)
        return status;
    const char *why = lathe_arena_strdup(&run->arena, lathe_error_message());
    return lathe__run_refuse(run, KEY, "%s", why ? why : "no memory");
}

/* Refuses what is no adapter's folder. */
static lathe_status check_folder(lathe_run *run)
{
    const char *found;
    const char *named = run->set.model_reference_adapter;
    char hint[LATHE_HUB_HINT];
    if (!lathe_path_is_dir(named))
        return lathe__run_refuse(
            run, KEY,
            lathe_path_exists(named) ? "model.reference_adapter: a file, expected a folder: %s%s"
                                     : "model.reference_adapter: no such folder: %s%s",
            named,
            lathe_hub_hint_of(lathe_config_written(run->config, named), named, hint, sizeof hint));
    LATHE_TRY(at_key(run, lathe_adapter_folder_find(named, &run->arena, &found)));
    if (found)
        return LATHE_OK;
    return lathe__run_refuse(run, KEY,
                             "model.reference_adapter = \"%s\": the folder has no "
                             "adapter_model.safetensors, so it is not an adapter's%s",
                             named, lathe_adapters_hint(named, hint));
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

lathe_status lathe__reference_adapter_open(lathe_run *run)
{
    lathe_adapter_folder folder;
    const char *const dir = run->set.model_reference_adapter;
    if (!dir || lathe__run_infers(run))
        return LATHE_OK;
    LATHE_TRY(check_settings(run));
    LATHE_TRY(check_folder(run));
    const char *what = lathe_arena_printf(&run->arena, "model.reference_adapter = \"%s\"", dir);
    if (!what)
        return LATHE_E_NOMEM;
    LATHE_TRY(
        at_key(run, lathe_adapter_folder_read(dir, run->set.model_path, &run->arena, &folder)));
    LATHE_TRY(at_key(run, lathe__other_adapter_check_base(run, what, dir)));
    LATHE_TRY(at_key(run, lathe__other_adapter_check_format(run, what, &folder.settings)));
    LATHE_TRY(
        at_key(run, lathe__other_adapter_make(run, what, &folder.settings, &run->reference_config,
                                              &run->parts.reference_adapter)));
    lathe_log(LATHE_LOG_INFO, "the reference is the model with the adapter in %s", dir);
    return LATHE_OK;
}
