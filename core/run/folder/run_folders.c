/* Settles which weights the folders of a run mean, and finds damaged ones. */
#include "run/folder/run_folders.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "checkpoint/state/model_folder.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/manifest.h"
#include "run/resume/resume_check.h"

/* One key; `path` points to where the settings have its value. */
typedef struct folder_key {
    const char *section, *key;
    const char **path;
    int32_t reward; /* index of the reward; -1: none */
} folder_key;

typedef lathe_status (*folder_fn)(lathe_run *run, const folder_key *k);

/* Calls fn for each key that names a model which is here. */
static lathe_status for_each(lathe_run *run, folder_fn fn)
{
    const folder_key keys[] = {
        {"model", "path", &run->set.model_path, -1},
        {"model", "adapter", &run->set.model_adapter, -1},
        {"model", "reference_adapter", &run->set.model_reference_adapter, -1},
        {"teacher", "path", &run->set.teacher_path, -1},
        {"generate", "draft", &run->set.draft_path, -1},
    };
    int32_t n = 0;
    const lathe_config_reward *rewards = lathe_config_rewards(run->config, &n);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (*keys[i].path && lathe_path_is_model(*keys[i].path))
            LATHE_TRY(fn(run, &keys[i]));
    for (int32_t i = 0; i < n; i++) {
        const char *path = rewards[i].model;
        const folder_key k = {"reward", "model", &path, i};
        if (path && lathe_path_is_model(path))
            LATHE_TRY(fn(run, &k));
    }
    return LATHE_OK;
}

/* Whether model.weights is about the key: it is of the model with which the run begins. */
static int is_own(const folder_key *k)
{
    return strcmp(k->section, "model") == 0 && strcmp(k->key, "reference_adapter") != 0;
}

static lathe_status refuse(const lathe_run *run, const folder_key *k, lathe_status status)
{
    char why[1500];
    if (status == LATHE_E_NOMEM)
        return status;
    (void)snprintf(why, sizeof why, "%s", lathe_error_message());
    return lathe__run_refuse(run, k->section, k->key, "%s.%s: %s", k->section, k->key, why);
}

static lathe_status settle(lathe_run *run, const folder_key *k)
{
    lathe_model_folder folder;
    const int is_base = k->path == &run->set.model_path;
    int32_t which = is_own(k) ? run->set.model_weights : LATHE_WEIGHTS_AUTO;
    if (is_base && run->decided.base_is_exact)
        return LATHE_OK;
    if (which == LATHE_WEIGHTS_AVERAGE && is_base && run->set.model_adapter)
        which = LATHE_WEIGHTS_AUTO; /* the adapter is what has an average */
    const lathe_status status = lathe_model_folder_find(*k->path, which, &run->arena, &folder);
    if (status != LATHE_OK)
        return refuse(run, k, status);
    if (strcmp(folder.weights, *k->path) == 0)
        return LATHE_OK;
    if (k->reward >= 0)
        return lathe_config_move_reward(run->config, k->reward, folder.weights);
    *k->path = folder.weights;
    return lathe_config_move_path(run->config, k->section, k->key, folder.weights);
}

lathe_status lathe__run_folders_settle(lathe_run *run)
{
    return for_each(run, settle);
}

static lathe_status check(lathe_run *run, const folder_key *k)
{
    lathe_model_folder folder;
    LATHE_TRY(lathe_model_folder_find(*k->path, LATHE_WEIGHTS_TRAINING, &run->arena, &folder));
    const lathe_status status = lathe_model_folder_check(&folder);
    if (status != LATHE_OK)
        return refuse(run, k, status);
    if (folder.is_no_model)
        lathe__run_warn(run, "model", "weights",
                        "%s.%s: %s was trained by an optimizer whose average is the model; its "
                        "training weights are only the points at which it takes gradients",
                        k->section, k->key, folder.dir);
    if (folder.manifest && strcmp(folder.manifest, folder.weights) != 0 &&
        lathe__run_is_of_file(run))
        lathe_log(LATHE_LOG_INFO,
                  "%s.%s: averaged weights, of %s (model.weights = \"training\": the others)",
                  k->section, k->key, folder.weights);
    return LATHE_OK;
}

/* Whether the run goes on from a checkpoint. Then its manifest has the hashes of all these folders,
 * of which those that the run still needs are compared with it (lathe__checkpoint_check_base). */
static lathe_status resumes(lathe_run *run, int32_t *out)
{
    const char *dir = NULL;
    *out = 0;
    if (!lathe__run_is_of_file(run))
        return LATHE_OK;
    const lathe_status status = lathe_resume_find(run, &dir);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK)
        lathe_error_clear(); /* resuming says it */
    *out = dir && lathe_model_has(dir, LATHE_MANIFEST_NAME);
    return LATHE_OK;
}

lathe_status lathe__run_folders_check(lathe_run *run)
{
    int32_t goes_on = 0;
    if (lathe__run_is_offline(run) || lathe__run_is_unmade(run))
        return LATHE_OK;
    LATHE_TRY(resumes(run, &goes_on));
    return goes_on ? LATHE_OK : for_each(run, check);
}
