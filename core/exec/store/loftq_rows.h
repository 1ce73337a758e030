/* Encodes the weights that adapters with LoftQ begin with, and computes what these begin with
 * (LATHE_INIT_LOFTQ_A and LATHE_INIT_LOFTQ_B).
 *
 *   repeat T times:  Q = decode(encode(W - B A / scale)),  B A = scale * best approximation of W -
 * Q
 *
 * B A is 0 at first. W is the f32 weight of the model's folder, which is in memory only while the
 * folder is read: a row is handed over then, and several are decomposed at a time.
 *
 * Source: arXiv:2310.08659, algorithm 1, in the order of PEFT's loftq_init: the last step is the
 * decomposition, so B A belongs to the Q that is kept.
 */
#ifndef LATHE_EXEC_LOFTQ_ROWS_H
#define LATHE_EXEC_LOFTQ_ROWS_H

#include "exec/store/store.h"

typedef struct lathe_loftq lathe_loftq;

/** Takes a weight, rows[param] with loftq_steps > 0; w [O, I] is copied. *io is made when it is
 * NULL. planes_only: A and B are not set, because a file sets them later. Weights that have
 * gathered are encoded. LATHE_E_NUMERIC names a weight that is not finite; LATHE_E_NOMEM. */
lathe_status lathe_loftq_add(lathe_loftq **io, const lathe_store *store, int32_t param,
                             int32_t planes_only, const float *w);

/** Encodes the weights that wait. NULL: there are none. */
lathe_status lathe_loftq_finish(lathe_loftq *loftq);

/** NULL is fine. */
void lathe_loftq_destroy(lathe_loftq *loftq);

#endif
