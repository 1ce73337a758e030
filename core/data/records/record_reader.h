/* The reader: the records of a dataset one after another, from any place on, in bounded memory.
 *
 * Files are read, not mapped, so a file that shrinks meanwhile gives an error with its name instead
 * of a signal. All records of a batch are in one window. The scanner of each format decides where a
 * record ends.
 */
#ifndef LATHE_DATA_RECORD_READER_H
#define LATHE_DATA_RECORD_READER_H

#include "base/hash.h"
#include "base/json/json_record.h"
#include "data/records/dataset.h"
#include "data/records/layout.h"
#include "data/records/record_keys.h"
#include "plug/plugin_instance.h"

#define LATHE_READER_NAMES 3 /* number of skipped files whose names are kept */

/** A place between two records of a dataset: a source file, a byte offset in it, and the line of
 *  that byte (from 1). file = number of files: the end of the dataset. In a file that a plugin
 * reads: the offset is the plugin's, and the line is the number of the next record. record: number
 * of the file's records before the place. */
typedef struct lathe_source_place {
    int64_t file, offset, line, record;
    int64_t total; /* records of the dataset before the place */
} lathe_source_place;

/** A document, a JSON object or a CSV row, unparsed. */
typedef struct lathe_record {
    int64_t begin, n; /* offsets in the reader's data */
    int64_t file, line;
    int64_t number;                /* of the record in its file, from 1 */
    int32_t csv[LATHE_MAX_FIELDS]; /* CSV: where the row has each field of the layouts; -1: none */
    int32_t layout;                /* CSV: LATHE_LAYOUT_* */
    int32_t more;                  /* the document continues in the next record */
    char delimiter;                /* CSV */
    /* CSV: the header row. File of a plugin: the names of its columns, "a, b". Else NULL. */
    const char *header;
    int64_t n_header;
    int32_t n_columns, reserved;
} lathe_record;

typedef struct lathe_reader {
    const lathe_dataset *dataset; /* borrowed, like `sources` */
    const lathe_sources *sources;
    int32_t rows;          /* LATHE_ROWS_*: which columns are required */
    lathe_layouts layouts; /* what the columns are made of */
    int32_t cut_text;      /* 1: long documents are returned in pieces, cut anywhere */
    lathe_source_place at; /* place after the last record */
    int64_t n_skipped;     /* files that are not UTF-8 text */
    int64_t skipped[LATHE_READER_NAMES]; /* indices of the first of them */
    int64_t n_bytes;                     /* bytes read so far */
    /* Bytes of the records of the open file, which a plugin reads; a caller that begins inside a
     * file sets it to those of the records before. */
    int64_t file_bytes;
    const char *data; /* text of the batch */
    const lathe_record *list;
    int64_t n; /* number of records in the batch; 0: end of the dataset */

    /* the following members are private */
    char *window;
    lathe_record *records;
    int64_t capacity, n_records_max;
    int64_t scan, end, hashed; /* offsets in the window: scanned, filled and hashed up to there */
    lathe_sha256 *hash;
    lathe_instance plugin; /* that reads the open file */
    void *opened;          /* the plugin's open file */
    int fd;
    int32_t eof, state; /* state: of the format's scanner, for this file */
    int32_t settled;    /* the place is after a record or at the start of a file */
    int32_t csv[LATHE_MAX_FIELDS], layout, n_columns;
    char delimiter;
    const char *header; /* in the layouts' arena */
    int64_t n_header;
} lathe_reader;

/** Where the record is, for lathe_source_place_text: its line, or its number in an array. */
static inline int64_t lathe_record_at(const lathe_sources *sources, const lathe_record *record)
{
    return sources->list[record->file].is_array ? record->number : record->line;
}

/** Starts at a place. rows: LATHE_ROWS_*. LATHE_E_CONFIG: the files are plain text, which has only
 *  documents, and the rows need columns. */
lathe_status lathe_reader_init(lathe_reader *reader, const lathe_dataset *dataset,
                               const lathe_sources *sources, int32_t rows,
                               const lathe_source_place *begin);
void lathe_reader_fini(lathe_reader *reader);

/** Reads records until `bytes` are passed, at least one. list, n and data are valid until the next
 *  call. The end of a batch does not depend on the sizes in which the disk delivers the bytes.
 *  Errors: LATHE_E_PARSE, LATHE_E_CONFIG (the file lacks a column) name file:line; LATHE_E_IO names
 *  a file that cannot be read or that changed since it was listed. */
lathe_status lathe_reader_batch(lathe_reader *reader, int64_t bytes);

/** 1 if there are no more records. */
int lathe_reader_ended(const lathe_reader *reader);

/** SHA-256 of all bytes read since the start, as 64 digits; call it once, at the end. Checks that
 *  the open file did not change. */
