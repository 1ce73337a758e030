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

/** Copies a tree with its texts into the arena. NULL: out of memory. */
lathe_toml_node *lathe__toml_copy(const lathe_toml_node *node, lathe_arena *arena);

#endif
