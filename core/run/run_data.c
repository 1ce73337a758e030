/* The run's tokenizer, shards and loaders. */
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "run/run_state.h"

/* ---- learning a tokenizer from the datasets ---- */

static lathe_status corpus_paths(lathe_run *run, const char *const **out_paths, int64_t *out_n)
{
    const char *where = lathe_config_path(run->config);
    lathe_dataset *datasets = NULL;
    int64_t n = 0;
    if (!run->set.datasets)
        return lathe_error(LATHE_E_CONFIG, "%s: tokenizer.train needs data.datasets to learn from",
                           where);
    LATHE_TRY(lathe_datasets_parse(where, run->set.datasets, &run->arena, &datasets, &n));
    const char **paths = lathe_arena_alloc(&run->arena, (n + 1) * (int64_t)sizeof *paths);
    if (!paths)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        if (datasets[i].type != LATHE_DATASET_TEXT)
            return lathe_error(
                LATHE_E_UNSUPPORTED,
                "%s: tokenizer.train learns from datasets of type \"text\", not from %s; train "
                "one on text files first and name it with tokenizer.path",
                where, datasets[i].path);
        paths[i] = datasets[i].path;
    }
    *out_paths = paths;
    *out_n = n;
    return LATHE_OK;
}

static lathe_status hash_files(lathe_sha256 *hash, const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char hex[65], **files = NULL;
    int64_t n = 0;
    lathe_status status = LATHE_OK;
    if (lathe_path_is_dir(path)) {
        status = lathe_dir_walk(path, &arena, &files, &n);
    } else {
        status = lathe_sha256_file(path, hex);
        lathe_sha256_update(hash, hex, 64);
    }
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        status = lathe_sha256_file(files[i], hex);
        if (status == LATHE_OK)
            lathe_sha256_update(hash, hex, 64);
    }
    lathe_arena_fini(&arena);
    return status;
}

