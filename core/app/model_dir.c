/* Opening a run around a model folder. */
#include "app/model_dir.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "run/checkpoint.h"

#define MAX_SETTINGS 24

enum { WEIGHTS_ANY, WEIGHTS_TRAINING, WEIGHTS_AVERAGE }; /* --weights */

static int is_set(const lathe_args *args, const char *key)
{
    for (int32_t i = 0; i < args->n_overrides; i++)
        if (strcmp(args->overrides[i].key, key) == 0)
            return 1;
    return 0;
}

static lathe_status wanted_weights(const lathe_args *args, int32_t *out)
{
    const char *text = lathe_args_value(args, "--weights");
    *out = !text ? WEIGHTS_ANY : strcmp(text, "training") == 0 ? WEIGHTS_TRAINING : WEIGHTS_AVERAGE;
    if (text && *out == WEIGHTS_AVERAGE && strcmp(text, "average") != 0)
        return lathe_error(LATHE_E_ARG, "--weights: expected training or average, seen \"%s\"",
                           text);
    return LATHE_OK;
}

static lathe_status no_average(const char *path)
{
    return lathe_error(LATHE_E_CONFIG, "--weights average: %s holds no averaged weights", path);
}

static void say_average(const char *path)
{
    lathe_log(LATHE_LOG_INFO, "averaged weights, of %s/average (--weights training: the others)",
              path);
}

/* Rows as long as the model can take, but no longer than is usual. */
static lathe_status context_length(const char *path, int64_t *out)
{
    lathe_model_config config = {0};
    LATHE_TRY(lathe_model_config_load(path, &config));
    *out = config.max_positions < 1024 ? config.max_positions : 1024;
    lathe_model_config_fini(&config);
    return LATHE_OK;
}

/* The overrides of the command: its own settings, then the user's. NULL: out of memory. */
static lathe_override *overrides(const lathe_args *args, const char *const *settings,
                                 lathe_arena *arena, int32_t *out_n)
{
    lathe_override *list =
        lathe_arena_alloc(arena, (MAX_SETTINGS + args->n_overrides) * (int64_t)sizeof *list);
    int32_t n = 0;
    for (int32_t i = 0; list && settings && settings[i] && n < MAX_SETTINGS - 2; i += 2)
        if (settings[i + 1] && !is_set(args, settings[i]))
            list[n++] = (lathe_override){settings[i], settings[i + 1]};
    for (int32_t i = 0; list && i < args->n_overrides; i++)
        list[n++] = args->overrides[i];
    *out_n = n;
    return list;
}

/* A folder is opened when it is a whole model: not an adapter, whose base is known to its run only. */
static lathe_status check_folder(const char *path, lathe_arena *arena)
{
    const char *config = lathe_path_join(arena, path, "config.json");
    const char *adapter = lathe_path_join(arena, path, "adapter_config.json");
    if (!config || !adapter)
        return LATHE_E_NOMEM;
    if (lathe_path_exists(adapter))
        return lathe_error(LATHE_E_CONFIG,
                           "%s holds an adapter: name the run file that trained it in its place",
                           path);
    if (!lathe_path_exists(config))
        return lathe_error(LATHE_E_CONFIG, "%s: no config.json there, so no model folder", path);
    return LATHE_OK;
}

static lathe_status open_folder(const lathe_args *args, int32_t mode, const char *const *settings,
                                lathe_arena *arena, lathe_run **out)
{
    const char *path = NULL;
    int64_t length = 0;
    int32_t n = 0, weights;
    if (is_set(args, "model.path"))
        return lathe_error(LATHE_E_ARG, "--model.path beside the folder %s: one of them",
                           args->words[0]);
    LATHE_TRY(wanted_weights(args, &weights));
    LATHE_TRY(lathe_checkpoint_resolve(arena, args->words[0], &path));
    LATHE_TRY(check_folder(path, arena));
    const char *average = lathe_path_join(arena, path, "average");
    if (!average)
        return LATHE_E_NOMEM;
    if (weights == WEIGHTS_AVERAGE && !lathe_path_is_dir(average))
        return no_average(path);
    if (weights != WEIGHTS_TRAINING && lathe_path_is_dir(average)) {
        say_average(path);
        path = average;
    }
    LATHE_TRY(context_length(path, &length));
    lathe_override *list = overrides(args, settings, arena, &n);
    const char *rows = lathe_arena_printf(arena, "%lld", (long long)length);
    if (!list || !rows)
        return LATHE_E_NOMEM;
    list[n++] = (lathe_override){"model.path", path};
    if (!is_set(args, "data.seq_len"))
        list[n++] = (lathe_override){"data.seq_len", rows};
    LATHE_TRY(lathe_run_open_mode(NULL, list, n, mode, out));
    if ((*out)->params.has_reference)
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: stage \"%s\" compares the model with the one before training, which a "
            "folder does not name: name the run file instead of the folder",
            args->words[0], (*out)->parts.stage.component->plugin->name);
    return LATHE_OK;
}

