/* The set of shards that lathe_shards holds, shared by the files that make and read it. */
#ifndef LATHE_DATA_SHARDS_INTERNAL_H
#define LATHE_DATA_SHARDS_INTERNAL_H

#include "data/shard_file.h"
#include "data/shards.h"

struct lathe_shards {
    lathe_shard *list;
    int64_t n, capacity;
    lathe_shards_set *sets;
    int64_t n_sets;
    int64_t n_tokens, n_segments, n_skipped, n_built;
    int64_t vocab_size;
    int32_t rows, eos;
    char hash[65];
    lathe_arena arena;     /* of what follows */
    lathe_source *sources; /* [n_sources] files that the shards were made from */
    int64_t n_sources;
    const char *left_out; /* what the folders hold beside them, a sentence each; NULL: nothing */
};

/** Remembers a dataset's files, and what was left out. */
lathe_status lathe__shards_note(lathe_shards *shards, const lathe_sources *sources);

/** Room for n_sets datasets. */
lathe_status lathe__shards_create(int64_t n_sets, int32_t rows, int32_t eos, int64_t vocab_size,
                                  lathe_shards **out);
/** Begins the next dataset; weight 0 counts as 1. */
void lathe__shards_begin(lathe_shards *shards, double weight);
/** Takes the shard into the last dataset. In case of an error the shard stays the caller's. */
lathe_status lathe__shards_add(lathe_shards *shards, const lathe_shard *shard);
/** Computes the identity, after the last shard. */
lathe_status lathe__shards_seal(lathe_shards *shards);

/** Making one dataset's shards. */
typedef struct lathe_shard_job {
    const lathe_dataset *dataset;
    const lathe_sources *sources;
    const lathe_tokenizer *tok;
    const char *cache_dir;
    int64_t part_bytes; /* of sources that one shard covers, at least */
    int32_t rows;
    lathe_shards_progress progress;
    void *progress_arg;
    int64_t done_bytes, done_tokens; /* of the parts before */
    lathe_text_loss *loss;           /* counts the bytes without a token; NULL: nobody counts */
} lathe_shard_job;

/** Tokenises, on all threads, from writer->header.begin on until part_bytes are passed or the
 *  sources end; sets the header's end, is_last, counts. content: SHA-256 of what was read. What the
 *  writer gets does not depend on the number of threads. */
lathe_status lathe__shard_build(const lathe_shard_job *job, lathe_shard_writer *writer,
                                char content[65]);

/** Parts are cut here unless a test says otherwise. */
#define LATHE_PART_BYTES (64LL << 20)

/** lathe_shards_prepare with another size of parts. */
lathe_status lathe__shards_prepare_parts(const lathe_dataset *datasets, int64_t n_datasets,
                                         int32_t rows, const lathe_tokenizer *tok,
                                         const char *cache_dir, int64_t part_bytes,
                                         lathe_shards_progress progress, void *arg,
                                         lathe_shards **out);

#endif