/* Where a learnt tokenizer is kept: a folder named after the settings and the files' content. */
static lathe_status cache_name(lathe_run *run, const char *const *paths, int64_t n,
                               const char **out)
{
    lathe_sha256 *hash = NULL;
    char hex[65] = "";
    lathe_status status = LATHE_OK;
    LATHE_TRY(lathe_sha256_create(&hash));
    lathe_sha256_update(hash, run->set.tokenizer_train, (int64_t)strlen(run->set.tokenizer_train));
    for (int64_t i = 0; i < n && status == LATHE_OK; i++)
        status = hash_files(hash, paths[i]);
    if (status != LATHE_OK) {
        lathe_sha256_destroy(hash);
        return status;
    }
    lathe_sha256_finish(hash, hex);
    hex[16] = '\0';
    *out = lathe_arena_printf(&run->arena, "%s/tokenizer-%s", run->set.cache_dir, hex);
    return *out ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status train_settings(lathe_run *run, json_t **out_root, lathe_tokenizer_training *out)
{
    LATHE_TRY(lathe_json_load("tokenizer.train", run->set.tokenizer_train,
                              (int64_t)strlen(run->set.tokenizer_train), out_root));
    const json_t *specials = json_object_get(*out_root, "special_tokens");
    *out = (lathe_tokenizer_training){
        .vocab_size = (int64_t)json_integer_value(json_object_get(*out_root, "vocab_size")),
        .min_frequency = (int64_t)json_integer_value(json_object_get(*out_root, "min_frequency")),
        .pattern = json_string_value(json_object_get(*out_root, "pattern"))};
    const size_t n = json_array_size(specials);
    const char **list = lathe_arena_alloc(&run->arena, (int64_t)((n + 1) * sizeof *list));
    if (!list)
        return LATHE_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        list[i] = json_string_value(json_array_get(specials, i));
    out->specials = n ? list : NULL;
    out->n_specials = (int64_t)n;
    return LATHE_OK;
}

static lathe_status learn(lathe_run *run)
{
    const char *folder = NULL, *const *paths = NULL;
    int64_t n = 0;
    json_t *root = NULL;
    lathe_tokenizer_training settings;
    LATHE_TRY(corpus_paths(run, &paths, &n));
    LATHE_TRY(cache_name(run, paths, n, &folder));
    run->tokenizer_dir = folder;
    if (lathe_path_is_dir(folder))
        return lathe_tokenizer_load(folder, &run->tokenizer);
    lathe_status status = train_settings(run, &root, &settings);
    if (status == LATHE_OK)
        status = lathe_tokenizer_train_files(&settings, paths, n, NULL, &run->tokenizer);
    if (status == LATHE_OK)
        status =
            lathe_tokenizer_save(run->tokenizer, lathe_arena_printf(&run->arena, "%s/", folder));
    json_decref(root);
    return status;
}

lathe_status lathe__run_tokenizer(lathe_run *run)
{
    const char *path = run->set.tokenizer_path;
    if (run->set.tokenizer_train)
        return learn(run);
    if (path && strcmp(path, "bytes") == 0)
        return lathe_tokenizer_bytes(&run->tokenizer);
    if (!path && run->set.model_path) {
        const char *json = lathe_path_join(&run->arena, run->set.model_path, "tokenizer.json");
        if (!json)
            return LATHE_E_NOMEM;
        if (lathe_path_exists(json))
            path = run->set.model_path;
    }
    if (!path)
        return lathe_tokenizer_bytes(&run->tokenizer);
    run->tokenizer_dir = path;
    return lathe_tokenizer_load(path, &run->tokenizer);
}

/* ---- shards and loaders ---- */

static lathe_status open_shards(lathe_run *run, const char *json, lathe_shards **out)
{
    const lathe_stage_v1 *stage = run->stage.table;
    lathe_dataset *datasets = NULL;
    int64_t n = 0;
    LATHE_TRY(
        lathe_datasets_parse(lathe_config_path(run->config), json, &run->arena, &datasets, &n));
    return lathe_shards_prepare(datasets, n, stage->rows, run->tokenizer, run->set.cache_dir, NULL,
                                NULL, out);
}

/* evaluates: once through the split in the order of the data; else endless and shuffled. */
static lathe_status open_loader(lathe_run *run, const lathe_shards *shards, int32_t evaluates,
                                int32_t split, double fraction, lathe_loader **out)
{
    const lathe_program_config program = lathe__run_program_config(run);
    const lathe_loader_config config = {.shards = shards,
                                        .n_rows = program.n_rows,
                                        .row_tokens = run->set.seq_len,
                                        .n_ranks = 1,
                                        .seed = run->set.data_seed,
                                        .no_shuffle = evaluates || !run->set.shuffle,
                                        .split = split,
                                        .validation_fraction = fraction,
                                        .n_epochs = evaluates ? 1 : 0,
                                        .n_prefetch = run->set.prefetch};
    return lathe_loader_create(&config, out);
}

static lathe_status open_validation(lathe_run *run, const char *datasets, double fraction)
{
    if (datasets) {
        LATHE_TRY(open_shards(run, datasets, &run->validation_shards));
        LATHE_TRY(
            open_loader(run, run->validation_shards, 1, LATHE_SPLIT_TRAIN, 0.0, &run->validation));
    } else if (fraction > 0.0) {
        LATHE_TRY(
            open_loader(run, run->shards, 1, LATHE_SPLIT_VALIDATION, fraction, &run->validation));
    }
    if (run->validation)
        lathe_loader_cursor(run->validation, &run->validation_start);
    return LATHE_OK;
}

lathe_status lathe__run_data(lathe_run *run)
{
    const char *validation = lathe_config_string(run->config, "data", "validation");
    const double fraction = validation ? 0.0 : run->set.validation_split;
    if (!run->set.datasets)
        return lathe_error(LATHE_E_CONFIG, "%s: data.datasets names no data",
                           lathe_config_path(run->config));
    if (lathe_tokenizer_vocab_size(run->tokenizer) > run->model.vocab)
        return lathe_error(
            LATHE_E_CONFIG, "the tokenizer has %lld tokens, the model's vocabulary only %lld",
            (long long)lathe_tokenizer_vocab_size(run->tokenizer), (long long)run->model.vocab);
    LATHE_TRY(open_shards(run, run->set.datasets, &run->shards));
    if (run->mode == LATHE_OPEN_TRAIN)
        LATHE_TRY(open_loader(run, run->shards, 0, LATHE_SPLIT_TRAIN, fraction, &run->loader));
    LATHE_TRY(open_validation(run, validation, fraction));
    if (run->loader)
        lathe_loader_cursor(run->loader, &run->at.cursor);
    return LATHE_OK;
}
