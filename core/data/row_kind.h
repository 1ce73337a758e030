/* The kinds of rows that a stage can ask for (LATHE_ROWS_* of stage.h): the columns that a record
 * needs, and how a shard stores the record. */
#ifndef LATHE_DATA_ROW_KIND_H
#define LATHE_DATA_ROW_KIND_H

#include "data/dataset.h"
#include "lathe/stage.h"

enum { LATHE_COLUMN_UNUSED = 0, LATHE_COLUMN_OPTIONAL = 1, LATHE_COLUMN_REQUIRED = 2 };

typedef struct lathe_row_kind {
    const char *record, *records; /* name of one record, and plural: "pair", "pairs" */
    const char *columns;          /* columns that the kind reads, for messages */
    int32_t n_segments;           /* segments in a shard per record */
    int32_t is_masked;            /* 1: shards store for each token whether it is a target */
    /* LATHE_COLUMN_UNUSED, _OPTIONAL or _REQUIRED for each LATHE_COLUMN_*. An optional column
     * becomes required if the dataset names it. */
    uint8_t need[LATHE_N_COLUMNS];
} lathe_row_kind;

/** The kind of a valid LATHE_ROWS_*. */
const lathe_row_kind *lathe_row_kind_get(int32_t rows);

/** Whether records of the dataset are read for the column, and whether they must have it
 *  (LATHE_COLUMN_*). */
int32_t lathe_row_kind_need(int32_t rows, const lathe_dataset *dataset, int32_t column);

#endif
