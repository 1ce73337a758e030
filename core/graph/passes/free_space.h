/* Free space of an arena over the nodes of a graph: each block gets the lowest offset that is free
 * during its whole lifetime.
 *
 * A binary tree over the nodes 0..n-1 stores, for each range of nodes, two lists of disjoint
 * intervals of used offsets: those of blocks that cover the whole range, and those of all blocks
 * stored in the range or below it. A lifetime is the union of O(log n) ranges, so placing a block
 * searches O(log n) lists, and adjacent blocks merge into one interval. Planning is nearly linear
 * in the number of nodes; comparing each block with all others is quadratic.
 */
#ifndef LATHE_GRAPH_FREE_SPACE_H
#define LATHE_GRAPH_FREE_SPACE_H

#include "lathe/status.h"

typedef struct lathe_free_space lathe_free_space;

/** Creates an empty arena. LATHE_E_NOMEM. */
lathe_status lathe_free_space_create(int32_t n_nodes, lathe_free_space **out);
void lathe_free_space_destroy(lathe_free_space *space);

/** Allocates `bytes` at the lowest offset that is free over the nodes first..last, 0 <= first <=
 *  last < n_nodes. A block of 0 bytes gets offset 0 and uses no space. LATHE_E_NOMEM. */
lathe_status lathe_free_space_take(lathe_free_space *space, int32_t first, int32_t last,
                                   int64_t bytes, int64_t *out_offset);

#endif
