/* How the ranks of a run divide its trained parameters.
 *
 * Parameters that are exchanged together are a bucket. In a bucket every rank has an extent, which
 * begins where that of the rank before it ends:
 *
 *   memory of a bucket     |  p3  |    p4    |p5| p6 |
 *   extents of 3 ranks     |    0     |    1    | 2  |
 *
 * An extent ends where the optimizer may cut a parameter (cut_unit.h), so that the update of an
 * extent computes what the update of the whole computes. Parameters that it must not cut go to one
 * rank each. Extents are chosen so that all ranks hold about the same number of bytes.
 *
 * The division depends on its input alone: it is made without the other ranks, for any number of
 * them (docs/design/041-extents.md).
 */
#ifndef LATHE_EXEC_DIVISION_H
#define LATHE_EXEC_DIVISION_H

#include <stdint.h>

#include "lathe/host.h"

/* State of which a rank holds only its extents (parallel.shard). NONE: nothing, every rank holds
 * all. OPTIMIZER: optimizer state, averages, and masters of parameters with a compute copy.
 * GRADIENTS: the sums of the gradients, too. PARAMETERS: all values except those of vectors, too
 * (gathered.h). */
enum {
    LATHE_SHARD_NONE = 0,
    LATHE_SHARD_OPTIMIZER = 1,
    LATHE_SHARD_GRADIENTS = 2,
    LATHE_SHARD_PARAMETERS = 3,
    LATHE_N_SHARDS = 4,
    LATHE_SHARD_AUTO = 4 /* of a setting: not chosen yet */
};
/** "none", "optimizer", ... */
const char *lathe_shard_name(int32_t shard);

/** Elements [begin, begin + n) of a parameter. */
typedef struct lathe_extent {
    int64_t begin, n;
} lathe_extent;

/** A parameter to divide. */
typedef struct lathe_division_row {
    int32_t row;    /* its number in the table */
    int32_t family; /* buckets have rows of one family only; families follow each other in memory */
    int64_t n;      /* elements */
    int64_t unit;   /* elements between places where it may be cut; 0: it must not be cut */
    double cost;    /* bytes per element that the rank which owns it holds */
    int64_t bytes;  /* of its gradient: a bucket is full at lathe_division_ask.bucket_bytes */
} lathe_division_row;

typedef struct lathe_division_ask {
    int32_t shard; /* LATHE_SHARD_* */
    int32_t rank, n_ranks;
    int32_t n_copies; /* groups of n_ranks that each hold everything; 0 counts as 1 */
    int64_t bucket_bytes;
} lathe_division_ask;

typedef struct lathe_bucket {
    int32_t first, n; /* rows[first] to rows[first + n - 1] of the division */
} lathe_bucket;

typedef struct lathe_division {
    int32_t shard, rank, n_ranks;
    int32_t n_table; /* rows of the table of parameters */
    int32_t n_rows, n_buckets;
    int32_t *rows; /* [n_rows] numbers in the table, in the order of memory */
    int64_t *n;    /* [n_table] elements of each row; 0: not divided */
    int64_t *cuts; /* [n_table, n_ranks + 1]: rank q owns [cuts[q], cuts[q + 1]) of a row */
    lathe_bucket *buckets;
} lathe_division;

/** Divides n rows, which are given in the order in which their gradients are exchanged.
 *  n_table: rows of the table of parameters. After an error nothing needs to be freed. */
lathe_status lathe_division_make(const lathe_division_ask *ask, const lathe_division_row *rows,
                                 int32_t n, int32_t n_table, lathe_division **out);
/** NULL is fine. */
void lathe_division_destroy(lathe_division *d);

/** Elements of a row of the table that a rank owns. */
lathe_extent lathe_division_of(const lathe_division *d, int32_t row, int32_t rank);

/** Bytes of n elements with the padding that follows them in the store. */
int64_t lathe_padded(int64_t n, int64_t width);

/** Elements of each rank's extent of a bucket in memory with `width` bytes per element, with
 *  padding. counts: [n_ranks] out, or NULL. Returns their sum. */
int64_t lathe_bucket_counts(const lathe_division *d, int32_t bucket, int64_t width,
                            int64_t *counts);
/** The extent of one rank, from the begin of the bucket. */
lathe_extent lathe_bucket_extent(const lathe_division *d, int32_t bucket, int64_t width,
                                 int32_t rank);

#endif
