/* The set of shards behind lathe_shards, shared by the files that make and read it. */
#ifndef LATHE_DATA_SHARDS_INTERNAL_H
#define LATHE_DATA_SHARDS_INTERNAL_H

#include "data/shard_file.h"

struct lathe_shards {
    lathe_shard *list;
    int64_t n;
    int64_t n_tokens, n_segments, n_skipped, n_built;
    int64_t vocab_size;
    int32_t rows, eos;
    char hash[65];
};

/** Room for n shards; list[0..n) zeroed, n set as they are added. */
lathe_status lathe__shards_create(int64_t n, int32_t rows, int32_t eos, int64_t vocab_size,
                                  lathe_shards **out);
/** Takes the shard. */
void lathe__shards_add(lathe_shards *shards, const lathe_shard *shard);
/** Computes the identity, after the last shard. */
lathe_status lathe__shards_seal(lathe_shards *shards);

/** Opens one dataset's shard, making it when it is missing or out of date. */
typedef struct lathe_shard_job {
    const lathe_dataset *dataset;
    const lathe_tokenizer *tok;
    const char *cache_dir;
    int32_t rows;
    int32_t built; /* out */
    lathe_shards_progress progress;
    void *progress_arg;
} lathe_shard_job;

/** The dataset's source files. */
typedef struct lathe_sources {
    char **paths;
    int64_t n, bytes;
    char stamp[65];
} lathe_sources;

/** Tokenises the sources into the writer; *content gets the SHA-256 of their bytes. */
lathe_status lathe__shard_build(const lathe_shard_job *job, const lathe_sources *sources,
                                lathe_shard_writer *writer, char content[65]);

#endif
