/* Builds the problems that a device's kernels are checked on from lathe_op_case (ir/op_info.h). */
#ifndef LATHE_DEVICECHECK_OP_CASES_H
#define LATHE_DEVICECHECK_OP_CASES_H

#include "ir/ops/op_values.h"

/** The problem of a case in a compute dtype. LATHE_E_ARG: the case is misspelt. *out_uses_c:
 *  whether c stands in it. */
lathe_status lathe__op_case_problem(int32_t op, const lathe_op_case *c, int32_t dtype,
                                    lathe_op_problem *out, int *out_uses_c);

/** What input i of a case holds, exactly as its dtype holds it, into values[count]. */
void lathe__op_case_fill(const lathe_op_case *c, const lathe_op_problem *p, int32_t i,
                         double *values);

/** Allowed error of output element `want` if the largest is `largest`; added: the value before, for
 *  outputs that are added to. */
double lathe__op_case_bound(const lathe_op_case *c, int32_t compute_dtype, int32_t out_dtype,
                            double want, double largest);

#endif
