/* Kernels over whole rows of the store: one moves an average towards the weights, one converts the
 * weights to the compute copy. They are created once, one per row of the table.
 */
#ifndef LATHE_EXEC_ROW_KERNELS_H
#define LATHE_EXEC_ROW_KERNELS_H

#include "exec/store/store.h"

typedef struct lathe_row_kernels {
    lathe_machine *m;
    lathe_kernel **towards, **narrow; /* [n_rows], NULL: not for this row */
    int32_t n_rows;
    int64_t scratch_bytes; /* maximum over all kernels */
} lathe_row_kernels;

/** Creates the kernel of every row that has an average. */
lathe_status lathe_row_kernels_init(lathe_row_kernels *k, lathe_machine *m,
                                    const lathe_store *store);
void lathe_row_kernels_fini(lathe_row_kernels *k);

/** Queues average += share * (master - average), share from step memory, for the elements that this
 * rank updates. scratch: scratch_bytes. */
lathe_status lathe_row_towards(const lathe_row_kernels *k, const lathe_store *store, int32_t row,
                               void *scratch);
/** Queues shadow <- master, of the same elements, if the row has a shadow. */
lathe_status lathe_row_narrow(const lathe_row_kernels *k, const lathe_store *store, int32_t row,
                              void *scratch);
/** Converts the whole of a row's f32 values, or its master, which is whole, to what this rank holds
 * of its shadow, with a kernel made for this call; does nothing if the row has no shadow. For
 * loading: it waits, and allocates. */
lathe_status lathe_row_refresh_from(const lathe_store *store, int32_t row, const float *values);
lathe_status lathe_row_refresh(const lathe_store *store, int32_t row);

#endif
