/* Rows of the embedding and of the head that train beside the frozen others.
 *
 *   D [n,C]   the trained rows, which begin as the weight's: PEFT's trainable_tokens_delta
 *   F [n,C]   what they began with, computed from the weight at each load
 *   M [V,n]   1 at [token k, k]
 *
 *   embedding  y = W[t] + M[t] (D - F)         head  x W^T + (x (D - F)^T) M^T
 *
 * y is D's row for the tokens in the list, and W's row for others. The weight itself is not copied:
 * a copy with the rows in it would be as large as the matrix, and so would its gradient.
 */
#ifndef LATHE_EXEC_TOKEN_ROWS_H
#define LATHE_EXEC_TOKEN_ROWS_H

#include "exec/program/builder.h"

/** Ends of the names of D, F and M; before them is the module. */
#define LATHE_TOKEN_ROWS_END ".token_adapter.trainable_tokens_delta"
#define LATHE_TOKEN_FIRST_END ".token_adapter.first_rows"
#define LATHE_TOKEN_MARKS_END ".token_adapter.marks"

/** The list for the model that is being built; n 0: no rows train by themselves. */
lathe_token_rows lathe__token_rows_of(const lathe__builder *b);

/** Adds to y c[N,C], the embeddings of the tokens, what trained rows change. */
lathe_status lathe__token_rows_embed(const lathe__builder *b, const lathe_site *site,
                                     lathe_val tokens, lathe_val *io_y);

/** Builds the change of the head by trained rows: u c[N,n] and v c[V,n]. Both stay as they are if
 *  the adapter trains the whole head. */
lathe_status lathe__token_rows_head(const lathe__builder *b, const lathe_site *site, lathe_val x,
                                    lathe_val *out_u, lathe_val *out_v);

#endif
