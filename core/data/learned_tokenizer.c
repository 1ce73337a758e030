/* Learns a tokenizer from datasets, or finds it in the cache. */
#include "data/learned_tokenizer.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "records/corpus.h"
#include "records/row_kind.h"
#include "tokenjson/tokenizer_file.h"
#include "tokentrain/tokenizer_train.h"

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

static lathe_status learn(const lathe_learning *from, lathe_corpus *corpus, lathe_arena *arena,
                          lathe_tokenizer **out, const char **out_dir)
{
    lathe_learning_settings train;
    LATHE_TRY(cache_name(from, corpus, arena, out_dir));
    if (lathe_path_is_dir(*out_dir))
        return lathe_tokenizer_load(*out_dir, out);
    (void)lathe_learning_settings_read(from->config, &train);
    const int64_t n_specials = train.special_tokens.n;
    const lathe_tokenizer_training settings = {.vocab_size = train.vocab_size,
                                               .min_frequency = train.min_frequency,
                                               .pattern = train.pattern,
                                               .specials =
                                                   n_specials ? train.special_tokens.strs : NULL,
                                               .n_specials = n_specials};
    LATHE_TRY(lathe_tokenizer_train(&settings, lathe_corpus_next, corpus, out));
    return lathe_tokenizer_save(*out, lathe_arena_printf(arena, "%s/", *out_dir));
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
    LATHE_TRY(lathe_corpus_open(datasets, n, from->stage ? from->stage->rows : LATHE_ROWS_PACKED,
                                &corpus));
    const lathe_status status = learn(from, corpus, arena, out, out_dir);
    lathe_corpus_close(corpus);
    return status;
}
