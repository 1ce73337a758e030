/* Diagnostics: everything that is wrong with a configuration, each with its place. */
#ifndef LATHE_BASE_DIAG_H
#define LATHE_BASE_DIAG_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"

enum { LATHE_DIAG_ERROR = 1, LATHE_DIAG_WARNING = 2 };

typedef struct lathe_diag {
    int32_t severity; /* LATHE_DIAG_* */
    lathe_place place;
    const char *message;
    const char *suggestion; /* a word that was probably meant, or NULL */
    lathe_place inner;      /* in another file, such as the record of a dataset; file NULL: none */
    const char *key; /* what the error is about, below the key at `place`, such as "columns.text";
                      * NULL: nothing */
    int64_t order;   /* how many were added before it */
} lathe_diag;

/** Empty when all zeros. Owns its texts. */
typedef struct lathe_diags {
    lathe_arena arena;
    lathe_diag *items;
    int64_t n, capacity, n_errors;
    uint64_t *seen; /* hashes of what is in the list, in a table of n_seen slots; 0: a free slot */
    int64_t n_seen;
} lathe_diags;

/** Adds a diagnostic and copies its texts, unless an equal one was added before. If memory runs
 * out, n_errors still counts it, but its text is lost. */
__attribute__((format(printf, 5, 6))) void lathe_diags_add(lathe_diags *diags, int32_t severity,
                                                           const lathe_place *place,
                                                           const char *suggestion,
                                                           const char *format, ...);

/** Adds the place in another file, which the message names too, to the last diagnostic. */
void lathe_diags_inner(lathe_diags *diags, const lathe_place *inner);

/** Adds the key to the last diagnostic. */
void lathe_diags_about(lathe_diags *diags, const char *about);

/** Sorts by line and column; diagnostics without a line come last. Equal ones keep their order. */
void lathe_diags_sort(lathe_diags *diags);

/** Appends "run.toml:3:7: error: unknown key 'lrr' (did you mean 'lr'?)\n" for each. */
void lathe_diags_print(const lathe_diags *diags, lathe_buffer *out);

/** LATHE_OK without errors; else LATHE_E_CONFIG, with all of them as the thread's message, and with
 * a copy of them as data (lathe_error_diags). */
lathe_status lathe_diags_status(lathe_diags *diags);

/** The list of diagnostics that the thread's last error stands for; NULL: it stands for none.
 * Borrowed until the thread's next error. */
const lathe_diags *lathe_error_diags(void);

void lathe_diags_fini(lathe_diags *diags);

#endif
