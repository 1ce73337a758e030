/* Positions at which a tensor that an optimizer updates may be cut: the rule of its partition. */
#ifndef LATHE_EXEC_TENSOR_CUT_H
#define LATHE_EXEC_TENSOR_CUT_H

#include "exec/store/store.h"

/** Elements of the smallest piece that step() accepts: 1 for ELEMENT, a row for ROW, a block for
 *  BLOCK; 0: the tensor cannot be cut. The same for a piece as for the whole tensor. */
int64_t lathe__cut_unit(const lathe_store *store, const lathe_instance *optimizer,
                        const lathe_optimizer_tensor *t);

/** Pieces updated by separate calls of step() begin at multiples of this many elements: whole units
 *  and whole chunks, so that sums over the pieces equal sums over the uncut tensor. The tensor's
 *  element count if it may not be cut. */
int64_t lathe__cut_step(const lathe_store *store, const lathe_instance *optimizer,
                        const lathe_optimizer_tensor *t);

/** Sets *out to elements [begin, begin + n) of a tensor or piece, with its pointers; begin is a
 *  multiple of the unit. */
void lathe__cut_piece(const lathe_store *store, const lathe_optimizer_tensor *t, int64_t unit,
                      int64_t begin, int64_t n, lathe_optimizer_tensor *out);

#endif
