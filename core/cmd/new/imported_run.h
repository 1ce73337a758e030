/* Lathe's run file for the run file of another trainer. */
#ifndef LATHE_CMD_IMPORTED_RUN_H
#define LATHE_CMD_IMPORTED_RUN_H

#include <jansson.h>

#include "cmd/new/run_file.h"
#include "plug/registry.h"

/** A file that is imported. */
typedef struct lathe_import {
    const char *path;
    char program;      /* LATHE_FOREIGN_*; 0: found by its keys */
    const char *stage; /* Lathe's name; NULL: found by its keys */
    lathe_registry *registry;
    json_t *root;
    lathe_run_file *out;
    int32_t n_unknown; /* keys that the trainer does not have either */
} lathe_import;

/** Name of a trainer for people: "LLaMA-Factory". */
const char *lathe_program_name(char program);
/** The trainer that --from names: llamafactory, trl, axolotl or xorl, in any case; 0: none. */
char lathe_program_of(const char *name);

/** Reads io->path, finds trainer and stage where they are not set, and fills io->out: each key of
 * the file by its row of plug/foreign_keys.h, and the trainer's own defaults for what the file
 * leaves out and Lathe's default differs in. What has no equal is a remark. Call lathe_import_fini
 * also after a failure. LATHE_E_CONFIG: nothing tells whose file it is, or of which stage. */
lathe_status lathe_import_read(lathe_import *io);
void lathe_import_fini(lathe_import *io);

/* ---- shared inside the room ---- */

/** Sets data.datasets or data.validation (`key`) from what the file names (imported_data.c). */
void lathe__import_data(lathe_import *io, const char *key, const char *from, const json_t *value);
/** Appends a value as TOML; an object is an inline table. */
void lathe__import_value(const json_t *value, lathe_buffer *out);

#endif
