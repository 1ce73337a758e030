/* Checks a TOML table against a list of fields. Finds all errors, not only the first. */
#ifndef LATHE_PLUG_SCHEMA_CHECK_H
#define LATHE_PLUG_SCHEMA_CHECK_H

#include "base/diag.h"
#include "base/toml.h"
#include "lathe/schema.h"
#include "plug/schema_value.h"

/** Where the table is, for messages. */
typedef struct lathe_schema_scope {
    const char *section;    /* "optimizer": messages name optimizer.lr */
    const char *skipped;    /* a key that is checked elsewhere ("name"), or NULL */
    lathe_place place;      /* place of the table: its file for all keys, itself for missing keys */
    int32_t ignore_unknown; /* 1: unknown keys are allowed (another candidate has them) */
    /** Appends to `out` which other plugins have the key, or nothing. NULL: not known. */
    void (*others)(void *arg, const char *key, lathe_buffer *out);
    void *arg;
} lathe_schema_scope;

/** Checks `table` (NULL: empty) and fills out_values[n_fields] in schema order, in `arena`.
 *  Values with errors are unset. Errors go to diags; the status is LATHE_E_NOMEM or LATHE_OK. */
lathe_status lathe_schema_check(const lathe_schema_scope *scope, const lathe_toml_node *table,
                                const lathe_field *fields, int32_t n_fields, lathe_arena *arena,
                                lathe_diags *diags, lathe_value **out_values);

/** Checks a list of fields itself: keys, types, defaults. LATHE_E_PLUGIN describes the error. */
lathe_status lathe_schema_validate(const lathe_field *fields, int32_t n_fields);

/** Index of a key; -1: none. */
int32_t lathe_schema_index(const lathe_field *fields, int32_t n_fields, const char *key);

/** Writes "optimizer.lr" for a key that a core section has, under that name or a synonym
 *  ("learning_rate"). Returns 0 if no section has it. */
int lathe_schema_key_elsewhere(const char *key, char *out, int64_t bytes);

/** Adds the error "unknown key", with the nearest key of the schema. */
void lathe_schema_unknown(const lathe_schema_scope *scope, const lathe_toml_node *node,
                          const lathe_field *fields, int32_t n_fields, lathe_diags *diags);

/** The place of a key, and of a value; `file` where the node comes from a file. */
lathe_place lathe_key_place(const char *file, const lathe_toml_node *node);
lathe_place lathe_value_place(const char *file, const lathe_toml_node *node);

#endif
