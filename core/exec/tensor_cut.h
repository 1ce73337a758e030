/* Where a tensor that an optimizer updates may be cut into pieces: the rule of its partition. */
#ifndef LATHE_EXEC_TENSOR_CUT_H
#define LATHE_EXEC_TENSOR_CUT_H

#include "exec/store.h"

/** Elements of the smallest piece that step() may be given: 1 for ELEMENT, a row for ROW, a block
 *  for BLOCK; 0: the tensor is one piece. Of a piece, as of the whole. */
int64_t lathe__cut_unit(const lathe_store *store, const lathe_instance *optimizer,
                        const lathe_optimizer_tensor *t);

/** Pieces that are updated by several calls of step() begin at multiples of this: whole units and
 *  whole chunks, so that sums over the pieces are those over the uncut tensor. All elements where
 *  the tensor may not be cut. */
int64_t lathe__cut_step(const lathe_store *store, const lathe_instance *optimizer,
                        const lathe_optimizer_tensor *t);

/** *out: elements [begin, begin + n) of a tensor or piece, with its pointers; begin is a multiple
 *  of the unit. */
void lathe__cut_piece(const lathe_store *store, const lathe_optimizer_tensor *t, int64_t unit,
                      int64_t begin, int64_t n, lathe_optimizer_tensor *out);

#endif
