/* Multipack: packs pieces of documents into rows so that little space stays empty. */
#ifndef LATHE_DATA_MULTIPACK_H
#define LATHE_DATA_MULTIPACK_H

#include "lathe/status.h"

/* AUTO: multipack for examples (LATHE_ROWS_COMPLETIONS), which should not be cut, else
 * sequential. In the order of the choices of data.packing. */
enum {
    LATHE_PACK_SEQUENTIAL = 0,
    LATHE_PACK_MULTIPACK = 1,
    LATHE_PACK_AUTO = 2,
    LATHE_PACK_NONE = 3
};

/** The tokens [begin, begin + n) of the stream; they belong to one document. */
typedef struct lathe_row_piece {
    int64_t begin;
    int32_t n;
    int32_t more; /* 1: the document continues after this piece */
} lathe_row_piece;

/** Number of pieces that are packed together; a row has pieces of one window only. This bounds the
 *  scratch memory to 32 bytes per piece of one window, and keeps the data of a row close
 *  together. */
#define LATHE_PACK_WINDOW (1 << 20)

/** First-fit decreasing: takes the longest piece first and puts each into the first row that has
 *  room. Sorts pieces[0, n) by row (within a row by begin) and writes the index of the first piece
 *  of row i to first[i]; `first` has room for n entries.
 *
 *   pieces  in/out  each 1 <= n <= row_tokens
 *   window  pieces packed together; LATHE_PACK_WINDOW
 *   Time O(n log window); allocates scratch for one window. Deterministic.
 *   Errors  LATHE_E_NOMEM.
 *   Source  D. S. Johnson, "Near-optimal bin packing algorithms", 1973: at most 11/9 of the fewest
 *           rows, plus a constant. A tree of the free room finds the row. */
lathe_status lathe__multipack(lathe_row_piece *pieces, int64_t n, int64_t row_tokens,
                              int64_t window, int64_t *first, int64_t *out_rows);

#endif
