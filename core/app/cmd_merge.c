/* lathe merge: writes a model with an adapter merged into its weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/commands.h"
#include "app/model_dir.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"
#include "base/new_folder.h"
#include "base/print.h"
#include "base/stale.h"
#include "cli/held_signals.h"
#include "gguf/model_files.h"
#include "opening/adapter_folder.h"
#include "opening/opening.h"
#include "primitives/merged_model.h"
#include "primitives/quantized_model.h"
#include "run/run_saved.h"

static const lathe_option options[] = {
    {"-o, --output", "DIR", "the new folder for the merged model"},
    {"--adapter-weights", "X,Y,...", "a factor for what each adapter changes; without it 1"},
    {"--combination", "cat|linear",
     "cat: add what each adapter changes; linear: add the matrices of LoRA, as PEFT"},
    LATHE_WEIGHTS_OPTION,
};

/* The factors of --adapter-weights, one for each adapter. */
static lathe_status read_factors(const lathe_args *args, int32_t n, double *out)
{
    const char *at = lathe_args_value(args, "--adapter-weights"), *const text = at;
    int32_t seen = 0;
    for (int32_t i = 0; i < n; i++)
        out[i] = 1.0;
    while (at) {
        char *end;
        const double value = strtod(at, &end);
        if (end == at || (*end != ',' && *end != '\0') || !isfinite(value) || value == 0.0)
            return lathe_error(LATHE_E_ARG,
                               "--adapter-weights: expected numbers other than 0, such as 0.5,0.5, "
                               "seen \"%s\"",
                               text);
        if (seen < n)
            out[seen] = value;
        seen++;
        at = *end == ',' ? end + 1 : NULL;
    }
    if (text && seen != n)
        return lathe_error(LATHE_E_ARG,
                           "--adapter-weights has %d number%s, and there are %d adapters", seen,
                           seen == 1 ? "" : "s", n);
    return LATHE_OK;
}

static lathe_status read_combination(const lathe_args *args, int32_t *out)
{
    const char *name = lathe_args_value(args, "--combination");
    *out = name && strcmp(name, "linear") == 0 ? LATHE_COMBINE_LINEAR : LATHE_COMBINE_CAT;
    if (name && *out == LATHE_COMBINE_CAT && strcmp(name, "cat") != 0)
        return lathe_error(LATHE_E_ARG, "--combination: expected cat or linear, seen \"%s\"", name);
    return LATHE_OK;
}

static lathe_status check_adapter(const char *dir, int32_t n_adapters)
{
    int32_t is_classifier = 0;
    char hint[LATHE_HUB_HINT];
    if (!lathe_folder_has_adapter(dir))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: has no adapter_model.safetensors, so it is not an adapter folder%s",
                           dir, lathe_adapters_hint(dir, hint));
    LATHE_TRY(lathe_adapter_folder_is_classifier(dir, &is_classifier));
    if (is_classifier && n_adapters > 1)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the adapter of a sequence classifier, such as a reward model "
                           "(task_type SEQ_CLS), has a score of its own, which is not added to "
                           "others: merge it alone",
                           dir);
    return LATHE_OK;
}

/* The name, up to ".tmp.PID", of the plain folder from which --quant.name makes the output. */
static const char *plain_start(const char *output, lathe_arena *arena)
{
    size_t n = strlen(output);
    while (n > 1 && output[n - 1] == '/')
        n--;
    return lathe_arena_printf(arena, "%.*s.merged", (int)n, output);
}

/* The folders of the command line. */
typedef struct merge_folders {
    const char *model;                       /* of the weights */
    const char *adapters[LATHE_MOST_MERGED]; /* [n] */
    int32_t n;
    int32_t is_named; /* 1: the only adapter names the model, or --model.path does */
} merge_folders;

/* Finds the model, which may be the folder of a run. */
static lathe_status find_model(const char *word, int32_t which, lathe_arena *arena,
                               lathe_model_folder *out)
{
    char hint[LATHE_HUB_HINT];
    if (!lathe_path_is_model(word))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: no such folder; expected the folder of a model, or a GGUF file%s",
                           word, lathe_hub_hint(word, hint, sizeof hint));
    /* the average of an adapter need not be one of its model, too */
    LATHE_TRY(lathe_cli_find_model(
        word, which == LATHE_WEIGHTS_TRAINING ? which : LATHE_WEIGHTS_AUTO, arena, out));
    if (out->has_model)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "%s: has no config.json, so it is not a model folder%s",
                       out->dir,
                       out->has_adapter ? ": the model comes first, then the adapter" : "");
}

