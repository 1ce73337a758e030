/* Compares the model of a checkpoint with the model of the run. */
#include "run/resume/resume_model.h"
#include "run/parts/run_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "checkpoint/state/adapter_file.h"
#include "config/config_changes.h"
#include "files/safetensors/expert_tensors.h"
#include "files/safetensors/safetensors.h"
#include "model/family/weights.h"
#include "run/state/run_saved.h"

/* Removes the keys that affect neither what the model computes nor its parameters. */
static void drop_others(json_t *config)
{
    static const char *const others[] = {
        "architectures", "torch_dtype",  "use_cache",         "bos_token_id",
        "eos_token_id",  "pad_token_id", "initializer_range", "max_position_embeddings"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        (void)json_object_del(config, others[i]);
}

/* {"model": {...}}: the config.json that this Lathe would write, so that it does not matter who
 * wrote the file. */
static lathe_status describe(const lathe_model_config *model, json_t **out)
{
    lathe_model_config plain = *model;
    char *text = NULL;
    json_t *object = NULL;
    plain.json = NULL; /* the original text of the file is not needed */
    LATHE_TRY(lathe_model_config_text(&plain, &text));
    const lathe_status status =
        lathe_json_load("the model's configuration", text, (int64_t)strlen(text), &object);
    free(text);
    LATHE_TRY(status);
    drop_others(object);
    *out = json_pack("{s:o}", "model", object);
    return *out ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for a model's description");
}

static lathe_status compare(const lathe_run *run, const char *dir, json_t **out)
{
    const lathe_model_source source = lathe__run_model_source(run);
    lathe_model_config saved = {0};
    json_t *before = NULL, *now = NULL;
    lathe_status status = lathe_model_config_load(&source, dir, &saved);
    if (status != LATHE_OK)
        goto out;
    if ((status = describe(&saved, &before)) != LATHE_OK)
        goto out;
    if ((status = describe(&run->model, &now)) != LATHE_OK)
        goto out;
    *out = lathe_config_changes(before, now);
    status = *out ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory to compare two models");
out:
    json_decref(before);
    json_decref(now);
    lathe_model_config_fini(&saved);
    return status;
}

lathe_status lathe__resume_model_changes(const lathe_run *run, const char *dir, json_t **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, dir, "config.json");
    lathe_status status = LATHE_E_NOMEM;
    *out = NULL;
    if (path && lathe_path_exists(path)) {
        status = compare(run, dir, out);
    } else if (path) {
        *out = json_object();
        status = *out ? LATHE_OK : LATHE_E_NOMEM;
    }
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__resume_model_check(const lathe_model_config *model, const lathe_params *params,
                                       const char *dir)
{
    lathe_safetensors *set = NULL;
    const lathe_status status = lathe_safetensors_open_joined(dir, &set);
    if (status == LATHE_E_NOT_FOUND)
        return LATHE_OK; /* only an adapter */
    LATHE_TRY(status);
    const lathe_status checked = lathe_weights_check(set, model, params);
    lathe_safetensors_close(set);
    return checked;
}

lathe_status lathe__resume_adapter_check(lathe_run *run, const char *dir)
{
    return lathe__adapter_file_check(lathe__run_saved(run), dir);
}
