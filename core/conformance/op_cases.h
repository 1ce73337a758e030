/* The problems that a device's kernels are checked on: a table, one row per variant of an op. */
#ifndef LATHE_CONFORMANCE_OP_CASES_H
#define LATHE_CONFORMANCE_OP_CASES_H

#include "conformance/op_reference.h"

/* One row. Tensors are written "dtype[dims]", with c for each compute dtype in turn and - for an absent tensor, and
 * may end in what they hold (noise in [-1, 1) without it):
 *   :+    around 1, positive            :tN  indices below N          :r  an RNG counter
 *   :w    small whole numbers           :TN  targets, every third -1  :s  segments of the first input
 *   :2    noise in [-2, 2)              :k   lengths of cached rows */
typedef struct lathe__op_row {
    int32_t op;
    const char *in, *out;
    lathe_op_attrs attrs;
    int64_t terms;     /* summed in f32 per element */
    double half_units; /* of c, on the largest element: values that are rounded on the way */
} lathe__op_row;

/** The rows, in the order of the ops. */
const lathe__op_row *lathe__op_rows_table(int32_t *out_n);

/** The tensors of a row in a compute dtype. LATHE_E_ARG: the row is misspelt. *out_uses_c: whether c stands in it. */
lathe_status lathe__op_row_problem(const lathe__op_row *row, int32_t dtype, lathe__op_problem *out,
                                   int *out_uses_c);

/** What input i of a row holds, exactly as its dtype holds it, into values[count]. */
void lathe__op_row_fill(const lathe__op_row *row, const lathe__op_problem *p, int32_t i,
                        double *values);

/** Allowed difference of output element `want`, where the largest is `largest`; added: to what was there. */
double lathe__op_row_bound(const lathe__op_row *row, int32_t compute_dtype, int32_t out_dtype,
                           double want, double largest);

#endif
