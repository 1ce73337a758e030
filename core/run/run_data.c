/* The run's tokenizer, shards and loaders. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "run/run_state.h"

/* ---- learning a tokenizer from the datasets ---- */

/* Gives the texts of the datasets one after another. */
typedef struct corpus {
    lathe_arena arena;
    char **paths;
    int64_t n_paths, at;
    char *text;
} corpus;

static lathe_status corpus_next(void *arg, const char **out_text, int64_t *out_bytes)
{
    corpus *c = arg;
    free(c->text);
    c->text = NULL;
    *out_text = NULL;
    *out_bytes = 0;
    if (c->at == c->n_paths)
        return LATHE_OK;
    LATHE_TRY(lathe_file_read(c->paths[c->at++], 0, &c->text, out_bytes));
    *out_text = c->text;
    return LATHE_OK;
}

static lathe_status add_paths(corpus *c, const lathe_dataset *dataset)
{
    char **more = NULL;
    int64_t n = 0;
    char *single[1] = {lathe_arena_strdup(&c->arena, dataset->path)};
    if (lathe_path_is_dir(dataset->path)) {
        LATHE_TRY(lathe_dir_walk(dataset->path, &c->arena, &more, &n));
    } else {
        more = single;
        n = 1;
    }
    char **all = lathe_arena_alloc(&c->arena, (c->n_paths + n + 1) * (int64_t)sizeof *all);
    if (!all)
        return LATHE_E_NOMEM;
    if (c->n_paths)
        memcpy(all, c->paths, (size_t)c->n_paths * sizeof *all);
    if (n)
        memcpy(all + c->n_paths, more, (size_t)n * sizeof *all);
    c->paths = all;
    c->n_paths += n;
    return LATHE_OK;
}

static lathe_status corpus_open(lathe_run *run, corpus *c)
{
    lathe_dataset *datasets = NULL;
    int64_t n = 0;
    if (!run->set.datasets)
        return lathe_error(LATHE_E_CONFIG, "%s: tokenizer.train needs data.datasets to learn from",
                           lathe_config_path(run->config));
    LATHE_TRY(lathe_datasets_parse(lathe_config_path(run->config), run->set.datasets, &c->arena,
                                   &datasets, &n));
    for (int64_t i = 0; i < n; i++)
        LATHE_TRY(add_paths(c, &datasets[i]));
    return LATHE_OK;
}

/* Where a learnt tokenizer is kept: a folder named after the settings and the files' sizes and times. */
static lathe_status cache_name(lathe_run *run, const corpus *c, const char **out)
{
    lathe_sha256 *hash = NULL;
    char hex[65];
    LATHE_TRY(lathe_sha256_create(&hash));
    lathe_sha256_update(hash, run->set.tokenizer_train, (int64_t)strlen(run->set.tokenizer_train));
    for (int64_t i = 0; i < c->n_paths; i++) {
        char file[65];
        const lathe_status status = lathe_sha256_file(c->paths[i], file);
        if (status != LATHE_OK) {
            lathe_sha256_destroy(hash);
            return status;
        }
        lathe_sha256_update(hash, file, 64);
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

static lathe_status learn(lathe_run *run, corpus *c)
{
    const char *folder = NULL;
    json_t *root = NULL;
    lathe_tokenizer_training settings;
    LATHE_TRY(corpus_open(run, c));
    LATHE_TRY(cache_name(run, c, &folder));
    run->tokenizer_dir = folder;
    if (lathe_path_is_dir(folder))
        return lathe_tokenizer_load(folder, &run->tokenizer);
    lathe_status status = train_settings(run, &root, &settings);
    if (status == LATHE_OK)
        status = lathe_tokenizer_train(&settings, corpus_next, c, &run->tokenizer);
    if (status == LATHE_OK)
        status =
            lathe_tokenizer_save(run->tokenizer, lathe_arena_printf(&run->arena, "%s/", folder));
    json_decref(root);
    return status;
}

lathe_status lathe__run_tokenizer(lathe_run *run)
{
    const char *path = run->set.tokenizer_path;
    if (run->set.tokenizer_train) {
        corpus c = {LATHE_ARENA_INIT, NULL, 0, 0, NULL};
        const lathe_status status = learn(run, &c);
        free(c.text);
        lathe_arena_fini(&c.arena);
        return status;
    }
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
    } else if (run->mode == LATHE_OPEN_EVALUATE) {
        LATHE_TRY(open_loader(run, run->shards, 1, LATHE_SPLIT_TRAIN, 0.0, &run->validation));
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
