/* Values of parameters that ranks divide (parallel.shard = "parameters"), and how a rank gets whole
 * ones.
 *
 * A gather is one exchange: every rank gives its extents of a bucket and gets the bucket. Trained
 * matrices are in the buckets of their gradients. Frozen values and planes of packed formats are
 * cut as bytes, in buckets of their own, because nothing reads an extent of them:
 *
 *   bucket of gather g         | p3 | p5   | p6  |
 *   this rank holds of it           | p5   | p6  |      in a family of the store
 *   the whole, to compute with | p3 | p5   | p6  |      in the window store->gathered
 *
 * Vectors are not divided: every layer reads them, and they are small. Neither are frozen rows that
 * an adapter computes from others, and keeps in two dtypes.
 */
#ifndef LATHE_STORE_GATHERED_H
#define LATHE_STORE_GATHERED_H

#include "store/store.h"

/** One exchange. */
typedef struct lathe_gather {
    int32_t bucket, is_frozen; /* of store->gathers->frozen, or of store->division */
    int32_t dtype, width;      /* of its elements; frozen: bytes, U8 */
    int64_t bytes;             /* of the whole bucket, a multiple of 64 */
    const void *own;           /* this rank's extents; NULL: it has none, or before placing */
} lathe_gather;

typedef struct lathe_gathers {
    lathe_division *frozen; /* rows: param * (1 + LATHE_MAX_PLANES), + 1 + number of the plane */
    lathe_gather *list;
    int32_t n, reserved;
    int64_t most_bytes;  /* of the largest */
    int64_t whole_bytes; /* values that are not divided */
    uint32_t *checks;    /* [store->n_rows] of the whole values and planes last set */
} lathe_gathers;

/** Whether ranks divide the values of a row of the table. */
int lathe_is_divided_value(const lathe_params *params, int32_t shard, int32_t param);

/** Divides the frozen rows of a store, and notes in all rows what this rank holds of their values
 *  and where they are in gathers. Before their layout; trained rows have their extents of state. */
lathe_status lathe_gathers_create(lathe_store *store, const lathe_division_ask *ask);
void lathe_gathers_destroy(lathe_gathers *x);
/** Lays out the values and planes that are in gathers. */
void lathe_gathers_layout(lathe_store *store);
/** Fills in the addresses of this rank's extents. */
void lathe_gathers_place(lathe_store *store);

/** Whether the values of a row are in a gather. */
int lathe_store_is_gathered(const lathe_store *store, int32_t param);

/** Gathers a bucket into memory, `to` [bytes of the gather]; all ranks call it. */
lathe_status lathe_gather_run(const lathe_store *store, int32_t gather, void *to);
/** The whole values of a row (plane -1), or a whole plane of it, in the memory of the device. Of
 *  divided ones all ranks call it; valid until the next call, or run of a program. */
lathe_status lathe_store_whole(const lathe_store *store, int32_t param, int32_t plane,
                               const void **out);

/** Copies what this rank holds of the values that kernels read, or of a plane, from the whole in
 *  host memory. */
lathe_status lathe_store_put_value(const lathe_store *store, int32_t param, const void *whole);
lathe_status lathe_store_put_plane(const lathe_store *store, int32_t param, int32_t plane,
                                   const void *whole);
/** Notes the whole of a row for lathe_store_checksum. plane -1: its values. */
void lathe_store_note(const lathe_store *store, int32_t param, int32_t plane, const void *whole,
                      int64_t bytes);
/** A number of the whole values of all rows, equal on ranks that were given the same ones. */
double lathe_store_checksum(const lathe_store *store);

#endif
