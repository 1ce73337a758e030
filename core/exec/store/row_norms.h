/* Computes parameters that begin with the norms of a weight's rows or columns
 * (LATHE_INIT_ROW_NORMS, LATHE_INIT_COLUMN_NORMS). */
#ifndef LATHE_EXEC_ROW_NORMS_H
#define LATHE_EXEC_ROW_NORMS_H

#include "exec/store/store.h"

/** Sets a row: element o is the Euclidean norm of row (or column) o of the weight rows[init_from],
 * which must be in the store, as computation reads it: in the compute dtype, decoded if it is
 * quantized. Allocates host memory for that weight while it works. Bitwise repeatable. */
lathe_status lathe_row_norms_fill(const lathe_store *store, int32_t param);

/** Sets every row that is computed at each load (is_derived). */
lathe_status lathe_row_norms_fill_derived(const lathe_store *store);

#endif