lathe_status lathe_reader_content(lathe_reader *reader, char out[65]);

/* ---- interface between the reader and the scanners of file types ---- */

/** Result of a scanner for the window's text p[0, n). */
typedef struct lathe_scan {
    int64_t used, lines;   /* bytes consumed, and the line ends in them */
    int64_t begin, length; /* the record in them; length -1: none */
    int32_t needs_more;    /* the scanner needs more text to decide; used is then 0 */
    int32_t more;          /* the record continues */
} lathe_scan;

/** Scans p[0, n) for the next record. n is 0 only at the end of the file; the scanner then checks
 *  that the file is complete. */
lathe_status lathe__scan_json(lathe_reader *reader, const char *p, int64_t n, lathe_scan *out);
lathe_status lathe__scan_csv(lathe_reader *reader, const char *p, int64_t n, lathe_scan *out);
/** Prepares the scanner for the open file: whether it is an array or a row of objects. */
lathe_status lathe__json_begin(lathe_reader *reader);
/** Reads the header row of the open file; *out_bytes, *out_lines: its length. */
lathe_status lathe__csv_header(lathe_reader *reader, int64_t *out_bytes, int64_t *out_lines);
/** Refuses the open file if it is of a format that a plugin reads, by its first bytes, and has the
 * name of another format. */
lathe_status lathe__plugin_check_name(lathe_reader *reader);
/** Opens the file with its plugin, at the reader's place; close may be called at any time. */
lathe_status lathe__plugin_open(lathe_reader *reader);
void lathe__plugin_close(lathe_reader *reader);
/** Reads the next record, and the offset after it; *out_text NULL: the file has no more. */
lathe_status lathe__plugin_next(lathe_reader *reader, const char **out_text, int64_t *out_bytes,
                                int64_t *out_offset);
/** Records an error at the reader's place plus `lines` lines. */
__attribute__((format(printf, 4, 5))) lathe_status lathe__reader_error(const lathe_reader *reader,
                                                                       lathe_status code,
                                                                       int64_t lines,
                                                                       const char *format, ...);

/* ---- a record's texts ---- */

/** Memory that is reused from one record to the next. */
typedef struct lathe_field_room {
    char *data;
    int64_t bytes;
} lathe_field_room;

/* How a record gives its columns. */
enum {
    LATHE_FIELDS_TEXTS = 0,
    LATHE_FIELDS_CHAT = 1, /* one conversation, in the field of messages; there are no texts */
    LATHE_FIELDS_LISTS = 2 /* lists: messages, or token ids of a prompt; there are no texts */
    /* Alpaca records of a dataset with a chat template are CHAT if an example is learnt, else LISTS
     * (chat_alpaca.h). */
};

/** The texts of a record's columns. All zeros: empty. */
typedef struct lathe_fields {
    const char *text[LATHE_N_COLUMNS]; /* NULL: the record has no such text */
    int64_t n[LATHE_N_COLUMNS];
    int32_t layout;  /* LATHE_LAYOUT_* of the record */
    int32_t is_chat; /* LATHE_FIELDS_* */
    int32_t is_made; /* 1: `row` is made of texts, and its columns have their usual names */
    const char *row; /* the record as a JSON object; not with TEXTS */
    int64_t n_row;
    /* Fields of the record that are read. Readers of `row` note theirs, unless it is made. */
    lathe_record_uses uses;
    double inputs[LATHE_MAX_STAGE_INPUTS]; /* [n_inputs of the dataset] */
    lathe_json_record json;
    lathe_field_room plain; /* fields whose text in the file has escapes or quotes */
    char *conversation;     /* the conversation that was made of texts; NULL: none yet */
    lathe_field_room made;  /* texts that are made of several fields */
} lathe_fields;

/** Gives an error about the record its file and line, or its number, as the place; returns
 * `status`, which may be LATHE_OK. */
lathe_status lathe_record_error(lathe_status status, const lathe_reader *reader,
                                const lathe_record *record);

/** The texts are valid until the next call. May be called on any thread, each with its own fields.
 *  Errors name file:line. */
lathe_status lathe_fields_read(lathe_fields *fields, const lathe_reader *reader,
                               const lathe_record *record);
/** Gives the next field of the record that holds something and that nothing reads. *i: 0 for the
 *  first one. Returns 1, or 0 at the end. Of a file of a plugin, any column that it was not asked
 *  for; of a CSV file, by its header. */
int lathe_fields_unread(const lathe_fields *fields, const lathe_reader *reader,
                        const lathe_record *record, int64_t *i, lathe_json_string *out);
void lathe_fields_fini(lathe_fields *fields);

/** Writes field `index` of a checked CSV row to out, without quotes (room for n bytes); returns its
 *  length. */
int64_t lathe__csv_field(const char *row, int64_t n, char delimiter, int32_t index, char *out);

#endif
