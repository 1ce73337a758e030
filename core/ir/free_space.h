/* The free space of an arena over the nodes of a graph: a block takes the lowest offset that
 * nothing else holds during its life.
 *
 * A binary tree over the nodes 0..n-1 keeps, for each of its ranges, the offsets taken by blocks
 * that hold the whole range, and by all blocks that are kept in the range or below it, as lists of
 * disjoint intervals. A life is the union of O(log n) ranges, so that a block looks at O(log n)
 * lists, and neighbouring blocks are one interval in them: planning is near linear in the nodes,
 * where comparing each block with all others is quadratic.
 */
#ifndef LATHE_IR_FREE_SPACE_H
#define LATHE_IR_FREE_SPACE_H

#include "lathe/status.h"

typedef struct lathe_free_space lathe_free_space;

/** Nothing is taken. LATHE_E_NOMEM. */
lathe_status lathe_free_space_create(int32_t n_nodes, lathe_free_space **out);
void lathe_free_space_destroy(lathe_free_space *space);

/** Takes `bytes` at the lowest offset that is free over the nodes first..last, 0 <= first <= last <
 *  n_nodes. A block without bytes takes nothing, at offset 0. LATHE_E_NOMEM. */
lathe_status lathe_free_space_take(lathe_free_space *space, int32_t first, int32_t last,
                                   int64_t bytes, int64_t *out_offset);

#endif
