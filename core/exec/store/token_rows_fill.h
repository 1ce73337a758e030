/* First values of the parameters of rows of tokens that train (exec/program/token_rows.h). */
#ifndef LATHE_EXEC_TOKEN_ROWS_FILL_H
#define LATHE_EXEC_TOKEN_ROWS_FILL_H

#include "exec/store/store.h"

/** Sets rows[param], whose init is LATHE_INIT_TOKEN_ROWS or LATHE_INIT_TOKEN_MARKS. The embedding
 *  or head must be there. Between steps. LATHE_E_NOMEM. */
lathe_status lathe_token_rows_fill(const lathe_store *store, int32_t param);

/** Sets those of them that are in no file, after the weights of a checkpoint were read. */
lathe_status lathe_token_rows_fill_derived(const lathe_store *store);

#endif
