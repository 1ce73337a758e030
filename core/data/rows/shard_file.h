/* One shard: the layout of its file, opening with checks, and writing. */
#ifndef LATHE_DATA_SHARD_FILE_H
#define LATHE_DATA_SHARD_FILE_H

#include <stdio.h>

#include "base/buffer.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/map.h"
#include "data/records/dataset.h"
#include "data/records/record_reader.h"
#include "tokenizer/encode/text_loss.h"

#define LATHE_SHARD_VERSION 15
#define LATHE_SHARD_CHUNK 4096 /* number of ids written at once */

/** A line of a dataset's source files: the number of the file, and the line in it, or the number of
 *  the record for a file with one array. */
#define LATHE_SHARD_LINE(file, line) ((int64_t)(file) << 40 | (line))
#define LATHE_SHARD_LINE_FILE(x) ((x) >> 40)
#define LATHE_SHARD_LINE_LINE(x) ((x) & ((1LL << 40) - 1))

/* Why a file or record is left out. */
enum {
    LATHE_LEFT_FILE = 0,         /* a text file that is not UTF-8, or has a NUL */
    LATHE_LEFT_EMPTY = 1,        /* no text, or no completion */
    LATHE_LEFT_NO_ANSWER = 2,    /* a conversation without a message of the assistant */
    LATHE_LEFT_UNKNOWN_ROLE = 3, /* the same, and a message has a role that is not usual */
    LATHE_LEFT_MASKED = 4,       /* a conversation in which the template marks nothing to learn */
    LATHE_LEFT_CALLS = 5,   /* an answer is only calls, which the chat template does not write */
    LATHE_LEFT_PROMPTS = 6, /* a pair whose chosen and rejected have different prompts */
    LATHE_LEFT_MUTED = 7,   /* a conversation whose messages say that no answer is learnt */
    LATHE_N_LEFT = 8
};

/* Parts of a used record that the chat template does not write. */
enum {
    LATHE_UNWRITTEN_CALLS = 0,
    LATHE_UNWRITTEN_TOOLS = 1,
    LATHE_UNWRITTEN_DOCUMENTS = 2,
    LATHE_N_UNWRITTEN = 3
};

/* Facts about used records that the user is told. */
enum {
    LATHE_TOLD_PAST_TEMPLATE = 0, /* prompts as texts, which a chat template did not write */
    LATHE_TOLD_SEAM = 1,          /* no white space between the texts of prompt and completion */
    LATHE_TOLD_NO_PROMPT = 2, /* pairs of texts whose common beginning is empty, or cuts a word */
    LATHE_TOLD_BEGUN = 3,     /* prompts that end with a message of the assistant */
    LATHE_TOLD_CONTINUED = 4, /* the same, and the model continues it */
    LATHE_TOLD_RECUT = 5,     /* the last token of the prompt merges with the completion */
    LATHE_TOLD_SPACES = 6,    /* those of RECUT whose prompt ends with a space */
    LATHE_TOLD_DATE = 7,      /* the chat template may write the date */
    LATHE_TOLD_JSON = 8,      /* a text is the JSON of a list of messages */
    LATHE_TOLD_MARKS = 9,     /* messages that are not to be learnt, where that has no effect */
    LATHE_TOLD_OTHERS = 10,   /* messages of other roles that are to be learnt */
    LATHE_N_TOLD = 11
};

enum { LATHE_UNREAD_COLUMNS = 12 };

/** Some records, and the first one's LATHE_SHARD_LINE. */
typedef struct lathe_record_count {
    int64_t n, first;
} lathe_record_count;

/** Records with a field that nothing reads. */
typedef struct lathe_unread_column {
    char name[48]; /* cut if it is longer; "": none */
    lathe_record_count count;
} lathe_unread_column;

/** Counts of records, kept in shards. */
typedef struct lathe_record_counts {
    int64_t n_chats;              /* records that a chat template has rendered */
    int64_t n_known;              /* records that have a layout known from another program */
    int64_t n_equal, first_equal; /* pairs whose chosen and rejected are equal; the first one */
    lathe_record_count left[LATHE_N_LEFT];           /* left out, by reason */
    lathe_record_count unwritten[LATHE_N_UNWRITTEN]; /* used without it */
    char role[32]; /* the role of the first record of LATHE_LEFT_UNKNOWN_ROLE; "": none */
} lathe_record_counts;

/** Facts about used records, kept at the end of shards, so that each start tells them. */
typedef struct lathe_record_notes {
    lathe_record_count told[LATHE_N_TOLD];
    lathe_unread_column unread[LATHE_UNREAD_COLUMNS]; /* the first ones, in the order of records */
    lathe_record_count unread_others;                 /* fields beyond those */
    int64_t n_skipped, skipped[LATHE_READER_NAMES];   /* files that are no text; the first ones */
    lathe_text_loss loss; /* bytes of the text for which the tokenizer has no token */
} lathe_record_notes;

