/* Shards: datasets tokenised once into memory-mapped files of token ids with an index of documents.
 *
 * A shard has segments, which are runs of ids. Packed rows: a segment is a document with its
 * end-of-text token. Pairs: three segments per record (prompt, chosen, rejected); the last two end
 * with end-of-text. Completions: a segment is an example; a mask has a bit per token, which says
 * whether it is a target. Unpaired: two segments per example (prompt, completion). Prompts: one
 * segment, without end-of-text.
 *
 * File, little-endian:  header (720 bytes) | ids u16 or u32 [n_tokens] | pad to 8 | i64
 * offsets[n_segments + 1] | i64 bytes of text [n_segments] | completions only: u64 mask [(n_tokens
 * + 63) / 64] | all but packed: i64 line of each record in the source files | f64 inputs of the
 * stage [records][n_inputs] | prompts: i64 end of each record's JSON, and their bytes, padded to 8
 * | the notes (lathe_record_notes). The name has a hash of the sources and settings, and a number.
 */
#ifndef LATHE_DATA_SHARDS_H
#define LATHE_DATA_SHARDS_H

#include "data/records/dataset.h"
#include "data/rows/shard_file.h"
#include "lathe/stage.h"
#include "tokenizer/encode/tokenizer.h"

typedef struct lathe_shards lathe_shards;

/** The part of the stream that one dataset has. */
typedef struct lathe_shards_set {
    int64_t first_segment, n_segments;
    int64_t first_token, n_tokens;
    double weight;                   /* how often an epoch uses each of its rows */
    int64_t first_source, n_sources; /* in lathe_shards_sources */
    /* `first_equal` is a record of all shards. */
    lathe_record_counts counts;
    lathe_record_notes notes;
} lathe_shards_set;

/** Called from time to time while a dataset is tokenised. total_bytes: size of the dataset. */
typedef void (*lathe_shards_progress)(void *arg, const char *path, int64_t done_bytes,
                                      int64_t total_bytes, int64_t n_tokens);

/** Opens the datasets' shards; makes those that are missing or out of date in cache_dir.
 *
 *  Each shard covers about 64 MiB of a dataset's files. Shards are made one after another, each on
 *  all threads; an interrupted start continues after the last finished shard. A shard is reused if
 *  its tokenizer, columns and sources agree: path, size and modification time of every file, or
 *  else the SHA-256 of the part that it covers. Text files that are not UTF-8 or contain a NUL, and
 *  empty documents, are skipped and counted. Several processes may prepare the same cache at once.
 *  rows: LATHE_ROWS_*. Errors: LATHE_E_CORRUPT names a damaged shard (header, sizes, index; ids too
 *  in the first GiB); LATHE_E_PARSE names file:line of a bad record; LATHE_E_CONFIG: a missing
 *  column, an empty dataset, no eos; LATHE_E_NOT_FOUND: no file; LATHE_E_IO: a file that cannot be
 *  read or written, or that changed meanwhile. */
lathe_status lathe_shards_prepare(const lathe_dataset *datasets, int64_t n_datasets, int32_t rows,
                                  const lathe_tokenizer *tok, const char *cache_dir,
                                  lathe_shards_progress progress, void *arg, lathe_shards **out);

/** Like lathe_shards_prepare, but only for about the first `bytes` of each dataset, in a folder
 *  that the caller removes later. */
lathe_status lathe_shards_sample(const lathe_dataset *datasets, int64_t n_datasets, int32_t rows,
                                 const lathe_tokenizer *tok, const char *dir, int64_t bytes,
                                 lathe_shards **out);

/** Shards in memory: copies the ids; segment i is ids[offsets[i] .. offsets[i+1]), offsets[0] = 0.
 *  eos fills the rest of a row; vocab_size bounds the ids. */
lathe_status lathe_shards_from_ids(int32_t rows, const int32_t *ids, const int64_t *offsets,
                                   int64_t n_segments, int32_t eos, int64_t vocab_size,
                                   lathe_shards **out);

/** Synthetic documents for benchmarks: uniform ids below vocab_size - 1 from the counter RNG,
 *  doc_tokens each; the last one is eos = vocab_size - 1. */
lathe_status lathe_shards_synthetic(int64_t n_docs, int64_t doc_tokens, int64_t vocab_size,
                                    uint64_t seed, lathe_shards **out);

void lathe_shards_destroy(lathe_shards *shards);

/** Datasets, in the order of the stream. */
int64_t lathe_shards_sets(const lathe_shards *shards);
const lathe_shards_set *lathe_shards_set_get(const lathe_shards *shards, int64_t i);

int32_t lathe_shards_rows(const lathe_shards *shards); /* LATHE_ROWS_* */
int64_t lathe_shards_segments(const lathe_shards *shards);
int64_t lathe_shards_tokens(const lathe_shards *shards);
/** Number of skipped files that are not text, and of empty records. */
int64_t lathe_shards_skipped(const lathe_shards *shards);
/** A sentence about files in the datasets' folders that are not read; NULL: none. */
const char *lathe_shards_left_out(const lathe_shards *shards);
/** The files that the shards were made from, as they were when listed; none for shards in
 *  memory. */
