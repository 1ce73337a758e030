/* lathe merge: writes a model with an adapter merged into its weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/commands.h"
#include "app/model_dir.h"
#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/checkpoint_folder.h"
#include "opening/adapter_folder.h"
#include "primitives/merged_model.h"
#include "run/run_saved.h"

static const lathe_option options[] = {
    {"-o, --output", "DIR", "the new folder for the merged model"},
    LATHE_WEIGHTS_OPTION,
};

/* Finds the folders of the model and of the adapter; each may be the folder of a run. */
static lathe_status find_folders(const lathe_args *args, lathe_arena *arena, const char **out_model,
                                 const char **out_adapter)
{
    const char *output = lathe_args_value(args, "--output");
    if (!output)
        return lathe_error(LATHE_E_ARG, "--output DIR is missing: the folder for the merged model");
    if (lathe_path_exists(output))
        return lathe_error(LATHE_E_CONFIG, "%s exists already: give another folder, or remove it",
                           output);
    if (lathe_args_override(args, "model.path"))
        return lathe_error(LATHE_E_ARG,
                           "--model.path and the folder %s are given; expected only one of them",
                           args->words[0]);
    for (int i = 0; i < 2; i++)
        if (!lathe_path_is_dir(args->words[i]))
            return lathe_error(LATHE_E_CONFIG, "%s: no such folder; expected the folder of %s",
                               args->words[i], i ? "an adapter" : "a model");
    LATHE_TRY(lathe_checkpoint_resolve(arena, args->words[0], out_model));
    LATHE_TRY(lathe_checkpoint_resolve(arena, args->words[1], out_adapter));
    if (!lathe_folder_has(*out_model, "config.json"))
        return lathe_error(
            LATHE_E_CONFIG, "%s: has no config.json, so it is not a model folder%s", *out_model,
            lathe_adapter_folder_is(*out_model) ? ": the model comes first, then the adapter" : "");
    if (!lathe_adapter_folder_is(*out_adapter))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: has no adapter_model.safetensors, so it is not an adapter folder",
                           *out_adapter);
    return LATHE_OK;
}

/* Opens the adapter with the model as its base. */
static lathe_status open_both(const lathe_args *args, const char *model, const char *adapter,
                              lathe_run **out)
{
    lathe_args of_adapter = *args;
    of_adapter.words = &adapter;
    of_adapter.n_words = 1;
    of_adapter.overrides = calloc((size_t)args->n_overrides + 1, sizeof *of_adapter.overrides);
    if (!of_adapter.overrides)
        return lathe_error(LATHE_E_NOMEM, "no memory for the settings");
    for (int32_t i = 0; i < args->n_overrides; i++)
        of_adapter.overrides[i] = args->overrides[i];
    of_adapter.overrides[of_adapter.n_overrides++] = (lathe_override){"model.path", model};
    const lathe_status status = lathe_app_open_model(&of_adapter, LATHE_OPEN_INFER, NULL, out);
    free(of_adapter.overrides);
    if (status == LATHE_E_SHAPE || status == LATHE_E_NOT_FOUND)
        return lathe_error_context(LATHE_E_CONFIG, "the adapter does not fit the model %s", model);
    return status;
}

static int run_command(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_run *run = NULL;
    const char *model = NULL, *adapter = NULL, *output = lathe_args_value(args, "--output");
    int32_t n = 0;
    lathe_status status = find_folders(args, &arena, &model, &adapter);
    if (status == LATHE_OK)
        status = open_both(args, model, adapter, &run);
    if (status == LATHE_OK)
        status = lathe__merged_model_write(lathe__run_saved(run), adapter, output, &n);
    if (status == LATHE_OK)
        (void)printf("merged %s into %d weights of %s: %s\n", adapter, n, model, output);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_run_close(run);
    lathe_arena_fini(&arena);
    return code;
}

const lathe_command lathe_cmd_merge = {
    .name = "merge",
    .arguments = "DIR ADAPTER -o OUT",
    .summary = "merge an adapter into the weights of its model",
    .details = "DIR is the model: a Hugging Face folder, a checkpoint, or the folder of a run.\n"
               "ADAPTER is a checkpoint of a run with an adapter, the folder of such a run, or a\n"
               "folder that PEFT wrote. OUT is a new Hugging Face folder: every tensor keeps its\n"
               "dtype, those that the adapter does not change keep their bytes, and the\n"
               "tokenizer's files are the adapter's, or else the model's. An adapter that was\n"
               "trained over a quantized base is merged into the weights of DIR as they are.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 2,
    .max_words = 2,
    .computes = 1,
    .takes_overrides = 1,
    .run = run_command,
};
