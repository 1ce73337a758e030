/* The reader: a dataset's records, one after the other, from any place on, in bounded memory.
 *
 * Files are read, not mapped: a file that shrinks meanwhile is an error with its name and no
 * signal. A batch of records stands in one window; what a text, a line or a row is, the formats'
 * scanners say.
 */
#ifndef LATHE_DATA_READER_H
#define LATHE_DATA_READER_H

#include "base/hash.h"
#include "base/json_record.h"
#include "data/dataset.h"

#define LATHE_READER_NAMES 3 /* skipped files that are named */

/** A place between two records of a dataset: a source file, a byte in it, that byte's line (from
 *  1). file = number of files: the end of the dataset. */
typedef struct lathe_source_place {
    int64_t file, offset, line;
} lathe_source_place;

/** A document, a JSON object or a CSV row, as it stands in the file. */
typedef struct lathe_record {
    int64_t begin, n; /* in the reader's data */
    int64_t file, line;
    int32_t column[LATHE_N_COLUMNS]; /* CSV: field of each column; -1: none */
    int32_t more;                    /* the document goes on in the next record */
    char delimiter;                  /* CSV */
} lathe_record;

typedef struct lathe_reader {
    const lathe_dataset *dataset; /* borrowed, as sources */
    const lathe_sources *sources;
    int32_t rows;                        /* LATHE_ROWS_*: which columns must be there */
    int32_t cut_text;                    /* 1: long documents come in pieces, cut anywhere */
    lathe_source_place at;               /* after the last record */
    int64_t n_skipped;                   /* files that are no UTF-8 text */
    int64_t skipped[LATHE_READER_NAMES]; /* indices of the first of them */
    int64_t n_bytes;                     /* passed so far */
    const char *data;                    /* of the batch */
    const lathe_record *list;
    int64_t n; /* records of the batch; 0: the dataset's end */

    /* the rest is the reader's own */
    char *window;
    lathe_record *records;
    int64_t capacity, n_records_max;
    int64_t scan, end, hashed; /* window: scanned to, filled to, hashed to */
    lathe_sha256 *hash;
    int fd;
    int32_t eof, state; /* state: of the format's scanner in this file */
    int32_t settled;    /* the place is after a record or at a file's start */
    int32_t column[LATHE_N_COLUMNS], n_columns;
    char delimiter;
} lathe_reader;

/** Starts at a place. rows: LATHE_ROWS_*. LATHE_E_CONFIG: pairs of text files. */
lathe_status lathe_reader_init(lathe_reader *reader, const lathe_dataset *dataset,
                               const lathe_sources *sources, int32_t rows,
                               const lathe_source_place *begin);
void lathe_reader_fini(lathe_reader *reader);

/** Reads records until `bytes` are passed, at least one: list, n and data are good until the next
 *  call. The end of a batch does not depend on how the bytes come from the disk.
 *  Errors  LATHE_E_PARSE, LATHE_E_CONFIG (a column that the file lacks) name file:line;
 *          LATHE_E_IO names a file that cannot be read or that changed since it was listed. */
lathe_status lathe_reader_batch(lathe_reader *reader, int64_t bytes);

/** 1 when there are no more records. */
int lathe_reader_ended(const lathe_reader *reader);

/** SHA-256 of what was read since the start, as 64 digits; once, at the end. Checks that the open
 *  file did not change. */
lathe_status lathe_reader_content(lathe_reader *reader, char out[65]);

/* ---- between the reader and its formats ---- */

/** What a scanner found at the window's text p[0, n). */
typedef struct lathe_scan {
    int64_t used, lines;   /* passed, and the line ends in it */
    int64_t begin, length; /* the record in it; length -1: none */
    int32_t needs_more;    /* undecided: needs more text; used is 0 then */
    int32_t more;          /* the record goes on */
} lathe_scan;

/** n = 0 only at the file's end, where the scanner checks that the file is whole. */
lathe_status lathe__scan_json(lathe_reader *reader, const char *p, int64_t n, lathe_scan *out);
lathe_status lathe__scan_csv(lathe_reader *reader, const char *p, int64_t n, lathe_scan *out);
/** Reads the header row of the open file; *out_bytes, *out_lines: its length. */
lathe_status lathe__csv_header(lathe_reader *reader, int64_t *out_bytes, int64_t *out_lines);
/** An error at the reader's place, `lines` further on. */
__attribute__((format(printf, 4, 5))) lathe_status lathe__reader_error(const lathe_reader *reader,
                                                                       lathe_status code,
                                                                       int64_t lines,
                                                                       const char *format, ...);

/* ---- a record's texts ---- */

/** The texts of one record's columns. All zeros is empty. */
typedef struct lathe_fields {
    const char *text[LATHE_N_COLUMNS]; /* NULL: the record has none */
    int64_t n[LATHE_N_COLUMNS];
    lathe_json_record json;
    char *scratch; /* texts that are written otherwise in the file */
    int64_t scratch_bytes;
} lathe_fields;

/** Good until the next call. Any thread, with fields of its own. Errors name file:line. */
lathe_status lathe_fields_read(lathe_fields *fields, const lathe_reader *reader,
                               const lathe_record *record);
void lathe_fields_fini(lathe_fields *fields);

/** Field `index` of a checked CSV row, unquoted into out (room for n bytes); returns its length. */
int64_t lathe__csv_field(const char *row, int64_t n, char delimiter, int32_t index, char *out);

#endif