/* An adapter beside the model is part of it: merging another one into the weights alone would lose
 * what it learnt. */
static lathe_status take_model(const lathe_model_folder *model, merge_folders *out)
{
    const int is_own = out->n == 1 && strcmp(out->adapters[0], model->dir) == 0;
    if (model->has_adapter && !is_own)
        return lathe_model_folder_refuse_adapter(model);
    out->model = model->has_adapter ? model->dir : model->weights;
    return LATHE_OK;
}

static lathe_status find_adapter(const char *word, int32_t n, lathe_arena *arena, const char **out)
{
    lathe_model_folder folder;
    char hint[LATHE_HUB_HINT];
    if (!lathe_path_is_dir(word))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: no such folder; expected the folder of an adapter%s", word,
                           lathe_hub_hint(word, hint, sizeof hint));
    LATHE_TRY(lathe_model_folder_find(word, LATHE_WEIGHTS_AUTO, arena, &folder));
    *out = folder.dir;
    return check_adapter(folder.dir, n);
}

/* The model that the only adapter names: with one word, it is merged into its own base. */
static lathe_status find_named(const lathe_args *args, lathe_arena *arena, merge_folders *out)
{
    lathe_adapter_folder folder;
    LATHE_TRY(lathe_adapter_folder_read(out->adapters[0], lathe_args_override(args, "model.path"),
                                        arena, &folder));
    out->model = folder.base;
    out->is_named = 1;
    return LATHE_OK;
}

/* Finds the folders of the model and of the adapters; each may be the folder of a run. */
static lathe_status find_folders(const lathe_args *args, lathe_arena *arena, merge_folders *out)
{
    const char *output = lathe_args_value(args, "--output");
    const int32_t first = args->n_words > 1 ? 1 : 0;
    lathe_model_folder model;
    int32_t which;
    if (!output)
        return lathe_error(LATHE_E_ARG, "--output DIR is missing: the folder for the merged model");
    const char *left = plain_start(output, arena);
    if (!left)
        return LATHE_E_NOMEM;
    lathe_stale_clear(left); /* also where the output is whole, and a call was killed after that */
    LATHE_TRY(lathe_new_folder_check(output));
    if (first && lathe_args_override(args, "model.path"))
        return lathe_error(LATHE_E_ARG,
                           "--model.path and the folder %s are given; expected only one of them",
                           args->words[0]);
    LATHE_TRY(lathe_cli_weights(args, &which));
    out->n = args->n_words - first;
    if (first)
        LATHE_TRY(find_model(args->words[0], which, arena, &model));
    for (int32_t i = 0; i < out->n; i++)
        LATHE_TRY(find_adapter(args->words[first + i], out->n, arena, &out->adapters[i]));
    return first ? take_model(&model, out) : find_named(args, arena, out);
}

/* The format of --quant.name in which the merged model is written; NULL: none. */
static const char *wanted_format(const lathe_args *args)
{
    const char *name = lathe_args_override(args, "quant.name");
    return name && strcmp(name, "none") != 0 ? name : NULL;
}

static int is_of_quant(const lathe_override *o)
{
    return strncmp(o->key, "quant.", 6) == 0;
}

/* Whether the folder's weights are quantized already, so that [quant] would have no effect on it.
 */
static lathe_status is_quantized(const char *model, int *out)
{
    json_t *config = NULL;
    LATHE_TRY(lathe_model_json(model, "config.json", &config));
    *out = json_is_object(json_object_get(config, "quantization_config"));
    json_decref(config);
    return LATHE_OK;
}

/* Opens the adapter with the model as its base, a classifier's with stage rm. A plain base gets the
 * settings of [quant], so that they are checked before anything is written. A base that the adapter
 * names itself is left to the opening, which compares it with the recorded one. */
