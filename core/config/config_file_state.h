/* The content of a run file, for the files of this room alone. */
#ifndef LATHE_CONFIG_CONFIG_FILE_STATE_H
#define LATHE_CONFIG_CONFIG_FILE_STATE_H

#include "config/config_file.h"

struct lathe_run_file {
    lathe_arena arena;
    const char *path;      /* NULL: no file */
    lathe_toml_node *root; /* NULL: not read yet. Never changed: configurations copy it. */
    lathe_edits options;   /* of the command line */
};

/** The tree of the file, read at the first call. Errors: those of lathe_toml_load_file. */
lathe_status lathe__run_file_root(lathe_run_file *file, const lathe_toml_node **out);

/** Copies a tree with its texts into the arena. NULL: out of memory. */
lathe_toml_node *lathe__toml_copy(const lathe_toml_node *node, lathe_arena *arena);

#endif
