/* The checkpoint to resume from, against the run. */
#include "run/resume_check.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/checkpoint_folder.h"
#include "io/safetensors.h"
#include "model/weights.h"
#include "plug/kind.h"
#include "run/checkpoint.h"
#include "run/train_state.h"

/* The folder of the checkpoint; NULL: none is resumed from. One that is named must be there. */
static lathe_status find_checkpoint(lathe_run *run, const char **out)
{
    const char *resume = run->set.resume;
    const int is_auto = resume && strcmp(resume, "auto") == 0;
    *out = NULL;
    if (!resume || strcmp(resume, "never") == 0)
        return LATHE_OK;
    if (is_auto)
        resume = run->set.checkpoint_dir;
    if (!resume || !lathe_path_is_dir(resume) ||
        lathe_checkpoint_resolve(&run->arena, resume, out) == LATHE_OK)
        return LATHE_OK;
    *out = NULL;
    if (!is_auto)
        return lathe__run_refuse(run, "checkpoint", "resume", "%s", lathe_error_message());
    lathe_error_clear();
    return LATHE_OK;
}

/* A whole model in it; an adapter's file is compared when it is read. */
static lathe_status check_model(const lathe_run *run, const char *dir)
{
    lathe_safetensors *set = NULL;
    const lathe_status status = lathe_safetensors_open(dir, &set);
    if (status == LATHE_E_NOT_FOUND)
        return LATHE_OK;
    LATHE_TRY(status);
    const lathe_status checked = lathe_weights_check(set, &run->model, &run->params);
    lathe_safetensors_close(set);
    return checked;
}

/* Resuming from the newest goes on to the one before it when the newest is damaged. */
static int is_damage(lathe_status status)
{
    return status == LATHE_E_CORRUPT || status == LATHE_E_PARSE || status == LATHE_E_IO;
}

/* The section whose plugin differs, by "was written with optimizer adamw", or whose state does; else the data's. */
static lathe_status refuse(const lathe_run *run, const char *dir)
{
    const char *text = lathe_error_message(), *section = "data", *key = "datasets";
    char words[64];
    if (strstr(text, "/state/optimizer.safetensors")) {
        section = "optimizer";
        key = "name";
    }
    for (int32_t kind = 1; kind < LATHE_N_KINDS; kind++) {
        (void)snprintf(words, sizeof words, "with %s ", lathe_kind_name(kind));
        if (strstr(text, words)) {
            section = lathe_kind_name(kind);
            key = "name";
        }
    }
    return lathe__run_refuse(run, section, key,
                             "%s; the run would resume from %s: choose another checkpoint.dir to "
                             "begin anew",
                             text, dir);
}

lathe_status lathe__resume_check(lathe_run *run)
{
    const char *dir = NULL;
    LATHE_TRY(find_checkpoint(run, &dir));
    if (!dir)
        return LATHE_OK;
    lathe_status status = check_model(run, dir);
    if (status == LATHE_E_SHAPE || status == LATHE_E_NOT_FOUND || status == LATHE_E_CONFIG)
        return lathe__run_refuse(run, "model", run->set.model_path ? "path" : "model_type",
                                 "%s; the run would resume from %s: choose another checkpoint.dir "
                                 "to begin anew",
                                 lathe_error_message(), dir);
    if (status == LATHE_OK)
        status = lathe__train_state_check(run, dir);
    if (status == LATHE_E_CONFIG || status == LATHE_E_STATE || status == LATHE_E_SHAPE)
        return refuse(run, dir);
    if (is_damage(status) || status == LATHE_E_NOT_FOUND) {
        lathe_error_clear();
        return LATHE_OK;
    }
    return status;
}
