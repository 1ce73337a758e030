/* Shards the values of parameters and their quantized planes across ranks, and lays out what a rank
 * holds of them (gathered.h).
 */
#ifndef LATHE_EXEC_GATHER_LAYOUT_H
#define LATHE_EXEC_GATHER_LAYOUT_H

#include "exec/store/store_rows.h"

/** One all-gather: the bucket that it fills. */
typedef struct lathe_gather {
    int32_t bucket, is_frozen; /* index in store->gathers->frozen; else in store->division */
    int32_t dtype, width;      /* of its elements; frozen: bytes, U8 */
    int64_t bytes;             /* of the whole bucket, a multiple of 64 */
} lathe_gather;

/* Tensors of a row: its values, and its planes. */
enum { LATHE_GATHER_TENSORS = 1 + LATHE_MAX_PLANES };

typedef struct lathe_gathers {
    lathe_division *frozen; /* row: param * LATHE_GATHER_TENSORS, + 0: values, + 1 + k: plane k */
    lathe_gather *list;
    int32_t n, reserved;
    int64_t most_bytes;  /* of the largest all-gather */
    int64_t whole_bytes; /* of values that every rank holds whole */
    uint32_t *checks;    /* [store->n_rows] of the whole values and planes last set */
} lathe_gathers;

/** Whether ranks divide the values of a row of the table. */
int lathe_is_divided_value(const lathe_params *params, int32_t shard, int32_t param);

/** Divides the frozen rows of a store, and notes in all rows what this rank holds of their values
 *  and where they are in gathers. Comes before lathe_gathers_layout; trained rows already have
 *  their extents of state. */
lathe_status lathe_gathers_create(lathe_store *store, const lathe_division_ask *ask);
void lathe_gathers_destroy(lathe_gathers *x);
/** Lays out the values and planes that are in gathers. */
void lathe_gathers_layout(lathe_store *store);
/** The division that the bucket of a gather is of. */
const lathe_division *lathe_gather_division(const lathe_store *store, const lathe_gather *g);

#endif
