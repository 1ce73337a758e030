/* Datasets: the entries of data.datasets, and the source files of each. */
#ifndef LATHE_DATA_DATASET_H
#define LATHE_DATA_DATASET_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/toml.h"
#include "lathe/stage.h"
#include "plug/config_keys.h"
#include "plug/registry.h"

/** Type of a dataset's files. AUTO: JSONL, JSON or CSV if all files have names of that type (.jsonl
 *  .ndjson, .json, .csv .tsv), READER if a reader plugin reads files with their names, else TEXT.
 */
enum {
    LATHE_DATASET_AUTO = -1,
    LATHE_DATASET_TEXT = 0,  /* each file is one document */
    LATHE_DATASET_JSONL = 1, /* one JSON object per line */
    LATHE_DATASET_JSON = 2,  /* one array of objects per file */
    LATHE_DATASET_CSV = 3,   /* RFC 4180 with a header row; .tsv: tabs instead of commas */
    LATHE_DATASET_READER = 4 /* what reader plugins read, such as Parquet */
};
enum {
    LATHE_COLUMN_TEXT = 0,
    LATHE_COLUMN_PROMPT = 1,
    LATHE_COLUMN_CHOSEN = 2,
    LATHE_COLUMN_REJECTED = 3,
    LATHE_COLUMN_COMPLETION = 4,
    LATHE_COLUMN_COMPLETIONS = 5, /* a list of answers */
    LATHE_N_COLUMNS = 6
};

/** The field of the records that an input of the stage is read from. */
typedef struct lathe_input_column {
    const char *input, *field;
} lathe_input_column;

/** One entry of data.datasets. Keys of its table are the rows of plug/keys_dataset*.inc. */
typedef struct lathe_dataset {
    /* A file, a folder (read recursively, without hidden files and folders), or a pattern with * ?
     * [..] and ** (any folders). A file or folder with exactly this name has precedence over the
     * pattern. */
    const char *path;
    int32_t type; /* LATHE_DATASET_* */
    /* names of the columns in the file; NULL: text, prompt, ... */
    const char *columns[LATHE_N_COLUMNS];
    const char
        *formats[LATHE_N_COLUMNS]; /* columns made of several fields (format.h); NULL: none */
    double weight;                 /* how often an epoch uses each row; 0 counts as 1 */
    int32_t as_chat;     /* columns that are texts go through the template: 1 yes, -1 no, 0 unset */
    int64_t max_samples; /* number of records from the first on; 0: all */
    /* Field of conversations; NULL: "messages", in records that have no text for the rows. */
    const char *messages;
    /* Renders conversations, borrowed; NULL: there is none, and no_chat says why (NULL: the reason
     * is not known). */
    const struct lathe_chat_template *chat;
    const char *no_chat;
    /* Entries of `columns` whose names are none of the columns above: inputs of the stage. */
    lathe_input_column input_columns[LATHE_MAX_STAGE_INPUTS];
    int32_t n_input_columns;
    /* [n_own] Files and folders of the run itself, which a folder of data leaves out; borrowed. */
    const char *const *own;
    int32_t n_own;
    /* [n_inputs] The inputs of the stage that come from columns (LATHE_INPUT_COLUMN), borrowed. */
    int32_t n_inputs;
    const lathe_stage_input *inputs;
    lathe_registry *registry; /* of the reader plugins, borrowed; NULL: there are none */
} lathe_dataset;

/** The field of a record's messages. */
const char *lathe_dataset_messages(const lathe_dataset *dataset);

/** Reads data.datasets (key "datasets") or data.validation ("validation") of a checked
 *  configuration. The list is in the arena; texts are borrowed from the configuration. *out_n is 0
 *  if the key is unset. LATHE_E_CONFIG: more columns for inputs of a stage than a stage can have.
 */
lathe_status lathe_datasets_read(const lathe_config *config, const char *key, lathe_arena *arena,
                                 lathe_dataset **out, int64_t *out_n);

/** Whether a value of data.datasets or data.validation names the file and nothing else: as a path,
 *  a table, or a list of these. What is no such value is reported when it is read. */
int32_t lathe_datasets_name_only(const lathe_toml_node *value, const char *path);

/** Adds the columns and formats of a dataset to a hash, which names what is made from the
 *  dataset. */
void lathe_dataset_hash_columns(const lathe_dataset *dataset, lathe_sha256 *hash);

/** The field of the records that input i of the stage is read from. */
const char *lathe_dataset_input_field(const lathe_dataset *dataset, int32_t i);

/** "text", "prompt", ... */
const char *lathe_column_name(int32_t column);

/** A source file as it was when it was listed. */
typedef struct lathe_source {
    const char *path;
    int64_t bytes, seconds, nanoseconds; /* size; time of modification */
    const lathe_component *reader;       /* the plugin that reads it; NULL: the core does */
    int32_t is_array;                    /* 1: a JSON array, whose records may share a line */
} lathe_source;

/** Writes the place of a record for messages: "a.jsonl:3", "a.parquet: row 3" for a file that a
 *  plugin reads, or "a.json: record 3" for an array. line: of the line, the row or the record, from
 *  1. Returns out. */
const char *lathe_source_place_text(const lathe_source *source, int64_t line, char *out,
                                    size_t bytes);
/** Gives the thread's error that place, unless it has one in this file (lathe_error_in_record);
 *  returns `status`, which may be LATHE_OK. */
lathe_status lathe_source_error(lathe_status status, const lathe_source *source, int64_t line);

/** A dataset's source files, sorted by path. */
typedef struct lathe_sources {
    const lathe_source *list;
    int64_t n, bytes;
    int32_t type; /* LATHE_DATASET_*, never AUTO */
    int32_t reserved;
    char stamp[65]; /* SHA-256 of paths, sizes and modification times */
    const char
        *left_out; /* a sentence about files that are not read, or not as records; NULL: none */
} lathe_sources;

/** Lists the files, in the arena. In a folder: all files for text, else those with the type's
 *  suffixes. LATHE_E_NOT_FOUND: the file does not exist, or the pattern matches nothing. */
lathe_status lathe_sources_list(const lathe_dataset *dataset, lathe_arena *arena,
                                lathe_sources *out);

#endif
