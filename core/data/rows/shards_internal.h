/* The private state of lathe_shards, for the files that make and read it. */
#ifndef LATHE_DATA_SHARDS_INTERNAL_H
#define LATHE_DATA_SHARDS_INTERNAL_H

#include "data/rows/shard_file.h"
#include "data/rows/shards.h"

struct lathe_shards {
    lathe_shard *list;
    int64_t n, capacity;
    lathe_shards_set *sets;
    int64_t n_sets;
    int64_t n_tokens, n_segments, n_skipped, n_built;
    int64_t vocab_size;
    int32_t rows, eos;
    char hash[65];
    lathe_arena arena;     /* owns the following members */
    lathe_source *sources; /* [n_sources] files from which the shards were made */
    int64_t n_sources;
    const char *left_out; /* sentences about other files in the folders; NULL: none */
};

/** Records a dataset's files, and the sentence about those that are not read. */
lathe_status lathe__shards_note(lathe_shards *shards, const lathe_sources *sources);

/** Creates an empty set with room for n_sets datasets. */
lathe_status lathe__shards_create(int64_t n_sets, int32_t rows, int32_t eos, int64_t vocab_size,
                                  lathe_shards **out);
/** Begins the next dataset; weight 0 counts as 1. */
void lathe__shards_begin(lathe_shards *shards, double weight);
/** Appends the shard to the last dataset. After an error the shard still belongs to the caller. */
lathe_status lathe__shards_add(lathe_shards *shards, const lathe_shard *shard);
/** Computes the identity, after the last shard. */
lathe_status lathe__shards_seal(lathe_shards *shards);

/** The work of making one dataset's shards. */
typedef struct lathe_shard_job {
    const lathe_dataset *dataset;
    const lathe_sources *sources;
    const lathe_tokenizer *tok;
    const char *cache_dir;
    int64_t part_bytes; /* minimum bytes of the sources that one shard covers */
    int32_t rows;
    lathe_shards_progress progress;
    void *progress_arg;
    int64_t done_bytes, done_tokens; /* of the earlier parts */
    int64_t file_bytes; /* the same, of the file in which the part begins; may be fewer */
} lathe_shard_job;

/** Tokenises on all threads, from writer->header.begin until part_bytes are passed or the sources
 *  end. Sets the header's end, is_last and counts. content: SHA-256 of the bytes read. The ids that
 *  the writer gets do not depend on the number of threads. */
lathe_status lathe__shard_build(const lathe_shard_job *job, lathe_shard_writer *writer,
                                char content[65]);

/** Size of a part; tests use others. */
#define LATHE_PART_BYTES (64LL << 20)

/** lathe_shards_prepare with another part size. */
lathe_status lathe__shards_prepare_parts(const lathe_dataset *datasets, int64_t n_datasets,
                                         int32_t rows, const lathe_tokenizer *tok,
                                         const char *cache_dir, int64_t part_bytes,
                                         lathe_shards_progress progress, void *arg,
                                         lathe_shards **out);

#endif
