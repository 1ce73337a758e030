/* Computes sums of squares of gradients or of f32 weights (masters), one per parameter, with the
 * device's SUM_SQUARES: one kernel for all parameters, in segments of 65536 elements. The host
 * adds the segments of a parameter in the order of the table, so the result depends neither on
 * the number of threads nor on the other parameters. A row is a parameter of the table; a family
 * is one of the LATHE_SQUARES_* below. */
#ifndef LATHE_OPTIM_SQUARES_H
#define LATHE_OPTIM_SQUARES_H

#include "exec/store/store.h"

enum {
    LATHE_SQUARES_GRADIENTS = 0, /* in f32 */
    LATHE_SQUARES_MASTERS = 1,
    LATHE_SQUARES_NARROW = 2,   /* gradients in bf16 */
    LATHE_SQUARES_MATRICES = 3, /* only the masters of MATRIX parameters */
    LATHE_N_SQUARES = 4
};

typedef struct lathe_squares {
    lathe_machine *m;
    lathe_kernel *kernel; /* NULL: no rows */
    int64_t *segments;    /* [n, 2] host: first element in the family, elements */
    int32_t *row;         /* [n] row to which each segment belongs */
    int64_t n;
    int64_t scratch_bytes;
    char *own;          /* device: |segments|sums|scratch| */
    double *host;       /* [n] the host's view of the sums */
    const void *family; /* first element of the family */
} lathe_squares;

/** Prepares the sums of all trainable rows of a store whose layout is known. LATHE_E_UNSUPPORTED:
 * the device has no SUM_SQUARES. */
lathe_status lathe_squares_init(lathe_squares *s, lathe_machine *m, const lathe_store *store,
                                int32_t which);
void lathe_squares_fini(lathe_squares *s);

/** Bytes of device memory, and of pinned memory. */
int64_t lathe_squares_bytes(const lathe_squares *s);
int64_t lathe_squares_staging_bytes(const lathe_squares *s);

lathe_status lathe_squares_place(lathe_squares *s, const lathe_store *store, int32_t which,
                                 void *own, void *staging);

/** Queues the sums and their copy to the host. */
lathe_status lathe_squares_queue(lathe_squares *s);
/** Adds the sums to their rows; call it after the host has waited for them. */
void lathe_squares_read(const lathe_squares *s, double *rows);

#endif
