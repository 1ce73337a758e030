/* The kinds of rows that a stage can ask for (lathe_rows_of in plug/row_shape.h): the columns that
 * a record needs, and how a shard stores the record. */
#ifndef LATHE_DATA_ROW_KIND_H
#define LATHE_DATA_ROW_KIND_H

#include "data/records/dataset.h"
#include "plug/row_shape.h"

/** How pairs and examples longer than a row are used, in the order of the choices of data.overlong.
 *  The loader treats ERROR as CUT, because the run refuses such data itself. */
enum { LATHE_OVERLONG_CUT = 0, LATHE_OVERLONG_LEAVE_OUT = 1, LATHE_OVERLONG_ERROR = 2 };
enum { LATHE_ROW_EXAMPLES = 3 }; /* records that a note names */

enum { LATHE_COLUMN_UNUSED = 0, LATHE_COLUMN_OPTIONAL = 1, LATHE_COLUMN_REQUIRED = 2 };

typedef struct lathe_row_kind {
    const char *record, *records; /* name of one record, and plural: "pair", "pairs" */
    const char *columns;          /* columns that the kind reads, for messages */
    int32_t n_segments;           /* segments in a shard per record: prompt, then each answer */
    int32_t main; /* the column that conversations (messages) replace; -1: they are not read */
    int32_t has_records; /* 1: shards store each record as JSON */
    int32_t is_masked;   /* 1: shards store for each token whether it is a target */
    int32_t has_lines;   /* 1: shards store the line of each record in the source files */
    int32_t n_answers;   /* answers to the prompt of a record; 0: it has none */
    const int32_t
        *answers;          /* [n_answers] their columns; NULL: elements of the list `completions` */
    const char *all_equal; /* why a record whose answers are all equal teaches nothing */
    /* LATHE_COLUMN_UNUSED, _OPTIONAL or _REQUIRED for each LATHE_COLUMN_*. An optional column
     * becomes required if the dataset names it. */
    uint8_t need[LATHE_N_COLUMNS];
} lathe_row_kind;

/** The kind of valid rows (lathe_rows_valid). */
const lathe_row_kind *lathe_row_kind_get(int32_t rows);

/** Whether records of the dataset are read for the column, and whether they must have it
 *  (LATHE_COLUMN_*). */
int32_t lathe_row_kind_need(int32_t rows, const lathe_dataset *dataset, int32_t column);

/** Writes the inputs of a stage that come from columns of the data; returns their number. stage
 *  NULL: none. */
int32_t lathe_stage_columns(const lathe_stage_v1 *stage,
                            lathe_stage_input out[LATHE_MAX_STAGE_INPUTS]);

#endif
