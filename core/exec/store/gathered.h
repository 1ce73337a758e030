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
#ifndef LATHE_EXEC_GATHERED_H
#define LATHE_EXEC_GATHERED_H

#include "exec/store/gather_layout.h"
#include "exec/store/store.h"

/** Whether the values of a row are in a gather. */
int lathe_store_is_gathered(const lathe_store *store, int32_t param);

/** This rank's extents of a bucket, one after the other; NULL: it has none, or before placing. */
const void *lathe_gather_own(const lathe_store *store, int32_t gather);
/** Gathers a bucket into memory, `to` [bytes of the gather]; all ranks call it. */
lathe_status lathe_gather_run(const lathe_store *store, int32_t gather, void *to);
/** The whole values of a row (plane -1), or a whole plane of it, in the memory of the device. Of
 *  divided ones all ranks call it; valid until the next call, or run of a program. */
lathe_status lathe_store_whole(const lathe_store *store, int32_t param, int32_t plane,
                               const void **out);

/** Notes the whole of a row for lathe_store_checksum. plane -1: its values. */
void lathe_store_note(const lathe_store *store, int32_t param, int32_t plane, const void *whole,
                      int64_t bytes);
/** A number of the whole values of all rows, equal on ranks that were given the same ones. */
lathe_status lathe_store_checksum(const lathe_store *store, double *out);

#endif
