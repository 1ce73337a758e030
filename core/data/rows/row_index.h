/* The row index: which documents a split has, which rows they form, and how often each row is used.
 *
 * A row has documents of one dataset only, so that a weight can count rows. Memory: sequential rows
 * without a split need no index; with a split, 16 bytes per row (its start) and a bit per document;
 * multipack and none, 16 bytes per piece and 8 per row.
 */
#ifndef LATHE_DATA_ROW_INDEX_H
#define LATHE_DATA_ROW_INDEX_H

#include "data/records/row_kind.h"
#include "data/rows/loader_rows.h"
#include "data/rows/multipack.h"

/** The part of the split that one dataset provides. */
typedef struct lathe_row_set {
    int64_t first_segment, end_segment;
    int64_t first_row, n_rows; /* rows in the split; numbered over all datasets */
    int64_t first_place;       /* first place in an epoch */
    int64_t per_epoch;         /* places in an epoch: n_rows times the weight, rounded */
} lathe_row_set;

/** Start of a sequential row: a token of the stream, and the segment that contains it. */
typedef struct lathe_row_start {
    int64_t segment, offset;
} lathe_row_start;

typedef struct lathe_row_index_config {
    const lathe_shards *shards;
    int32_t row_tokens;   /* T */
    int32_t packing;      /* LATHE_PACK_* */
    int32_t validates;    /* 1: index the validation split */
    int32_t overlong;     /* LATHE_OVERLONG_* */
    int64_t n_validation; /* number of documents (pairs) for validation */
    double fraction;      /* or their share */
    uint64_t seed;
} lathe_row_index_config;

typedef struct lathe_row_index {
    lathe_row_index_config config;
    const lathe_row_kind *kind;
    int32_t is_alone; /* 1: a row has one record: pairs, unpaired examples, prompts */
    int32_t n_sets;
    lathe_row_set *sets;
    int64_t n_rows, n_places;     /* rows of the split; places of an epoch */
    int64_t n_all, n_kept;        /* usable documents (pairs) of both splits; of this one */
    int64_t n_validation;         /* documents (pairs) of the validation split */
    int64_t n_tokens, text_bytes; /* tokens and text of this split's documents */
    /* Pairs whose prompt alone fills a row; examples with no target in their first T tokens. */
    int64_t n_left_out;
    int64_t n_same_cut; /* pairs whose rows are equal after they are cut, and differ before */
    int64_t same_cut[LATHE_ROW_EXAMPLES]; /* the first of them */
    int64_t n_overlong; /* other pairs and examples of more than T tokens, in both splits */
    int64_t n_cut;      /* those of them in this split of which the first T tokens are used */
    int64_t n_spare;    /* tokens in no row, because a row of one token has no target */
    int64_t useless[LATHE_ROW_EXAMPLES], too_long[LATHE_ROW_EXAMPLES]; /* the first of both kinds */
    int64_t low, high;     /* range of tokens that the split may use */
    int32_t cut, reserved; /* cut: the only document is divided between the splits */
    int64_t bytes;         /* memory of the index */

    uint64_t *validation;    /* one bit per document (pair); NULL: no validation split */
    uint64_t *left_out;      /* one bit per record; NULL: none */
    int64_t *kept;           /* rows of one record: [n_rows], NULL: all */
    lathe_row_start *starts; /* sequential with a split: [n_rows] */
    lathe_row_piece *pieces; /* multipack, none: [n_pieces] */
    int64_t *row_pieces;     /* multipack, none: [n_rows + 1] */
    int64_t n_pieces;
} lathe_row_index;

/** Validation takes whole documents (pairs), chosen by the seed. If there is only one document, the
 *  fraction takes its last tokens: the splits then share the document, but no token.
 *  LATHE_E_CONFIG: validation would take all documents. Call the index's fini also after an
 *  error. */
lathe_status lathe__row_index_init(lathe_row_index *index, const lathe_row_index_config *config);
void lathe__row_index_fini(lathe_row_index *index);

/** The row at a place of an epoch, 0 <= place < n_places. A dataset has n rows times its weight
 *  places; epochs continue each other in laps over its rows, so after any number of epochs the
 *  counts of two rows differ by at most one. shuffled: each lap has its own order. */
int64_t lathe__row_index_at(const lathe_row_index *index, int64_t epoch, int64_t place,
                            int32_t shuffled);

/** Makes a packed row; adds the number of its targets to *n_target. */
lathe_status lathe__row_index_pack(const lathe_row_index *index, int64_t row, const lathe_row *out,
                                   int64_t *n_target);
/** The record of row `row`, for kinds of rows that are not packed. */
int64_t lathe__row_index_record(const lathe_row_index *index, int64_t row);

#endif