static lathe_status open_both(const lathe_args *args, const merge_folders *folders,
                              const char *adapter, lathe_run **out)
{
    const char *model = folders->model;
    int stored = 0;
    int32_t is_classifier = 0;
    LATHE_TRY(is_quantized(model, &stored));
    LATHE_TRY(lathe_adapter_folder_is_classifier(adapter, &is_classifier));
    lathe_args of_adapter = *args;
    of_adapter.words = &adapter;
    of_adapter.n_words = 1;
    of_adapter.overrides = calloc((size_t)args->n_overrides + 2, sizeof *of_adapter.overrides);
    if (!of_adapter.overrides)
        return lathe_error(LATHE_E_NOMEM, "no memory for the settings");
    of_adapter.n_overrides = 0;
    for (int32_t i = 0; i < args->n_overrides; i++)
        if (!stored || !is_of_quant(&args->overrides[i]))
            of_adapter.overrides[of_adapter.n_overrides++] = args->overrides[i];
    if (!folders->is_named)
        of_adapter.overrides[of_adapter.n_overrides++] = (lathe_override){"model.path", model};
    if (is_classifier)
        of_adapter.overrides[of_adapter.n_overrides++] = (lathe_override){"stage.name", "rm"};
    const lathe_status status = lathe_app_open_model(&of_adapter, LATHE_OPEN_WEIGHTS, NULL, out);
    free(of_adapter.overrides);
    if (status == LATHE_E_SHAPE || status == LATHE_E_NOT_FOUND)
        return lathe_error_context(LATHE_E_CONFIG, "the adapter does not fit the model %s", model);
    return status;
}

/* Settings that the second step, which quantizes, needs too. */
static int is_of_plugins(const char *key)
{
    return strncmp(key, "plugins.", 8) == 0 || strcmp(key, "model.name") == 0 ||
           strcmp(key, "checkpoint.shard_size") == 0;
}

/* lathe_quantized_report_fn */
static lathe_status check_weight(void *arg, const lathe_quantized_weight *w)
{
    (void)arg, (void)w;
    return lathe_cli_check_signals();
}

/* Quantizes the merged model in `from`, and writes it to `to`. */
static lathe_status quantize(const lathe_args *args, const char *from,
                             const lathe_made_from *parents, int32_t n_parents, const char *to)
{
    lathe_run *run = NULL;
    lathe_quantized_model made;
    /* an adapter of its own, because weights that train are not quantized */
    lathe_override *list = calloc((size_t)args->n_overrides + 3, sizeof *list);
    int32_t n = 0;
    if (!list)
        return lathe_error(LATHE_E_NOMEM, "no memory for the settings");
    list[n++] = (lathe_override){"model.path", from};
    list[n++] = (lathe_override){"adapter.name", "lora"};
    list[n++] = (lathe_override){"data.seq_len", "2"};
    for (int32_t i = 0; i < args->n_overrides; i++)
        if (is_of_quant(&args->overrides[i]) || is_of_plugins(args->overrides[i].key))
            list[n++] = args->overrides[i];
    lathe_status status = lathe_run_open_to_quantize(list, n, &run);
    if (status == LATHE_OK &&
        LATHE_HAS((const lathe_quant_v1 *)run->parts.quant.table, encode_calibrated))
        status = lathe_error(LATHE_E_CONFIG,
                             "format \"%s\" is calibrated on texts: merge without --quant.name, "
                             "and then use lathe quantize --calibration",
                             run->parts.quant.component->plugin->name);
    if (status == LATHE_OK)
        status = lathe__quantized_model_write(run, NULL, parents, n_parents, to, check_weight, NULL,
                                              &made);
    if (status == LATHE_OK)
        lathe_print("%d weights quantized to %.2f bits, relative error %.4f\n", made.n,
                    8.0 * (double)made.bytes / (double)made.n_numbers, made.relative_error);
    lathe_run_close(run);
    free(list);
    return status;
}

/* Merges, and quantizes the result if --quant.name asks for it: by way of a plain folder beside the
 * output, which is removed. */
