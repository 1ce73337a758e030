/* Checkpoints: write beside, make durable, rename; verify before reading. */
#include "run/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "io/manifest.h"
#include "run/adapter_file.h"
#include "run/train_state.h"
#include "run/weight_fill.h"

#define STEP_FORMAT "step-%08lld"

static int trains_model(const lathe_run *run)
{
    for (int32_t i = 0; i < run->n_model_params; i++)
        if (run->params.rows[i]->trainable)
            return 1;
    return 0;
}

static lathe_status row_values(void *arg, int32_t index, const lathe_param *row,
                               const void **out_data, int32_t *out_dtype)
{
    const lathe_run *run = arg;
    (void)row;
    *out_data = lathe_store_master(&run->store, index);
    *out_dtype = LATHE_F32;
    if (!*out_data) {
        *out_data = lathe_store_shadow(&run->store, index);
        *out_dtype = lathe_params_value_dtype(&run->params, index);
    }
    return LATHE_OK;
}

/* The model as transformers reads it; a frozen base that came from a folder stays there. */
static lathe_status write_model(lathe_run *run, const char *dir)
{
    if (trains_model(run) || !run->set.model_path) {
        LATHE_TRY(lathe_model_config_save(&run->model, dir));
        LATHE_TRY(lathe_weights_save(dir, &run->params, LATHE_F32, 0, row_values, run));
    }
    if (run->params.n > run->n_model_params)
        LATHE_TRY(lathe__adapter_file_write(run, dir));
    if (run->tokenizer_dir)
        return lathe_tokenizer_files_copy(run->tokenizer_dir, dir);
    return LATHE_OK;
}

static lathe_status fill_folder(lathe_run *run, const char *dir)
{
    lathe_buffer meta = LATHE_BUFFER_INIT;
    LATHE_TRY(lathe_dir_create(dir));
    LATHE_TRY(write_model(run, dir));
    if (run->mode == LATHE_OPEN_TRAIN)
        LATHE_TRY(lathe__train_state_write(run, dir));
    lathe_buffer_printf(&meta, "{\"lathe\": \"%s\", \"config\": ", lathe_version());
    lathe_config_json(run->config, &meta);
    lathe_buffer_puts(&meta, "}");
    lathe_status status = meta.status;
    if (status == LATHE_OK)
        status = lathe_manifest_write(dir, meta.data);
    lathe_buffer_fini(&meta);
    return status;
}

lathe_status lathe_save(lathe_run *run, const char *dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    if (!run->placed)
        return lathe_error(LATHE_E_STATE, "the run has no weights to save");
    const char *beside = lathe_arena_printf(&arena, "%s.tmp.%ld", dir, (long)getpid());
    const char *slash = strrchr(dir, '/');
    const char *parent = slash ? lathe_arena_strndup(&arena, dir, slash - dir) : ".";
    lathe_status status = beside && parent ? LATHE_OK : LATHE_E_NOMEM;
    if (status == LATHE_OK && lathe_path_exists(dir))
        status = lathe_error(LATHE_E_IO, "%s: exists already", dir);
    if (status == LATHE_OK)
        status = lathe_dir_remove(beside);
    if (status == LATHE_OK)
        status = fill_folder(run, beside);
    if (status == LATHE_OK && rename(beside, dir) != 0)
        status =
            lathe_error(LATHE_E_IO, "%s: cannot rename to %s: %s", beside, dir, strerror(errno));
    if (status == LATHE_OK)
        status = lathe_dir_sync(parent[0] ? parent : "/");
    if (status != LATHE_OK && beside) {
        /* the message of the failure stays; the half-written folder goes */
        char *message = lathe_arena_strdup(&arena, lathe_error_message());
        if (lathe_dir_remove(beside) != LATHE_OK && message)
            lathe_log(LATHE_LOG_WARN, "%s is left behind", beside);
        if (message)
            (void)lathe_error(status, "%s", message);
    }
    lathe_arena_fini(&arena);
    return status;
}

static int is_step(const char *name, int64_t *out_step)
{
    long long step;
    char tail;
    if (sscanf(name, "step-%lld%c", &step, &tail) != 1 || step < 0)
        return 0;
    *out_step = step;
    return 1;
}

/* Removes the oldest complete checkpoints beyond keep_last. */
static lathe_status remove_old(lathe_run *run)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names = NULL;
    int64_t n = 0, kept = 0, step;
    lathe_status status = lathe_dir_list(run->set.checkpoint_dir, &arena, &names, &n);
    for (int64_t i = n - 1; i >= 0 && status == LATHE_OK; i--) /* sorted: newest last */
        if (is_step(names[i], &step) && ++kept > run->set.keep_last)
            status = lathe_dir_remove(lathe_path_join(&arena, run->set.checkpoint_dir, names[i]));
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_checkpoint_refuse_mixing(lathe_run *run)
{
    const char *latest = run->set.checkpoint_dir
                             ? lathe_path_join(&run->arena, run->set.checkpoint_dir, "latest")
                             : NULL;
    if (!latest || !run->set.resume || strcmp(run->set.resume, "never") != 0 ||
        !lathe_path_exists(latest))
        return LATHE_OK;
    return lathe_error(
        LATHE_E_CONFIG,
        "%s holds the checkpoints of a run already: choose another checkpoint.dir, remove "
        "it, or go on with checkpoint.resume = \"auto\"",
        run->set.checkpoint_dir);
}

