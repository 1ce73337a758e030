/* Computes parameters that begin with the singular vectors of a weight (LATHE_INIT_SINGULAR_* and
 * LATHE_INIT_MINOR_*). */
#ifndef LATHE_EXEC_SINGULAR_ROWS_H
#define LATHE_EXEC_SINGULAR_ROWS_H

#include "exec/store/store.h"

enum {
    LATHE_SINGULAR_DERIVED = 0, /* rows that are computed at each load */
    LATHE_SINGULAR_LEADING = 1, /* these, and rows with LATHE_INIT_SINGULAR_* */
    LATHE_SINGULAR_ALL = 2      /* those with LATHE_INIT_MINOR_*, too, which a file has later */
};

/** Sets these rows from the weights rows[init_from], which must be in the store, as computation
 *  reads them. which: LATHE_SINGULAR_*. Decomposes as many
 *  weights at a time as there are threads. Bitwise repeatable. LATHE_E_NUMERIC names a weight that
 *  is not finite; LATHE_E_CONFIG one that has too few vectors; LATHE_E_NOMEM. */
lathe_status lathe_singular_rows_fill(const lathe_store *store, int32_t which);

#endif
