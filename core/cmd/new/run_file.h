/* A run file that is being put together: keys of sections, each with where it came from, and
 * remarks on what has no key. */
#ifndef LATHE_CMD_RUN_FILE_H
#define LATHE_CMD_RUN_FILE_H

#include "base/arena.h"
#include "base/buffer.h"

typedef struct lathe_run_key {
    const char *section, *key;
    const char *value;  /* TOML */
    const char *from;   /* what it came from, for the comment beside it; NULL: no comment */
    int32_t is_default; /* 1: nobody asked for it, so that nobody misses it */
} lathe_run_key;

/** Empty when all zeros. Texts live in the arena. */
typedef struct lathe_run_file {
    lathe_arena arena;
    lathe_run_key *keys; /* malloc'ed */
    const char **remarks;
    int32_t n_keys, n_remarks;
    int32_t sets_defaults; /* 1: keys that are set now are defaults */
    lathe_status status;   /* LATHE_E_NOMEM after the first failure */
} lathe_run_file;

/** The key; NULL: it is not set. */
const lathe_run_key *lathe_run_file_find(const lathe_run_file *file, const char *section,
                                         const char *key);
/** Sets a key that is not set. Copies its texts. */
void lathe_run_file_set(lathe_run_file *file, const char *section, const char *key,
                        const char *value, const char *from);
/** Adds a line to the remarks at the end of the file. */
__attribute__((format(printf, 2, 3))) void lathe_run_file_remark(lathe_run_file *file,
                                                                 const char *format, ...);
/** Takes out keys of a section other than "name", and names them in the remarks with `why` unless
 *  they are defaults. keeps returns 1 for a key that stays. */
void lathe_run_file_filter(lathe_run_file *file, const char *section, const char *why,
                           int (*keeps)(void *arg, const char *key), void *arg);
/** Appends the file: sections in the order of the documentation, "name" first in each. */
void lathe_run_file_print(const lathe_run_file *file, lathe_buffer *out);
void lathe_run_file_fini(lathe_run_file *file);

#endif
