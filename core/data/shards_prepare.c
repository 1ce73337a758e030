/* Preparing shards: which source files a dataset has, and whether the cached shard still fits. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "data/shards_internal.h"

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* Lists the files and hashes their names, sizes and times. */
static lathe_status list_sources(const lathe_dataset *dataset, lathe_arena *arena,
                                 lathe_sources *out)
{
    memset(out, 0, sizeof *out);
    if (!lathe_path_exists(dataset->path))
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no such dataset", dataset->path);
    if (lathe_path_is_dir(dataset->path)) {
        char **paths;
        int64_t n;
        LATHE_TRY(lathe_dir_walk(dataset->path, arena, &paths, &n));
        out->paths = paths;
        for (int64_t i = 0; i < n; i++)
            if (dataset->type == LATHE_DATASET_TEXT || ends_with(paths[i], ".jsonl"))
                paths[out->n++] = paths[i];
    } else {
        out->paths = lathe_arena_alloc(arena, (int64_t)sizeof *out->paths);
        if (!out->paths || !(out->paths[0] = lathe_arena_strdup(arena, dataset->path)))
            return LATHE_E_NOMEM;
        out->n = 1;
    }
    if (!out->n)
        return lathe_error(LATHE_E_CONFIG, "%s: the folder holds no %s", dataset->path,
                           dataset->type == LATHE_DATASET_TEXT ? "files" : "*.jsonl");
    lathe_sha256 *hash;
    LATHE_TRY(lathe_sha256_create(&hash));
    for (int64_t i = 0; i < out->n; i++) {
        struct stat info;
        if (stat(out->paths[i], &info) != 0) {
            lathe_sha256_destroy(hash);
            return lathe_error(LATHE_E_IO, "%s: cannot read it", out->paths[i]);
        }
        const int64_t numbers[3] = {(int64_t)info.st_size, (int64_t)info.st_mtim.tv_sec,
                                    (int64_t)info.st_mtim.tv_nsec};
        lathe_sha256_update(hash, out->paths[i], (int64_t)strlen(out->paths[i]) + 1);
        lathe_sha256_update(hash, numbers, sizeof numbers);
        out->bytes += numbers[0];
    }
    lathe_sha256_finish(hash, out->stamp);
    return LATHE_OK;
}

/* SHA-256 of the sources' bytes, each file behind its length: as lathe__shard_build computes it. */
static lathe_status hash_content(const lathe_sources *sources, char out[65])
{
    lathe_sha256 *hash;
    LATHE_TRY(lathe_sha256_create(&hash));
    for (int64_t i = 0; i < sources->n; i++) {
        lathe_map map;
        const lathe_status status = lathe_map_open(sources->paths[i], &map);
        if (status != LATHE_OK) {
            lathe_sha256_destroy(hash);
            return status;
        }
        lathe_sha256_update(hash, &map.bytes, sizeof map.bytes);
        lathe_sha256_update(hash, map.data, map.bytes);
        lathe_map_close(&map);
    }
    lathe_sha256_finish(hash, out);
    return LATHE_OK;
}

static lathe_status hash_key(const lathe_shard_job *job, char out[65])
{
    lathe_sha256 *hash;
    LATHE_TRY(lathe_sha256_create(&hash));
    const lathe_dataset *dataset = job->dataset;
    const int32_t numbers[3] = {LATHE_SHARD_VERSION, job->rows, dataset->type};
    lathe_sha256_update(hash, numbers, sizeof numbers);
    lathe_sha256_update(hash, lathe_tokenizer_hash(job->tok), 64);
    for (int32_t k = 0; k < LATHE_N_COLUMNS; k++) {
        const char *name = dataset->columns[k] ? dataset->columns[k] : "";
        lathe_sha256_update(hash, name, (int64_t)strlen(name) + 1);
    }
    lathe_sha256_update(hash, dataset->path, (int64_t)strlen(dataset->path));
    lathe_sha256_finish(hash, out);
    return LATHE_OK;
}

static lathe_status build(lathe_shard_job *job, const lathe_sources *sources, const char *path,
                          const char *key)
{
    lathe_shard_header header;
    memset(&header, 0, sizeof header);
    header.rows = job->rows;
    header.eos = lathe_tokenizer_eos(job->tok);
    header.vocab_size = lathe_tokenizer_vocab_size(job->tok);
    header.token_bytes = header.vocab_size <= 65536 ? 2 : 4;
    memcpy(header.key, key, 64);
    memcpy(header.stamp, sources->stamp, 64);
    lathe_shard_writer writer;
    char content[65];
    lathe_status status = lathe__shard_writer_init(&writer, path, &header);
    if (status == LATHE_OK)
        status = lathe__shard_build(job, sources, &writer, content);
    if (status == LATHE_OK)
        status = lathe__shard_writer_finish(&writer, content);
    if (status == LATHE_OK)
        status = lathe_dir_sync(job->cache_dir);
    lathe__shard_writer_fini(&writer);
    job->built = status == LATHE_OK;
    return status;
}

static lathe_status prepare_one(lathe_shard_job *job, lathe_arena *arena, lathe_shard *out)
{
    lathe_sources sources;
    char key[65];
    LATHE_TRY(list_sources(job->dataset, arena, &sources));
    LATHE_TRY(hash_key(job, key));
    const char *name = lathe_arena_printf(arena, "shard-%.24s.bin", key);
    const char *path = name ? lathe_path_join(arena, job->cache_dir, name) : NULL;
    if (!path)
        return LATHE_E_NOMEM;
    lathe_shard_header header;
    int current;
    LATHE_TRY(lathe__shard_peek(path, &header, &current));
    current = current && !memcmp(header.key, key, 64);
    if (current && memcmp(header.stamp, sources.stamp, 64)) {
        char content[65];
        LATHE_TRY(hash_content(&sources, content));
        current = !memcmp(header.content, content, 64);
    }
    if (!current)
        LATHE_TRY(build(job, &sources, path, key));
    return lathe__shard_open(path, out);
}

lathe_status lathe_shards_prepare(const lathe_dataset *datasets, int64_t n_datasets, int32_t rows,
                                  const lathe_tokenizer *tok, const char *cache_dir,
                                  lathe_shards_progress progress, void *arg, lathe_shards **out)
{
    if (rows != LATHE_ROWS_PACKED && rows != LATHE_ROWS_PAIRS)
        return lathe_error(LATHE_E_ARG, "rows is %d: neither packed nor pairs", rows);
    if (lathe_tokenizer_eos(tok) < 0)
        return lathe_error(LATHE_E_CONFIG,
                           "the tokenizer names no end-of-text token; set eos_token "
                           "in tokenizer_config.json");
    LATHE_TRY(lathe_dir_create(cache_dir));
    lathe_shards *shards;
    LATHE_TRY(lathe__shards_create(n_datasets, rows, lathe_tokenizer_eos(tok),
                                   lathe_tokenizer_vocab_size(tok), &shards));
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < n_datasets && status == LATHE_OK; i++) {
        lathe_arena arena = LATHE_ARENA_INIT;
        lathe_shard shard;
        lathe_shard_job job = {&datasets[i], tok, cache_dir, rows, 0, progress, arg};
        status = prepare_one(&job, &arena, &shard);
        if (status == LATHE_OK) {
            lathe__shards_add(shards, &shard);
            shards->n_built += job.built;
        }
        lathe_arena_fini(&arena);
    }
    if (status == LATHE_OK)
        status = lathe__shards_seal(shards);
    if (status != LATHE_OK) {
        lathe_shards_destroy(shards);
        return status;
    }
    *out = shards;
    return LATHE_OK;
}
