/* Multipack: pieces of documents put into rows so that little is left over. */
#ifndef LATHE_DATA_MULTIPACK_H
#define LATHE_DATA_MULTIPACK_H

#include "lathe/status.h"

enum { LATHE_PACK_SEQUENTIAL = 0, LATHE_PACK_MULTIPACK = 1 };

/** A stretch [begin, begin + n) of the token stream, of one document. */
typedef struct lathe_row_piece {
    int64_t begin;
    int32_t n;
    int32_t more; /* 1: the document goes on after it */
} lathe_row_piece;

/** Pieces that are packed together: rows do not reach across windows of so many. Bounds the scratch
 *  memory to 32 bytes a piece of one window, and keeps what a row reads close together. */
#define LATHE_PACK_WINDOW (1 << 20)

/** First-fit decreasing: the longest piece first, each into the first row that has room. Orders
 *  pieces[0, n) by row (within a row by begin) and writes to first[i] the first piece of row i;
 *  first has room for n entries.
 *
 *  pieces  in/out  each 1 <= n <= row_tokens
 *  window  pieces packed together; LATHE_PACK_WINDOW
 *  Time O(n log window); allocates scratch for one window. Deterministic.
 *  Errors  LATHE_E_NOMEM.
 *  Source  D. S. Johnson, "Near-optimal bin packing algorithms", 1973: at most 11/9 of the fewest
 *          rows, plus a constant. The row is found by a tree of the rooms left. */
lathe_status lathe__multipack(lathe_row_piece *pieces, int64_t n, int64_t row_tokens,
                              int64_t window, int64_t *first, int64_t *out_rows);

#endif
