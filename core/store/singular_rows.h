/* Computes parameters that begin with the singular vectors of a weight (LATHE_INIT_SINGULAR_A and
 * LATHE_INIT_SINGULAR_B). */
#ifndef LATHE_STORE_SINGULAR_ROWS_H
#define LATHE_STORE_SINGULAR_ROWS_H

#include "store/store.h"

/** Sets these rows from the weights rows[init_from], which must be in the store, as computation
 *  reads them. derived_only: 1 sets those alone that are computed at each load. Decomposes as many
 *  weights at a time as there are threads. Bitwise repeatable. LATHE_E_NUMERIC names a weight that
 *  is not finite; LATHE_E_NOMEM. */
lathe_status lathe_singular_rows_fill(const lathe_store *store, int32_t derived_only);

#endif