/* --model.path beside a run file is the base of its adapter; a whole model has none. */
static lathe_status check_base(const lathe_args *args, const char *checkpoint, lathe_arena *arena)
{
    const char *adapter = lathe_path_join(arena, checkpoint, "adapter_config.json");
    if (!adapter)
        return LATHE_E_NOMEM;
    if (lathe_path_exists(adapter))
        return LATHE_OK;
    return lathe_error(LATHE_E_ARG,
                       "--model.path: %s stands for its checkpoint, %s, which holds the whole "
                       "model; to take another, name its folder in the run file's place",
                       args->words[0], checkpoint);
}

static lathe_status open_run_file(const lathe_args *args, int32_t mode, const char *const *settings,
                                  lathe_arena *arena, lathe_run **out)
{
    const char *checkpoint = NULL;
    int32_t n = 0, weights, averaged = 0;
    lathe_run *run = NULL;
    const lathe_override *list = overrides(args, settings, arena, &n);
    if (!list)
        return LATHE_E_NOMEM;
    LATHE_TRY(wanted_weights(args, &weights));
    LATHE_TRY(lathe_run_open_mode(args->words[0], list, n, mode, &run));
    *out = run;
    run->set.resume = strcmp(run->set.resume, "never") == 0 ? "auto" : run->set.resume;
    lathe_status status = lathe_checkpoint_resume(run, &checkpoint);
    if (status == LATHE_OK && !checkpoint)
        status = lathe_error(LATHE_E_CONFIG, "%s: its checkpoint.dir, %s, holds no checkpoint yet",
                             args->words[0], run->set.checkpoint_dir);
    if (status == LATHE_OK && is_set(args, "model.path"))
        status = check_base(args, checkpoint, arena);
    if (status == LATHE_OK && weights != WEIGHTS_TRAINING)
        status = lathe_checkpoint_take_average(run, checkpoint, &averaged);
    if (status == LATHE_OK && weights == WEIGHTS_AVERAGE && !averaged)
        return no_average(checkpoint);
    if (status == LATHE_OK && averaged)
        say_average(checkpoint);
    return status;
}

/* Whether the name is that of a file of weights, which would be read as TOML. */
static int is_weights(const char *path)
{
    static const char *const ends[] = {".safetensors", ".gguf", ".bin", ".pt", ".pth", ".onnx"};
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t n_end = strlen(ends[i]);
        if (n > n_end && strcmp(path + n - n_end, ends[i]) == 0)
            return 1;
    }
    return 0;
}

/* What stands for a model on the command line: a folder or a run file. */
static lathe_status check_word(const char *word)
{
    static const char expected[] = "expected the folder of a model (with config.json and "
                                   "*.safetensors), a checkpoint, the folder of a run, or a run "
                                   "file (TOML)";
    if (!lathe_path_exists(word))
        return lathe_error(LATHE_E_CONFIG, "%s: no such folder or run file; %s", word, expected);
    if (is_weights(word))
        return lathe_error(LATHE_E_CONFIG, "%s: a file of weights; %s: name the folder it is in",
                           word, expected);
    return LATHE_OK;
}

lathe_status lathe_app_open_model(const lathe_args *args, int32_t mode, const char *const *settings,
                                  lathe_run **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *word = args->words[0];
    lathe_status status = LATHE_OK;
    if (lathe_path_is_dir(word))
        status = open_folder(args, mode, settings, &arena, out);
    else if ((status = check_word(word)) == LATHE_OK)
        status = open_run_file(args, mode, settings, &arena, out);
    lathe_arena_fini(&arena);
    return status;
}
