/* Learns a tokenizer from datasets, or finds it in the cache. */
#include "data/rows/learned_tokenizer.h"
#include "config/config_fill.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/stale.h"
#include "data/records/corpus.h"
#include "data/records/row_kind.h"
#include "tokenizer/json/tokenizer_file.h"
#include "tokenizer/train/tokenizer_train.h"

#define KEY(key, c_type, member, form, convert, ...)                                               \
    LATHE_KEY_OF(lathe_learning_settings, key, member, form, convert)
#define KEY_ALONE(...)
static const lathe_key keys[] = {
#include "plug/keys_tokenizer_train.inc"
};

int lathe_learning_settings_read(const lathe_config *config, lathe_learning_settings *out)
{
    const lathe_config_table *table = lathe_config_table_at(config, "tokenizer", "train", 0);
    *out = (lathe_learning_settings){0};
    if (table)
        lathe_config_table_fill(config, table, keys, (int32_t)(sizeof keys / sizeof keys[0]), out);
    return table != NULL;
}

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

/* An error of a file in the cache, and not of the data. */
static lathe_status of_cache(lathe_status status)
{
    return status == LATHE_E_IO ? lathe_error_about(status, "data", "cache_dir") : status;
}

/* Loads the tokenizer of a folder of the cache. *out NULL: there is none, or it is incomplete or
 * damaged, which earlier versions of Lathe could leave behind; it is then learnt again. */
static lathe_status find(const char *dir, lathe_arena *arena, lathe_tokenizer **out)
{
    const char *config = lathe_path_join(arena, dir, "tokenizer_config.json");
    *out = NULL;
    if (!config)
        return LATHE_E_NOMEM;
    if (!lathe_path_is_dir(dir))
        return LATHE_OK;
    const lathe_status status = lathe_path_exists(config)
                                    ? lathe_tokenizer_load(dir, out)
                                    : lathe_error(LATHE_E_NOT_FOUND, "%s is missing", config);
    if (status == LATHE_OK || status == LATHE_E_NOMEM)
        return status;
    lathe_log(LATHE_LOG_WARN, "%s is incomplete (%s): the tokenizer is learnt again", dir,
              lathe_error_message());
    lathe_error_clear();
    return LATHE_OK;
}

static lathe_status make(const lathe_learning *from, lathe_corpus *corpus, lathe_arena *arena,
                         const char *dir, lathe_tokenizer **out)
{
    lathe_learning_settings train;
    (void)lathe_learning_settings_read(from->config, &train);
    const int64_t n_specials = train.special_tokens.n;
    const lathe_tokenizer_training settings = {.vocab_size = train.vocab_size,
                                               .min_frequency = train.min_frequency,
                                               .pattern = train.pattern,
                                               .specials =
                                                   n_specials ? train.special_tokens.strs : NULL,
                                               .n_specials = n_specials};
    LATHE_TRY(lathe_tokenizer_train(&settings, lathe_corpus_next, corpus, out));
    const char *as_folder = lathe_arena_printf(arena, "%s/", dir);
    if (!as_folder)
        return LATHE_E_NOMEM;
    const lathe_status status = of_cache(lathe_tokenizer_save(*out, as_folder));
    /* On a file system without locks another process may have been faster. */
    if (status != LATHE_E_CONFIG)
        return status;
    lathe_tokenizer_destroy(*out);
    *out = NULL;
    return lathe_tokenizer_load(dir, out);
}

/* The lock is held. */
static lathe_status find_or_make(const lathe_learning *from, lathe_corpus *corpus,
                                 lathe_arena *arena, const char *dir, lathe_tokenizer **out)
{
    const char *name = strrchr(dir, '/') + 1;
    LATHE_TRY(of_cache(lathe_stale_remove_locked(from->cache_dir, name)));
    LATHE_TRY(find(dir, arena, out));
    if (*out)
        return LATHE_OK;
    LATHE_TRY(of_cache(lathe_dir_remove(dir)));
    return make(from, corpus, arena, dir, out);
}

static lathe_status learn(const lathe_learning *from, lathe_corpus *corpus, lathe_arena *arena,
                          lathe_tokenizer **out, const char **out_dir)
{
    lathe_lock lock = LATHE_LOCK_INIT;
    LATHE_TRY(cache_name(from, corpus, arena, out_dir));
    LATHE_TRY(find(*out_dir, arena, out));
    if (*out)
        return LATHE_OK;
    const char *path = lathe_arena_printf(arena, "%s.lock", *out_dir);
    const char *waiting = lathe_arena_printf(
        arena, "%s: waiting for the process that learns this tokenizer", *out_dir);
    LATHE_TRY(path && waiting ? of_cache(lathe_lock_wait(path, waiting, &lock)) : LATHE_E_NOMEM);
    const lathe_status status = find_or_make(from, corpus, arena, *out_dir, out);
    lathe_lock_delete(&lock, path);
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
    LATHE_TRY(lathe_datasets_read(from->config, "datasets", arena, &datasets, &n));
    if (n == 0)
        return lathe_error(LATHE_E_CONFIG, "%s: tokenizer.train needs data.datasets to learn from",
                           from->where);
    n_inputs = lathe_stage_columns(from->stage, inputs);
    for (int64_t i = 0; i < n; i++) {
        datasets[i].inputs = inputs;
        datasets[i].n_inputs = n_inputs;
    }
    LATHE_TRY(lathe_corpus_open(datasets, n, lathe_rows_of(from->stage), &corpus));
    const lathe_status status = learn(from, corpus, arena, out, out_dir);
    lathe_corpus_close(corpus);
    return status;
}