static lathe_status write_merged(const lathe_args *args, const lathe_merge_part *parts, int32_t n,
                                 lathe_arena *arena, int32_t *out_n)
{
    const char *output = lathe_args_value(args, "--output");
    if (n < 1 || parts[0].saved == NULL)
        return lathe_error(LATHE_E_ARG, "there is no adapter to merge");
    lathe_made_from parents[1 + LATHE_MOST_MERGED] = {{"model", parts[0].saved->model_path}};
    int32_t combine;
    LATHE_TRY(read_combination(args, &combine));
    if (!wanted_format(args))
        return lathe__merged_model_write(parts, n, combine, output, lathe_cli_check_signals, out_n);
    const char *merged = plain_start(output, arena);
    const char *plain =
        merged ? lathe_arena_printf(arena, "%s.tmp.%ld", merged, (long)getpid()) : NULL;
    if (!plain)
        return LATHE_E_NOMEM;
    for (int32_t k = 0; k < n; k++)
        parents[1 + k] = (lathe_made_from){"adapter", parts[k].adapter};
    LATHE_TRY(lathe__merged_model_write(parts, n, combine, plain, lathe_cli_check_signals, out_n));
    const lathe_status status = quantize(args, plain, parents, 1 + n, output);
    char why[1024];
    (void)snprintf(why, sizeof why, "%s", status == LATHE_OK ? "" : lathe_error_message());
    (void)lathe_dir_remove(plain);
    return status == LATHE_OK ? LATHE_OK : lathe_error(status, "%s", why);
}

/* Opens the adapters and merges them. */
static lathe_status merge(const lathe_args *args, const merge_folders *folders, lathe_arena *arena,
                          int32_t *out_n)
{
    const int32_t n = folders->n;
    lathe_run *runs[LATHE_MOST_MERGED] = {NULL};
    lathe_merge_part parts[LATHE_MOST_MERGED] = {{NULL}};
    double factors[LATHE_MOST_MERGED];
    lathe_status status = read_factors(args, n, factors);
    for (int32_t i = 0; i < n && status == LATHE_OK; i++) {
        status = open_both(args, folders, folders->adapters[i], &runs[i]);
        if (status == LATHE_OK)
            parts[i] =
                (lathe_merge_part){lathe__run_saved(runs[i]), folders->adapters[i], factors[i]};
    }
    if (status == LATHE_OK)
        status = write_merged(args, parts, n, arena, out_n);
    for (int32_t i = 0; i < n; i++)
        lathe_run_close(runs[i]);
    return status;
}

static int run_command(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    merge_folders folders = {.model = NULL};
    int32_t n = 0;
    lathe_cli_hold_signals();
    lathe_status status = find_folders(args, &arena, &folders);
    if (status == LATHE_OK)
        status = merge(args, &folders, &arena, &n);
    if (status == LATHE_OK && folders.n == 1)
        lathe_print("merged %s into %d weights of %s: %s\n", folders.adapters[0], n, folders.model,
                    lathe_args_value(args, "--output"));
    else if (status == LATHE_OK)
        lathe_print("merged %d adapters into %d weights of %s: %s\n", folders.n, n, folders.model,
                    lathe_args_value(args, "--output"));
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_cli_end_signals(code == LATHE_EXIT_OK); /* else a pending one ends the process here */
    lathe_arena_fini(&arena);
    return code;
}

const lathe_command lathe_cmd_merge = {
    .name = "merge",
    .arguments = "[DIR|FILE.gguf] ADAPTER... -o OUT",
    .summary = "merge adapters into the weights of their model",
    .details =
        "DIR is the model: a Hugging Face folder, a checkpoint, the folder of a run, or a GGUF\n"
        "file; without it the model that ADAPTER names, or that lies beside it.\n"
        "ADAPTER is a checkpoint of a run with an adapter, the folder of such a run, or a\n"
        "folder that PEFT wrote. OUT is a new Hugging Face folder: every tensor keeps its\n"
        "dtype, those that the adapter does not change keep their bytes, and the\n"
        "tokenizer's files are the adapter's, or else the model's. An adapter that was\n"
        "trained over a quantized base is merged into the weights of DIR as they are; one\n"
        "that begins with LoftQ into the quantized weights that it belongs to. Weights\n"
        "that DIR stores quantized are decoded and get the dtype that config.json names;\n"
        "--checkpoint.save_dtype chooses one for all. --quant.name NAME quantizes the result\n"
        "as lathe quantize does. Several adapters of one model are added: each changes the\n"
        "weights as it does alone, times its factor of --adapter-weights. --combination\n"
        "linear is PEFT's: the A of LoRA adapters of one rank are added, and the B; their\n"
        "product has terms that no training made.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1 + LATHE_MOST_MERGED,
    .names_models = 1,
    .computes = 1,
    .takes_overrides = 1,
    .run = run_command,
};
