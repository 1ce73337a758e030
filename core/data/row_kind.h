/* The kinds of rows that a stage can ask for (LATHE_ROWS_* of stage.h): which columns a record must
 * have, and what it becomes in a shard.
 */
#ifndef LATHE_DATA_ROW_KIND_H
#define LATHE_DATA_ROW_KIND_H

#include "data/dataset.h"
#include "lathe/stage.h"

enum { LATHE_COLUMN_UNUSED = 0, LATHE_COLUMN_OPTIONAL = 1, LATHE_COLUMN_REQUIRED = 2 };

typedef struct lathe_row_kind {
    const char *record, *records; /* what one record is called: "pair", "pairs" */
    const char *columns;          /* the columns that it reads, for messages */
    int32_t n_segments;           /* segments of a shard that a record becomes */
    int32_t is_masked;            /* 1: shards say of each token whether it is a target */
    /* LATHE_COLUMN_UNUSED, _OPTIONAL or _REQUIRED, by LATHE_COLUMN_*. An optional column that the
     * dataset names is required. */
    uint8_t need[LATHE_N_COLUMNS];
} lathe_row_kind;

/** rows: LATHE_ROWS_*, one that exists. */
const lathe_row_kind *lathe_row_kind_get(int32_t rows);

/** Whether a record of the dataset is read for the column, and must have it (LATHE_COLUMN_*). */
int32_t lathe_row_kind_need(int32_t rows, const lathe_dataset *dataset, int32_t column);

#endif