const lathe_source *lathe_shards_sources(const lathe_shards *shards, int64_t *out_n);
/** Number of shard files that this call had to make. */
int64_t lathe_shards_built(const lathe_shards *shards);
int32_t lathe_shards_eos(const lathe_shards *shards);
/** 64 hexadecimal digits: a hash of the content of all shards in order, the identity of the
 *  data. */
const char *lathe_shards_hash(const lathe_shards *shards);

/** The source file (borrowed) and the line of record `i` (pair, example). Returns 0 if they are not
 *  known. */
int lathe_shards_where(const lathe_shards *shards, int64_t i, const lathe_source **out_source,
                       int64_t *out_line);

/** The source file, borrowed, and the line of a LATHE_SHARD_LINE of the set. Returns 0 if it is not
 *  known. */
int lathe_shards_line(const lathe_shards *shards, const lathe_shards_set *set, int64_t line,
                      const lathe_source **out_source, int64_t *out_line);

/** Appends what is left out of a set for the reason LATHE_LEFT_*, and the place of the first:
 *  "2 conversations have no message of the assistant: a.jsonl:3, ...". */
void lathe_shards_put_left(const lathe_shards *shards, const lathe_shards_set *set, int32_t reason,
                           lathe_buffer *out);
/** "files", "empty", "no_answer", ...: the reason's key in JSON. */
const char *lathe_left_name(int32_t reason);
/** Appends what the chat template does not write of records that are used (LATHE_UNWRITTEN_*), with
 *  their number and the place of the first. */
void lathe_shards_put_unwritten(const lathe_shards *shards, const lathe_shards_set *set,
                                int32_t what, lathe_buffer *out);
/** Appends what is told of records that are used (LATHE_TOLD_*), with their number and the place of
 *  the first. */
void lathe_shards_put_told(const lathe_shards *shards, const lathe_shards_set *set, int32_t what,
                           lathe_buffer *out);
/** 1 if preparing the data tells it, at each start. */
int lathe_told_at_prepare(int32_t what);
/** "past_template", "seam", ...: its key in JSON. */
const char *lathe_told_name(int32_t what);
/** Appends the fields of the records that nothing reads, by name: "nothing reads the columns
 *  question, system; ...". It has no numbers, so that it is the same for every format of the files.
 *  Returns 1 if one of them has a name that means something in records of other programs, such as
 *  "system"; 0: they describe the records. */
int lathe_shards_put_unread(const lathe_shards_set *set, lathe_buffer *out);
/** "calls", "tools": its key in JSON. */
const char *lathe_unwritten_name(int32_t what);
/** Appends the number of records and the reason in words, without a place. */
void lathe_left_put_number(int32_t reason, int64_t n, lathe_buffer *out);
void lathe_unwritten_put_number(int32_t what, int64_t n, lathe_buffer *out);

/** Input i of the stage (of those that come from columns) of record k; 0 if the shards have
 *  none. */
double lathe_shards_input(const lathe_shards *shards, int64_t k, int32_t i);
/** The JSON of record k (prompts), borrowed; NULL and 0 bytes if the shards have none. */
const char *lathe_shards_record(const lathe_shards *shards, int64_t k, int64_t *out_bytes);
/** UTF-8 bytes of the text that segments [begin, end) were made from; 0 for shards in memory. */
int64_t lathe_shards_text_bytes(const lathe_shards *shards, int64_t begin, int64_t end);

/** First token (in the stream of all segments) of segment i; i = n_segments gives the total. */
int64_t lathe_shards_offset(const lathe_shards *shards, int64_t i);
/** The segment that holds token `at` of the stream, 0 <= at < tokens. */
int64_t lathe_shards_find(const lathe_shards *shards, int64_t at);
/** Checks whether all files are as they were when opened. A reader calls it if the index contains
 *  impossible values. LATHE_E_IO: a file became shorter. LATHE_E_CORRUPT: no file did, so the index
 *  is wrong. LATHE_OK only if no file became shorter and the index is ascending. */
lathe_status lathe_shards_check(const lathe_shards *shards);
/** Sets targets[i] to -1 if token begin + i of the stream (below end) is not a target. Changes
 *  nothing for kinds of rows without a mask. */
void lathe_shards_mask(const lathe_shards *shards, int64_t begin, int64_t end, int32_t *targets);
/** The first target among tokens [begin, end) of the stream; `end` if there is none. */
int64_t lathe_shards_first_target(const lathe_shards *shards, int64_t begin, int64_t end);
/** Copies ids [begin, end) of the stream. LATHE_E_CORRUPT: an id is outside the vocabulary;
 *  LATHE_E_IO: the file became shorter after it was opened. */
lathe_status lathe_shards_read(const lathe_shards *shards, int64_t begin, int64_t end,
                               int32_t *out);

#endif
