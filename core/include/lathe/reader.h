/* The interface of reader plugins: how the files of a format give records.
 *
 * A reader hands over one record at a time as a JSON object, with the columns of the file as its
 * members. The core parses the object as it parses a line of a JSONL file, so every rule for
 * columns holds for every format.
 *
 * A null in the file is a member that the object does not have: formats with a fixed set of columns
 * write null where a JSON record would leave the column out.
 *
 * A record is found again by its offset, a number that the reader chooses, and its number in the
 * file. The core continues at any record, after a crash or in the next part of its cache. Reading
 * is bounded in memory: a reader keeps a part of the file, not the whole file.
 *
 * Threads: open(), column(), next() and close() of one opened file run on one thread at a time;
 * several files may be open on several threads.
 */
#ifndef LATHE_READER_H
#define LATHE_READER_H

#include "host.h"

#define LATHE_READER_REVISION 1

#define LATHE_MOST_COLUMNS 65536

/** The first bytes of the files of a format. Plain data. */
typedef struct lathe_reader_magic {
    const char *format; /* "Parquet" */
    const char *bytes;  /* may hold NUL */
    int32_t n_bytes;    /* 1 to 16 */
    int32_t reserved;   /* 0 */
} lathe_reader_magic;
LATHE_ABI_SIZE(lathe_reader_magic, 24);

/** A file to read, and the place to begin at. Borrowed until close(). */
typedef struct lathe_reader_file {
    uint32_t size;
    int32_t fd;    /* open; read it with pread(). It stays the core's: do not close it, and do not
                      move its file offset */
    int64_t bytes; /* length of the file */
    const char *path; /* for decisions by name; the core puts it before every message */
    int64_t offset;   /* 0: the first record; else the offset after the record before */
    int64_t row;      /* number of the record to begin at, from 1 */
    /* [n_columns] The columns that are used. A reader should not spend time on others. A column
     * that the file does not have is no error: the core reports it. */
    const char *const *columns;
    int32_t n_columns;
    int32_t wants_all; /* 1: records also have the other columns of the file, as far as they have a
                          form in JSON */
} lathe_reader_file;
LATHE_ABI_SIZE(lathe_reader_file, 56);

/** A record. */
typedef struct lathe_reader_row {
    const char *text; /* a JSON object in UTF-8, valid until the next call for the file; NULL: the
                         file has no more records */
    int64_t bytes;
    int64_t offset; /* above 0; open() with it and the next number continues after this record */
} lathe_reader_row;
LATHE_ABI_SIZE(lathe_reader_row, 24);

typedef struct lathe_reader_v1 {
    uint32_t size;
    uint32_t revision;
    const char *suffixes;             /* of its files, separated by spaces: ".parquet .arrow" */
    const lathe_reader_magic *magics; /* [n_magics] */
    int32_t n_magics;
    int32_t reserved; /* 0 */
    /** [any] Opens a file. *out_opened is passed to the other functions.
     *  Errors  LATHE_E_PARSE: the file is not of the reader's formats, or it is damaged.
     *          LATHE_E_UNSUPPORTED: a column that is used has a type without a form in JSON; the
     *          message names column and type. LATHE_E_IO, LATHE_E_NOMEM. Recorded with host->fail,
     *          without the path. */
    lathe_status (*open)(void *self, const lathe_reader_file *file, void **out_opened);
    /** [pure] The name of column i of the file, for messages; NULL: there are not as many. At most
     *  LATHE_MOST_COLUMNS, or the file is refused. */
    const char *(*column)(const void *opened, int32_t i);
    /** [any] Reads the next record. Errors as open(); the core puts the record's number before the
     *  message. */
    lathe_status (*next)(void *opened, lathe_reader_row *out);
    /** [any] Frees an opened file; NULL is allowed. */
    void (*close)(void *opened);
} lathe_reader_v1;
LATHE_ABI_SIZE(lathe_reader_v1, 64);

#endif
