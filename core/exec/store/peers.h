/* Functions of the other ranks that the rooms below core/parallel/ranks call when a run's state is
 * divided. The room of ranks fills in the table (ranks/shards.h). */
#ifndef LATHE_EXEC_PEERS_H
#define LATHE_EXEC_PEERS_H

#include "exec/store/transfer.h"

/* Memory that ranks may hold extents of. */
enum { LATHE_FAMILY_MASTERS = 0, LATHE_FAMILY_AVERAGES = 1, LATHE_FAMILY_SLOTS = 2 };

enum { LATHE_PEERS_NUMBERS = 30 }; /* most numbers of add() */

typedef struct lathe_peers {
    void *arg;
    /** Replaces n numbers by their sums over all ranks, in the order of ranks. All ranks call it.
     */
    lathe_status (*add)(void *arg, double *numbers, int32_t n);
    /** Gives every rank the updated elements of all others: those that kernels read, except values
     *  that are gathered. All ranks call it. Allocates nothing. */
    lathe_status (*spread)(void *arg);
    /** Starts a gather (gathered.h) into memory `to`, goes on with those that are under way, and
     *  waits for one. All ranks call start and wait in the same order; nothing is allocated. */
    lathe_status (*gather_start)(void *arg, int32_t gather, void *to);
    lathe_status (*gather_poll)(void *arg);
    lathe_status (*gather_wait)(void *arg, int32_t gather);
    /** Passes a whole tensor to `fn`, piece by piece in its order. Rank 0 alone calls it, while the
     *  others serve it (ranks/shards.h). slot: of LATHE_FAMILY_SLOTS, else 0. */
    lathe_status (*collect)(void *arg, int32_t family, int32_t row, int32_t slot, lathe_piece_fn fn,
                            void *fn_arg);
    /** Lets all other ranks fill their part of the optimizer's own average, as rank 0 does. Rank 0
     *  alone calls it, while the others serve it. */
    lathe_status (*fill_averages)(void *arg);
} lathe_peers;

#endif
