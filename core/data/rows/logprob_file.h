/* One file of stored log-probabilities: a teacher's most likely tokens at each target of some
 * records of the data.
 *
 * File, little-endian:  header (256 bytes) | entries [n_targets] | pad to 8 | i64
 * offsets[n_records + 1] | u32 checksums[n_records], padded to 8. An entry has the target's tokens,
 * most likely first, u16 or u32 [top_k], their log-probabilities, f16 or f32 [top_k], and that of
 * all other tokens together, f32. Entries have no padding. offsets count entries: record i of the
 * file has entries offsets[i] to offsets[i + 1] - 1, of its targets in order. checksums has the
 * CRC-32C of each record's entries.
 *
 * The header's checksum covers that of the index, and the index those of the entries, so the
 * header's checksum names the content of the whole file.
 */
#ifndef LATHE_DATA_LOGPROB_FILE_H
#define LATHE_DATA_LOGPROB_FILE_H

#include <stdio.h>

#include "base/map.h"

#define LATHE_LOGPROB_VERSION 1
#define LATHE_LOGPROB_MOST_K 65536

/** The first 256 bytes of the file. Hashes are 64 hexadecimal digits without a NUL. */
typedef struct lathe_logprob_header {
    char magic[8]; /* "LATHLOGP" */
    uint32_t version, header_bytes;
    int32_t top_k, id_bytes;         /* id_bytes: 2 or 4 */
    int32_t value_bytes, row_tokens; /* value_bytes: 2 or 4; row_tokens: of a record at most */
    int64_t vocab_size;
    double temperature; /* that the teacher's logits were divided by */
    int64_t first_record, n_records, n_targets;
    int64_t file_bytes;
    char data[64];      /* hash of the shards that the records belong to */
    char made_by[64];   /* hash of the teacher, and of what else its numbers depend on */
    uint32_t index_crc; /* CRC-32C of offsets and checksums */
    uint32_t reserved;  /* 0 */
    char zero[32];
    uint64_t checksum; /* lathe_hash64 of the header up to here */
} lathe_logprob_header;
_Static_assert(sizeof(lathe_logprob_header) == 256, "the header's layout is a file format");

/** A mapped file. */
typedef struct lathe_logprob_file {
    lathe_map map;
    lathe_logprob_header header;
    const uint8_t *entries;
    int64_t entry_bytes;
    const int64_t *offsets;    /* [n_records + 1] */
    const uint32_t *checksums; /* [n_records] */
    char path[512];            /* for errors */
} lathe_logprob_file;

/** Maps a file and checks its header, size and index; `verify`: also all entries.
 *  LATHE_E_CORRUPT names what is wrong. */
lathe_status lathe__logprob_open(const char *path, int32_t verify, lathe_logprob_file *out);
void lathe__logprob_close(lathe_logprob_file *file);

/** Number of targets of record i of the file. */
int64_t lathe__logprob_targets(const lathe_logprob_file *file, int64_t i);
/** Reads the first n targets of record i of the file, after checking all of the record's entries.
 *
 *  ids     i32 [n, top_k]      out  most likely first
 *  values  f32 [n, top_k + 1]  out  log-probabilities of ids, then that of all other tokens
 *  LATHE_E_CORRUPT: a checksum, an id or a number is wrong, or there are fewer targets. */
lathe_status lathe__logprob_read(const lathe_logprob_file *file, int64_t i, int64_t n, int32_t *ids,
                                 float *values);

/** Writes path.tmp.PID, which lathe__logprob_writer_finish renames. */
typedef struct lathe_logprob_writer {
    char path[512], temporary[544];
    FILE *file;
    lathe_logprob_header header;
    int64_t *offsets;
    uint32_t *checksums;
    int64_t capacity; /* records */
    uint8_t *entries; /* of the record that is written */
    int64_t entries_bytes;
} lathe_logprob_writer;

/** `header` has the members from top_k to first_record, data and made_by. */
lathe_status lathe__logprob_writer_init(lathe_logprob_writer *writer, const char *path,
                                        const lathe_logprob_header *header);
/** Appends a record of n targets; ids and values as in lathe__logprob_read. f16 rounds to nearest;
 *  what is below its lowest number becomes that. LATHE_E_NONFINITE: a value is NaN, infinite or
 *  above 0. */
lathe_status lathe__logprob_writer_put(lathe_logprob_writer *writer, int64_t n, const int32_t *ids,
                                       const float *values);
/** Makes the file durable under its final name; *out_checksum: of its header. */
lathe_status lathe__logprob_writer_finish(lathe_logprob_writer *writer, uint64_t *out_checksum);
/** Removes an unfinished file. May be called after finish. */
void lathe__logprob_writer_fini(lathe_logprob_writer *writer);

#endif
