/* Learns a tokenizer from datasets, or finds it in the cache. */
#include "data/learned_tokenizer.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "records/corpus.h"
#include "records/row_kind.h"
#include "tokenjson/tokenizer_file.h"
#include "tokentrain/tokenizer_train.h"

/* The folder's name depends on the settings and the content of the files. */
static lathe_status cache_name(const lathe_learning *from, const lathe_corpus *corpus,
                               lathe_arena *arena, const char **out)
{
    lathe_sha256 *hash = NULL;
    char hex[65] = "";
    LATHE_TRY(lathe_corpus_hash(corpus, hex));
    LATHE_TRY(lathe_sha256_create(&hash));
    lathe_sha256_update(hash, from->train, (int64_t)strlen(from->train));
    lathe_sha256_update(hash, hex, 64);
    lathe_sha256_finish(hash, hex);
    hex[16] = '\0';
    *out = lathe_arena_printf(arena, "%s/tokenizer-%s", from->cache_dir, hex);
    return *out ? LATHE_OK : LATHE_E_NOMEM;
}

/* The texts of *out are borrowed from *out_root. */
static lathe_status read_settings(const lathe_learning *from, lathe_arena *arena, json_t **out_root,
                                  lathe_tokenizer_training *out)
{
    LATHE_TRY(
        lathe_json_load("tokenizer.train", from->train, (int64_t)strlen(from->train), out_root));
    const json_t *specials = json_object_get(*out_root, "special_tokens");
    *out = (lathe_tokenizer_training){
        .vocab_size = (int64_t)json_integer_value(json_object_get(*out_root, "vocab_size")),
        .min_frequency = (int64_t)json_integer_value(json_object_get(*out_root, "min_frequency")),
        .pattern = json_string_value(json_object_get(*out_root, "pattern"))};
    const size_t n = json_array_size(specials);
    const char **list = lathe_arena_alloc(arena, (int64_t)((n + 1) * sizeof *list));
    if (!list)
        return LATHE_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        list[i] = json_string_value(json_array_get(specials, i));
    out->specials = n ? list : NULL;
    out->n_specials = (int64_t)n;
    return LATHE_OK;
}

static lathe_status learn(const lathe_learning *from, lathe_corpus *corpus, lathe_arena *arena,
                          lathe_tokenizer **out, const char **out_dir)
{
    json_t *root = NULL;
    lathe_tokenizer_training settings;
    LATHE_TRY(cache_name(from, corpus, arena, out_dir));
    if (lathe_path_is_dir(*out_dir))
        return lathe_tokenizer_load(*out_dir, out);
    lathe_status status = read_settings(from, arena, &root, &settings);
    if (status == LATHE_OK)
        status = lathe_tokenizer_train(&settings, lathe_corpus_next, corpus, out);
    if (status == LATHE_OK)
        status = lathe_tokenizer_save(*out, lathe_arena_printf(arena, "%s/", *out_dir));
    json_decref(root);
    return status;
}

lathe_status lathe_tokenizer_learn(const lathe_learning *from, lathe_arena *arena,
                                   lathe_tokenizer **out, const char **out_dir)
{
    lathe_dataset *datasets = NULL;
    lathe_stage_input inputs[LATHE_MAX_STAGE_INPUTS];
    lathe_corpus *corpus = NULL;
    int32_t n_inputs;
    int64_t n = 0;
    if (!from->datasets)
        return lathe_error(LATHE_E_CONFIG, "%s: tokenizer.train needs data.datasets to learn from",
                           from->where);
    LATHE_TRY(lathe_datasets_parse(from->where, from->datasets, arena, &datasets, &n));
    n_inputs = lathe_stage_columns(from->stage, inputs);
    for (int64_t i = 0; i < n; i++) {
        datasets[i].inputs = inputs;
        datasets[i].n_inputs = n_inputs;
    }
    LATHE_TRY(lathe_corpus_open(datasets, n, from->stage ? from->stage->rows : LATHE_ROWS_PACKED,
                                &corpus));
    const lathe_status status = learn(from, corpus, arena, out, out_dir);
    lathe_corpus_close(corpus);
    return status;
}