/* Saves to `path`; what is there already makes way. */
static lathe_status save_over(lathe_run *run, const char *path)
{
    const char *old = lathe_arena_printf(&run->arena, "%s.old", path);
    const int replaces = lathe_path_exists(path);
    if (!old)
        return LATHE_E_NOMEM;
    if (replaces) {
        LATHE_TRY(lathe_dir_remove(old));
        if (rename(path, old) != 0)
            return lathe_error(LATHE_E_IO, "%s: cannot make way: %s", path, strerror(errno));
    }
    LATHE_TRY(lathe_save(run, path));
    return replaces ? lathe_dir_remove(old) : LATHE_OK;
}

lathe_status lathe_checkpoint_write(lathe_run *run, const char **out_path)
{
    const char *name = lathe_arena_printf(&run->arena, STEP_FORMAT, (long long)run->at.step);
    const char *path = name ? lathe_path_join(&run->arena, run->set.checkpoint_dir, name) : NULL;
    const char *latest = lathe_path_join(&run->arena, run->set.checkpoint_dir, "latest");
    if (!path || !latest)
        return LATHE_E_NOMEM;
    *out_path = path;
    LATHE_TRY(lathe_dir_create(run->set.checkpoint_dir));
    LATHE_TRY(save_over(run, path));
    LATHE_TRY(lathe_file_write_atomic(latest, name, (int64_t)strlen(name)));
    return run->set.keep_last > 0 ? remove_old(run) : LATHE_OK;
}

/* ---- reading ---- */

/* 1: the folder holds the model's weights, not only an adapter's. */
static int holds_model(lathe_arena *arena, const char *dir)
{
    const char *one = lathe_path_join(arena, dir, "model.safetensors");
    const char *many = lathe_path_join(arena, dir, "model.safetensors.index.json");
    return (one && lathe_path_exists(one)) || (many && lathe_path_exists(many));
}

static lathe_status load_model(lathe_run *run, const char *dir)
{
    lathe_safetensors *set = NULL;
    lathe_weight_fill fill = {run, NULL, 0};
    if (trains_model(run) || !run->set.model_path || holds_model(&run->arena, dir)) {
        LATHE_TRY(lathe_safetensors_open(dir, &set));
        const lathe_weight_sink sink = lathe__weight_sink(&fill);
        const lathe_status status = lathe_weights_load(set, &run->model, &run->params, &sink);
        lathe_safetensors_close(set);
        lathe__weight_fill_fini(&fill);
        LATHE_TRY(status);
    }
    return run->params.n > run->n_model_params ? lathe__adapter_file_read(run, dir) : LATHE_OK;
}

lathe_status lathe_load(lathe_run *run, const char *dir)
{
    if (!run->placed)
        return lathe_error(LATHE_E_STATE, "the run has no memory to load into");
    LATHE_TRY(lathe_manifest_verify(dir));
    LATHE_TRY(lathe_zero_grad(run));
    if (run->mode == LATHE_OPEN_TRAIN)
        LATHE_TRY(lathe__train_state_read(run, dir));
    return load_model(run, dir);
}

lathe_status lathe_checkpoint_resolve(lathe_arena *arena, const char *path, const char **out_path)
{
    char *name = NULL;
    int64_t bytes = 0;
    const char *latest = lathe_path_join(arena, path, "latest");
    *out_path = path;
    if (!latest)
        return LATHE_E_NOMEM;
    if (!lathe_path_exists(latest))
        return LATHE_OK;
    LATHE_TRY(lathe_file_read(latest, 4096, &name, &bytes));
    while (bytes > 0 && (name[bytes - 1] == '\n' || name[bytes - 1] == ' '))
        name[--bytes] = '\0';
    int64_t step;
    const int good = is_step(name, &step);
    *out_path = good ? lathe_path_join(arena, path, name) : NULL;
    free(name);
    if (!good)
        return lathe_error(LATHE_E_CORRUPT, "%s does not name a checkpoint", latest);
    return *out_path ? LATHE_OK : LATHE_E_NOMEM;
}

/* The newest checkpoint of the folder that verifies, or NULL. */
static lathe_status newest_whole(lathe_run *run, const char **out_path)
{
    char **names = NULL;
    int64_t n = 0, step;
    *out_path = NULL;
    LATHE_TRY(lathe_dir_list(run->set.checkpoint_dir, &run->arena, &names, &n));
    for (int64_t i = n - 1; i >= 0; i--) {
        if (!is_step(names[i], &step))
            continue;
        const char *path = lathe_path_join(&run->arena, run->set.checkpoint_dir, names[i]);
        if (!path)
            return LATHE_E_NOMEM;
        if (lathe_manifest_verify(path) == LATHE_OK) {
            *out_path = path;
            return LATHE_OK;
        }
        lathe_log(LATHE_LOG_WARN, "%s is not used: %s", path, lathe_error_message());
    }
    return LATHE_OK;
}

lathe_status lathe_checkpoint_find(lathe_run *run, const char **out_path)
{
    const char *resume = run->set.resume, *path = NULL;
    *out_path = NULL;
    if (!resume || strcmp(resume, "never") == 0)
        return LATHE_OK;
    if (strcmp(resume, "auto") != 0)
        return lathe_checkpoint_resolve(&run->arena, resume, out_path);
    if (!lathe_path_is_dir(run->set.checkpoint_dir))
        return LATHE_OK;
    const lathe_status status =
        lathe_checkpoint_resolve(&run->arena, run->set.checkpoint_dir, &path);
    if (status == LATHE_OK && path != run->set.checkpoint_dir &&
        lathe_manifest_verify(path) == LATHE_OK) {
        *out_path = path;
        return LATHE_OK;
    }
    if (status != LATHE_OK || path != run->set.checkpoint_dir)
        lathe_log(LATHE_LOG_WARN, "the latest checkpoint is damaged: %s", lathe_error_message());
    return newest_whole(run, out_path);
}
