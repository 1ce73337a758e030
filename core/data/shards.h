/* Shards: a dataset tokenised once, in memory-mapped files of token ids with an index of documents.
 *
 * A shard holds segments: runs of ids. Packed rows: a segment is a document, its end-of-text token
 * included. Pairs: three segments a record: prompt, chosen, rejected; the last two end in
 * end-of-text.
 *
 * File, little-endian:  header (512 bytes) | ids u16 or u32 [n_tokens] | pad to 8 | i64
 * offsets[n_segments + 1] | i64 bytes of text [n_segments]. Named after the hash of what it was
 * made from, and numbered.
 */
#ifndef LATHE_DATA_SHARDS_H
#define LATHE_DATA_SHARDS_H

#include "data/dataset.h"
#include "lathe/stage.h"
#include "text/tokenizer.h"

typedef struct lathe_shards lathe_shards;

/** A dataset's stretch of the stream. */
typedef struct lathe_shards_set {
    int64_t first_segment, n_segments;
    int64_t first_token, n_tokens;
    double weight; /* how often each of its rows comes in an epoch */
} lathe_shards_set;

/** Called now and then while a dataset is tokenised. total_bytes: of the dataset. */
typedef void (*lathe_shards_progress)(void *arg, const char *path, int64_t done_bytes,
                                      int64_t total_bytes, int64_t n_tokens);

/** Opens the datasets' shards, making those that are missing or out of date in cache_dir.
 *
 *  A dataset's shards each cover about 64 MiB of its files and are made one after the other, on all
 *  threads; a start that was interrupted continues after the last finished one. A shard is reused
 *  when its tokenizer, columns and source agree: path, size and modification time of every file, or
 *  else the SHA-256 of what it covers. Text files that are not UTF-8 or hold a NUL, and empty
 *  documents, are skipped and counted. Any number of processes may prepare one cache at once. rows:
 *  LATHE_ROWS_*.
 *  Errors  LATHE_E_CORRUPT names a damaged shard (header, sizes, index; ids too in the first GiB);
 *          LATHE_E_PARSE names file:line of a bad record; LATHE_E_CONFIG a missing column, an empty
 *          dataset, no eos; LATHE_E_NOT_FOUND no file; LATHE_E_IO a file that cannot be read,
 *          changed meanwhile, or cannot be written. */
lathe_status lathe_shards_prepare(const lathe_dataset *datasets, int64_t n_datasets, int32_t rows,
                                  const lathe_tokenizer *tok, const char *cache_dir,
                                  lathe_shards_progress progress, void *arg, lathe_shards **out);

/** The same of about the first `bytes` of each dataset, in a folder that the caller removes when it
 *  is done. */
lathe_status lathe_shards_sample(const lathe_dataset *datasets, int64_t n_datasets, int32_t rows,
                                 const lathe_tokenizer *tok, const char *dir, int64_t bytes,
                                 lathe_shards **out);

/** Shards in memory: copies the ids; segment i is ids[offsets[i] .. offsets[i+1]), offsets[0] = 0.
 *  eos fills what a row has left over; vocab_size bounds the ids. */
lathe_status lathe_shards_from_ids(int32_t rows, const int32_t *ids, const int64_t *offsets,
                                   int64_t n_segments, int32_t eos, int64_t vocab_size,
                                   lathe_shards **out);

/** Made-up documents for benchmarks: uniform ids below vocab_size - 1 from the counter RNG,
 *  doc_tokens each, the last of them eos = vocab_size - 1. */
lathe_status lathe_shards_synthetic(int64_t n_docs, int64_t doc_tokens, int64_t vocab_size,
                                    uint64_t seed, lathe_shards **out);

void lathe_shards_destroy(lathe_shards *shards);

/** Datasets, in the order of the stream. */
int64_t lathe_shards_sets(const lathe_shards *shards);
const lathe_shards_set *lathe_shards_set_get(const lathe_shards *shards, int64_t i);

int32_t lathe_shards_rows(const lathe_shards *shards); /* LATHE_ROWS_* */
int64_t lathe_shards_segments(const lathe_shards *shards);
int64_t lathe_shards_tokens(const lathe_shards *shards);
/** Files left out as binary, and empty records left out. */
int64_t lathe_shards_skipped(const lathe_shards *shards);
/** What the datasets' folders hold and nothing is read from, in words; NULL: nothing. */
const char *lathe_shards_left_out(const lathe_shards *shards);
/** The files that the shards were made from, as they were when they were listed; none for shards in
 *  memory. */
const lathe_source *lathe_shards_sources(const lathe_shards *shards, int64_t *out_n);
/** Shard files that this call had to make. */
int64_t lathe_shards_built(const lathe_shards *shards);
int32_t lathe_shards_eos(const lathe_shards *shards);
/** 64 hexadecimal digits over the content of all shards, in order: the data's identity. */
const char *lathe_shards_hash(const lathe_shards *shards);

/** UTF-8 bytes of the text that segments [begin, end) were made from; 0 for shards in memory. */
int64_t lathe_shards_text_bytes(const lathe_shards *shards, int64_t begin, int64_t end);

/** First token (in the stream of all segments) of segment i; i = n_segments gives the total. */
int64_t lathe_shards_offset(const lathe_shards *shards, int64_t i);
/** The segment that holds token `at` of the stream, 0 <= at < tokens. */
int64_t lathe_shards_find(const lathe_shards *shards, int64_t at);
/** Whether all files are as they were when they were opened. For a reader of the index that finds
 *  what cannot be. LATHE_E_IO: one became shorter. LATHE_E_CORRUPT: none, so that the index is at
 *  fault. LATHE_OK only when no file is and the index goes forward. */
lathe_status lathe_shards_check(const lathe_shards *shards);
/** Copies ids [begin, end) of the stream. LATHE_E_CORRUPT for an id outside the vocabulary;
 *  LATHE_E_IO: the file became shorter since it was opened. */
lathe_status lathe_shards_read(const lathe_shards *shards, int64_t begin, int64_t end,
                               int32_t *out);

#endif
