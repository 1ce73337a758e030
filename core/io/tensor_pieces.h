/* Tensors in pieces: visits the bytes of many tensors on the thread pool, a piece at a time.
 *
 * Small tensors are one piece, large ones several, so that all threads have work whatever the
 * shapes are.
 */
#ifndef LATHE_IO_TENSOR_PIECES_H
#define LATHE_IO_TENSOR_PIECES_H

#include "lathe/status.h"

enum {
    LATHE_PIECE_BYTES = 1 << 20, /* of a piece at most; a multiple of every element size */
    LATHE_SCRATCH_BYTES =
        5 << 20 /* of a worker: a piece, and what it is converted from (F64 to BF16) */
};

/** Bytes [offset, offset + bytes) of tensor `tensor`. */
typedef struct lathe_tensor_piece {
    int64_t tensor, offset, bytes;
    void *
        scratch; /* [LATHE_SCRATCH_BYTES], of the worker, 64-byte aligned; undefined at the start */
} lathe_tensor_piece;

typedef lathe_status (*lathe_tensor_piece_fn)(void *arg, const lathe_tensor_piece *piece);

/** Calls fn for every piece of the tensors 0 .. n-1, which have bytes[i] each: from all threads of
 *  the pool, in no order; from the calling thread alone when it stays alone
 *  (lathe_parallel_stay_alone).
 *
 *  Errors  what fn returns, with its message; pieces that have not begun by then are left out.
 *          LATHE_E_NOMEM.
 *  Memory  LATHE_SCRATCH_BYTES for each thread while it runs.
 */
lathe_status lathe_tensor_pieces_each(const int64_t *bytes, int64_t n, lathe_tensor_piece_fn fn,
                                      void *arg);

#endif