/** The first 720 bytes of the file. Hashes are 64 hexadecimal digits without a NUL. */
typedef struct lathe_shard_header {
    char magic[8]; /* "LATHSHRD" */
    uint32_t version, header_bytes;
    int32_t rows, token_bytes; /* rows: LATHE_ROWS_*; token_bytes: 2 or 4 */
    int32_t eos, reserved;
    int64_t vocab_size, n_tokens, n_segments, n_skipped;
    int64_t offsets_at, file_bytes;
    char key[64];          /* hash of tokenizer, kind of rows, dataset type, columns, path */
    char stamp[64];        /* hash of path, size and modification time of every source file */
    char content[64];      /* SHA-256 of the source files' bytes */
    char payload[64];      /* SHA-256 of everything after the header */
    int64_t text_bytes;    /* UTF-8 bytes of all text that was tokenised */
    int64_t source_bytes;  /* bytes of the source files that this shard covers */
    int32_t part, is_last; /* number of this shard in its dataset; 1: it is the last one */
    lathe_source_place begin, end; /* the range of the source files that it covers */
    lathe_record_counts counts;
    int64_t n_inputs;     /* inputs of the stage that each record has a value of */
    int64_t record_bytes; /* bytes of the records as JSON; 0: the kind of rows keeps none */
    char zero[16];
    uint64_t checksum; /* lathe_hash64 of the header up to here */
} lathe_shard_header;
_Static_assert(sizeof(lathe_shard_header) == 720, "the shard header's layout is a file format");

/** Segments of ids, mapped or in memory. */
typedef struct lathe_shard {
    lathe_map map;          /* data is NULL if the ids are in memory */
    void *memory;           /* malloc'ed; NULL if mapped */
    const void *ids;        /* u16 or u32 [n_tokens] */
    const int64_t *offsets; /* [n_segments + 1] */
    const int64_t *sizes;   /* [n_segments] bytes of the segment's text; NULL: unknown */
    /* [(n_tokens + 63) / 64] bit i: token i is a target; NULL: the kind of rows has no mask */
    const uint64_t *mask;
    const int64_t *lines; /* [n_segments / segments of a record] LATHE_SHARD_LINE; NULL: unknown */
    int64_t n_tokens, n_segments;
    const double *inputs; /* [records][n_inputs]; NULL: none */
    const int64_t
        *record_ends; /* [records] where each record's JSON ends in `records`; NULL: none */
    const char *records;
    lathe_record_counts counts; /* as in the header */
    lathe_record_notes notes;
    int32_t n_inputs;
    int64_t first_token, first_segment; /* tokens and segments before this shard */
    int64_t n_skipped, text_bytes;
    int32_t token_bytes;
    char path[512]; /* for errors */
    char payload[65];
} lathe_shard;

/** Adds records that come after those of *to. */
void lathe__record_count_add(lathe_record_count *to, const lathe_record_count *from);

/** Adds counts. first_record: number of the records before those of *from. */
void lathe__record_counts_add(lathe_record_counts *to, const lathe_record_counts *from,
                              int64_t first_record);
void lathe__record_notes_add(lathe_record_notes *to, const lathe_record_notes *from);
/** Counts a record that has a field which nothing reads. */
void lathe__unread_column_add(lathe_record_notes *to, const char *name,
                              const lathe_record_count *count);

/** 1 if this is the name of a shard file: "shard-....bin". */
int lathe__shard_is_name(const char *name);

/** Reads and checks only the header. *out_current is 0 if there is no file or it has another
 *  version; LATHE_E_CORRUPT describes the damage of a damaged file. */
lathe_status lathe__shard_peek(const char *path, lathe_shard_header *out, int *out_current);

/** Maps the file and checks header, sizes and index; with `verify` also the payload's SHA-256. */
lathe_status lathe__shard_open(const char *path, int32_t verify, lathe_shard *out);
void lathe__shard_close(lathe_shard *shard);

/** Writes path.tmp.PID, which lathe__shard_writer_finish renames. One writer per path at a time. */
typedef struct lathe_shard_writer {
    char path[512], temporary[544];
    FILE *file;
    lathe_sha256 *hash;
    int64_t *offsets, *sizes;
    int64_t capacity;
    uint64_t *mask;        /* NULL: this kind of rows has no mask */
    int64_t mask_capacity; /* words */
    int64_t *lines;        /* of each segment; that of a record's first segment is written */
    double *inputs;        /* [records][n_inputs] */
    int64_t *record_ends;  /* [records] */
    lathe_buffer records;
    int64_t records_max; /* records that `inputs` and `record_ends` have room for */
    int32_t open;        /* the last segment continues */
    int32_t is_masked;   /* 1: this kind of rows has a mask */
    union {
        uint16_t u16[LATHE_SHARD_CHUNK];
        int32_t i32[LATHE_SHARD_CHUNK];
    } buffer; /* ids that are not written yet */
    lathe_shard_header header;
    lathe_record_notes notes;
} lathe_shard_writer;

/** In `header`, rows, token_bytes, eos, vocab_size, n_inputs, key and stamp are set. */
lathe_status lathe__shard_writer_init(lathe_shard_writer *writer, const char *path,
                                      const lathe_shard_header *header);
/** A run of ids that belongs to one segment. */
typedef struct lathe_shard_piece {
    const int32_t *ids;
    int64_t n, text_bytes; /* ids, and the bytes of the text that they were made from */
    int32_t more;          /* 1: the segment continues in the next piece */
    int32_t is_context;    /* 1: no id is a target (for kinds of rows with a mask) */
    int64_t line;          /* LATHE_SHARD_LINE of its record */
    const double *inputs;  /* [n_inputs] of its record; read when a record begins */
    const char *record;    /* its record as JSON, where the kind of rows keeps it; NULL: none */
    /* for record_pieces.h: where the inputs and the record are in lathe_pieces */
    int64_t first_input, json, json_bytes;
} lathe_shard_piece;

/** Appends the piece to the open segment, or to a new one. */
lathe_status lathe__shard_writer_put(lathe_shard_writer *writer, const lathe_shard_piece *piece);
/** Makes the file durable under its final name. content: 64 digits. */
lathe_status lathe__shard_writer_finish(lathe_shard_writer *writer, const char *content);
/** Removes an unfinished file. May be called after finish. */
void lathe__shard_writer_fini(lathe_shard_writer *writer);

#endif
