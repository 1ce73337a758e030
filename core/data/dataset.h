/* Datasets: what data.datasets names, and the source files of each. */
#ifndef LATHE_DATA_DATASET_H
#define LATHE_DATA_DATASET_H

#include "base/arena.h"
#include "lathe/status.h"

/** What a dataset's files hold. AUTO: JSONL, JSON or CSV when all of its files are named so
 *  (.jsonl .ndjson, .json, .csv .tsv), else TEXT. */
enum {
    LATHE_DATASET_AUTO = -1,
    LATHE_DATASET_TEXT = 0,  /* a file is one document */
    LATHE_DATASET_JSONL = 1, /* one JSON object a line */
    LATHE_DATASET_JSON = 2,  /* one array of objects a file */
    LATHE_DATASET_CSV = 3    /* RFC 4180 with a header row; .tsv: tabs in place of commas */
};
enum {
    LATHE_COLUMN_TEXT = 0,
    LATHE_COLUMN_PROMPT = 1,
    LATHE_COLUMN_CHOSEN = 2,
    LATHE_COLUMN_REJECTED = 3,
    LATHE_N_COLUMNS = 4
};

/** One entry of data.datasets. */
typedef struct lathe_dataset {
    /* A file, a folder (read recursively), or a pattern of * ? [..] and ** (any folders). A file or
     * folder with exactly this name is preferred to the pattern. */
    const char *path;
    int32_t type;                         /* LATHE_DATASET_* */
    const char *columns[LATHE_N_COLUMNS]; /* names in the file; NULL: text, prompt, ... */
    double weight; /* how often each of its rows comes in an epoch; 0 counts as 1 */
} lathe_dataset;

/** Reads the JSON text of data.datasets: [{"path": .., "type": "text"|"jsonl"|"json"|"csv",
 *  "columns": {"text": "content"}, "weight": 2.0}]. Relative paths stay relative to the current
 *  folder. `where` names the place in errors. The result lives in the arena. LATHE_E_CONFIG names
 *  the key. */
lathe_status lathe_datasets_parse(const char *where, const char *json, lathe_arena *arena,
                                  lathe_dataset **out, int64_t *out_n);

/** "text", "prompt", ... */
const char *lathe_column_name(int32_t column);

/** One source file, as it was when it was listed. */
typedef struct lathe_source {
    const char *path;
    int64_t bytes, seconds, nanoseconds; /* size, time of modification */
} lathe_source;

/** A dataset's source files, sorted by path. */
typedef struct lathe_sources {
    const lathe_source *list;
    int64_t n, bytes;
    int32_t type; /* LATHE_DATASET_*, no longer AUTO */
    int32_t reserved;
    char stamp[65];       /* SHA-256 of paths, sizes and times */
    const char *left_out; /* a sentence on the folder's files that are not read; NULL: all are */
} lathe_sources;

/** Lists them, in the arena. Of a folder: text, all files; else those named as the type says.
 *  LATHE_E_NOT_FOUND: no such file, or nothing that the pattern matches. */
lathe_status lathe_sources_list(const lathe_dataset *dataset, lathe_arena *arena,
                                lathe_sources *out);

#endif
