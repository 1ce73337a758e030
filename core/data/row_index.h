/* The row index: which documents a split has, what rows they make, and how often each row comes.
 *
 * A row holds documents of one dataset, so that a weight counts rows. Sequential rows without a
 * split need no index at all; with one, where each row starts (16 bytes a row) and a bit a
 * document; multipack, 16 bytes a piece and 8 a row.
 */
#ifndef LATHE_DATA_ROW_INDEX_H
#define LATHE_DATA_ROW_INDEX_H

#include "data/loader_rows.h"
#include "data/multipack.h"

/** What one dataset gives to the split. */
typedef struct lathe_row_set {
    int64_t first_segment, end_segment;
    int64_t first_row, n_rows; /* of the split; numbered through all datasets */
    int64_t first_place;       /* in an epoch */
    int64_t per_epoch;         /* places: n_rows times the weight, rounded */
} lathe_row_set;

/** Where a sequential row starts: a token of the stream, and the segment that holds it. */
typedef struct lathe_row_start {
    int64_t segment, offset;
} lathe_row_start;

typedef struct lathe_row_index_config {
    const lathe_shards *shards;
    int32_t row_tokens; /* T */
    int32_t packing;    /* LATHE_PACK_* */
    int32_t validates;  /* the rows of the validation split */
    int32_t reserved;
    int64_t n_validation; /* documents (pairs) kept for validation */
    double fraction;      /* or this share of them */
    uint64_t seed;
} lathe_row_index_config;

typedef struct lathe_row_index {
    lathe_row_index_config config;
    int32_t pairs, n_sets;
    lathe_row_set *sets;
    int64_t n_rows, n_places; /* of the split; of an epoch */
    int64_t n_all, n_kept;    /* documents (pairs) of both splits that can be used, of this one */
    int64_t n_validation;     /* documents (pairs) of the validation split */
    int64_t n_tokens, text_bytes; /* of this split's documents */
    int64_t n_left_out;           /* pairs whose prompt alone fills a row */
    int64_t low, high;            /* tokens of the stream that the split may use */
    int32_t cut, reserved;        /* cut: the only document is divided between the splits */
    int64_t bytes;                /* of memory that the index holds */

    uint64_t *validation;    /* a bit a document (pair); NULL: no validation split */
    uint64_t *left_out;      /* a bit a pair; NULL: none */
    int64_t *kept;           /* pairs: [n_rows], NULL: all */
    lathe_row_start *starts; /* sequential with a split: [n_rows] */
    lathe_row_piece *pieces; /* multipack: [n_pieces] */
    int64_t *row_pieces;     /* multipack: [n_rows + 1] */
    int64_t n_pieces;
} lathe_row_index;

/** Validation takes whole documents (pairs), chosen by the seed. Of one document alone, a fraction
 *  is its last tokens: the splits share no token then, but the document.
 *  LATHE_E_CONFIG: validation takes all documents. The index is to be finished in any case. */
lathe_status lathe__row_index_init(lathe_row_index *index, const lathe_row_index_config *config);
void lathe__row_index_fini(lathe_row_index *index);

/** The row at a place, 0 <= place < n_places, of an epoch. Row i of n times its weight: epochs
 *  follow each other in laps over the dataset's rows, so that after any number of epochs no row
 *  came more than once more often than another. shuffled: each lap in an order of its own. */
int64_t lathe__row_index_at(const lathe_row_index *index, int64_t epoch, int64_t place,
                            int32_t shuffled);

/** Makes a packed row; adds its targets. */
lathe_status lathe__row_index_pack(const lathe_row_index *index, int64_t row, const lathe_row *out,
                                   int64_t *n_target);
/** The pair (record) that is row `row`. */
int64_t lathe__row_index_pair(const lathe_row_index *index, int64_t row);

#endif
