/* Diagnostics: everything that is wrong with a configuration, each with its place. */
#ifndef LATHE_BASE_DIAG_H
#define LATHE_BASE_DIAG_H

#include "base/arena.h"
#include "base/buffer.h"

enum { LATHE_DIAG_ERROR = 1, LATHE_DIAG_WARNING = 2 };

/** A place in a file or on the command line. line 0: the file (or the override) as a whole. */
typedef struct lathe_place {
    const char *file; /* path, or the override as typed ("--train.seed") */
    int32_t line, column;
} lathe_place;

typedef struct lathe_diag {
    int32_t severity; /* LATHE_DIAG_* */
    lathe_place place;
    const char *message;
    const char *suggestion; /* a word that was probably meant, or NULL */
} lathe_diag;

/** Empty when all zeros. Owns its texts. */
typedef struct lathe_diags {
    lathe_arena arena;
    lathe_diag *items;
    int64_t n, capacity, n_errors;
} lathe_diags;

/** Adds a diagnostic and copies its texts. If memory runs out, it is counted as an error without
 *  text. */
__attribute__((format(printf, 5, 6))) void lathe_diags_add(lathe_diags *diags, int32_t severity,
                                                           const lathe_place *place,
                                                           const char *suggestion,
                                                           const char *format, ...);

/** Sorts by line and column; diagnostics without a line come last. Equal ones keep their order. */
void lathe_diags_sort(lathe_diags *diags);

/** Appends "run.toml:3:7: error: unknown key 'lrr' (did you mean 'lr'?)\n" for each. */
void lathe_diags_print(const lathe_diags *diags, lathe_buffer *out);

/** LATHE_OK without errors; else LATHE_E_CONFIG, with all of them as the thread's message. */
lathe_status lathe_diags_status(lathe_diags *diags);

void lathe_diags_fini(lathe_diags *diags);

#endif
