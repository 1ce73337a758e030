/* The run file and the options of the command line, read and parsed once, and the settings that
 * Lathe itself puts on top of them.
 *
 * A run is decided by trying settings: with another method, smaller micro-batches, as one of N
 * ranks. Each try makes a configuration (lathe_config_make) of the same run file and a list of
 * edits; nothing is written as text and parsed again, and the file is opened once.
 *
 * Threads: one at a time; configurations made of it may be read on others.
 */
#ifndef LATHE_CONFIG_CONFIG_FILE_H
#define LATHE_CONFIG_CONFIG_FILE_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/toml.h"
#include "lathe/status.h"

/** An option --key value, e.g. "optimizer.lr", "2e-5". The value is a TOML literal, or else a
 *  string. */
typedef struct lathe_override {
    const char *key, *value;
} lathe_override;

/** Who decided a setting that is not in the run file. */
enum {
    LATHE_BY_COMMAND = 1, /* the user, on the command line */
    LATHE_BY_FOLDER = 2,  /* the folder of the model or adapter with which the run begins */
    LATHE_BY_AUTO = 3,    /* the choice of a method for adapter.name = "auto" */
    LATHE_BY_TRIAL = 4    /* a plan that is made to be compared with others */
};

/** A setting on top of the run file. */
typedef struct lathe_edit {
    const char *key; /* "section.key" */
    /* With an origin for messages: the option that would set it, "--section.key", or the folder
     * that remembers it. A configuration copies the value. */
    const lathe_toml_node *value;
    int32_t by; /* LATHE_BY_* */
} lathe_edit;

/** Settings in the order in which they apply: the last of a key counts. Empty when all zeros. */
typedef struct lathe_edits {
    lathe_arena arena; /* keys and values */
    lathe_edit *list;  /* in the arena */
    int32_t n, capacity;
    lathe_status status; /* of all calls so far: LATHE_OK or LATHE_E_NOMEM; checked at the end */
} lathe_edits;

/** Add section.key with a value, and copy the texts. */
void lathe_edits_int(lathe_edits *edits, int32_t by, const char *key, int64_t value);
void lathe_edits_bool(lathe_edits *edits, int32_t by, const char *key, int32_t value);
void lathe_edits_text(lathe_edits *edits, int32_t by, const char *key, const char *value);
/** A TOML literal ("[1, 2]", "2e-5"); a text that is none becomes a string. */
void lathe_edits_literal(lathe_edits *edits, int32_t by, const char *key, const char *literal);

/** Adds each option of a command line. */
void lathe_edits_options(lathe_edits *edits, const lathe_override *options, int64_t n);
/** Parses [n] texts "section.key=value", as options of a command line. LATHE_E_ARG: a text is NULL
 *  or has another form; LATHE_E_NOMEM. */
lathe_status lathe_edits_parse(lathe_edits *edits, const char *const *texts, int32_t n);
/** Adds a copy of a value of another file, with the option as its place; returns the copy, or NULL
 *  without memory. */
lathe_toml_node *lathe_edits_node(lathe_edits *edits, int32_t by, const char *key,
                                  const lathe_toml_node *value);
/** Adds a copy of a value whose place in messages is `origin`, such as another option. */
void lathe_edits_node_of(lathe_edits *edits, int32_t by, const char *key,
                         const lathe_toml_node *value, const char *origin);
/** Replaces the value of edit number `at` by a text. */
void lathe_edits_set_text(lathe_edits *edits, int32_t at, const char *value);

/** Adds a copy of an edit. */
void lathe_edits_add(lathe_edits *edits, const lathe_edit *one);

/** Adds copies of the edits of another list, but those decided `except` (0: all). */
void lathe_edits_take(lathe_edits *edits, const lathe_edits *from, int32_t except);

/** Whether one of them, decided `by`, has the key; by 0: whoever decided it. */
int32_t lathe_edits_have(const lathe_edits *edits, int32_t by, const char *key);

/** Appends "--section.key value" for each, as on the command line. */
void lathe_edits_put(const lathe_edits *edits, lathe_buffer *out);

void lathe_edits_fini(lathe_edits *edits);

typedef struct lathe_run_file lathe_run_file;

/** Keeps the path (NULL: no file) and copies of the options (NULL: none). The file itself is read
 *  when the first configuration is made of it. */
lathe_status lathe_run_file_create(const char *path, const lathe_edits *options,
                                   lathe_run_file **out);

/** The file as it was parsed, without options; reads it now if that was not done before. It belongs
 *  to `file`. Errors as lathe_toml_load_file. */
lathe_status lathe_run_file_tree(lathe_run_file *file, const lathe_toml_node **out);

void lathe_run_file_destroy(lathe_run_file *file); /* NULL is allowed */

/** Path of the file; NULL: there is none. */
const char *lathe_run_file_path(const lathe_run_file *file);

#endif
