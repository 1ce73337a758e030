/* The shape that a record has in the batches of a stage: how many rows, in which order, and whether
 * its rows depend on other records. The core asks this table, not which kind of rows a stage has.
 *
 * A batch of P records with n rows each has n * P rows: row k*P + i is row k of record i.
 */
#ifndef LATHE_PLUG_ROW_SHAPE_H
#define LATHE_PLUG_ROW_SHAPE_H

#include "lathe/stage.h"

typedef struct lathe_row_shape {
    int32_t n_rows;    /* rows per record; 1 also where records are packed */
    int32_t n_answers; /* rows of the prompt with an answer of the record; 0: none (documents,
                        * packed examples, prompts alone) */
    int32_t is_padded; /* 1: a row holds one sequence, and padding after it */
    int32_t mixes;     /* 1: further rows have the answer of another record of the batch of all
                        * ranks, so that neither micro-batches nor ranks may divide it */
    int32_t compares;  /* 1: the loss is over records, whose answers it compares or weighs, not over
                        * tokens; it gets lathe_stage_build.record_mask */
} lathe_row_shape;

/** The rows of a stage as one number, which the core passes on and shards keep: LATHE_ROWS_*, and
 *  of groups also the number of answers. stage NULL: LATHE_ROWS_PACKED. */
int32_t lathe_rows_of(const lathe_stage_v1 *stage);
/** Rows of groups of n answers. */
int32_t lathe_rows_of_group(int32_t n_answers);
/** Whether lathe_rows_of can give this number. */
int lathe_rows_valid(int32_t rows);
/** LATHE_ROWS_* of such a number. */
int32_t lathe_rows_kind(int32_t rows);

/** The shape of valid rows. */
const lathe_row_shape *lathe_row_shape_get(int32_t rows);

#endif
