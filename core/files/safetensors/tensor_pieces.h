/* Visits the bytes of many tensors on the thread pool, a piece at a time.
 *
 * A small tensor is one piece, a large one several, so that all threads have work whatever the
 * shapes are.
 */
#ifndef LATHE_FILES_TENSOR_PIECES_H
#define LATHE_FILES_TENSOR_PIECES_H

#include "lathe/status.h"

enum {
    LATHE_PIECE_BYTES = 1 << 20, /* maximum size of a piece; a multiple of every element size */
    LATHE_SCRATCH_BYTES =
        5 << 20 /* per worker: a piece and the source of its conversion (F64 to BF16) */
};

/** Bytes [offset, offset + bytes) of tensor `tensor`. */
typedef struct lathe_tensor_piece {
    int64_t tensor, offset, bytes;
    void *scratch; /* [LATHE_SCRATCH_BYTES], the worker's, 64-byte aligned; not initialised */
} lathe_tensor_piece;

typedef lathe_status (*lathe_tensor_piece_fn)(void *arg, const lathe_tensor_piece *piece);

/** Calls fn for every piece of the tensors 0 .. n-1, which have bytes[i] each, on all threads of
 *  the pool in any order (only on the calling thread after lathe_parallel_stay_alone).
 *
 *  Errors: the first that fn returns, with its message; pieces that have not begun are then
 *  skipped. LATHE_E_NOMEM. Memory: LATHE_SCRATCH_BYTES per thread while it runs.
 */
lathe_status lathe_tensor_pieces_each(const int64_t *bytes, int64_t n, lathe_tensor_piece_fn fn,
                                      void *arg);

#endif
