/* Builds the problems of kernel checks from lathe_op_case (graph/ir/op_info.h). */
#ifndef LATHE_CHECK_OP_CASES_H
#define LATHE_CHECK_OP_CASES_H

#include "graph/ops/op_values.h"

/** Makes the problem of a case, with `dtype` for each tensor that the case writes as "c", the
 *  compute dtype; *out_uses_c: whether there is one, so that other dtypes are worth a run.
 *  LATHE_E_ARG: the case is misspelt. */
lathe_status lathe__op_case_problem(int32_t op, const lathe_op_case *c, int32_t dtype,
                                    lathe_op_problem *out, int *out_uses_c);

/** Writes the content of input i of a case to values[count], rounded to its dtype. */
void lathe__op_case_fill(const lathe_op_case *c, const lathe_op_problem *p, int32_t i,
                         double *values);

/** Allowed error of an output element whose exact value is `want`, if the largest element is
 *  `largest`. is_gpu: the device has memory of its own; tensor cores keep fewer bits of the sums
 *  of fp8 products. */
double lathe__op_case_bound(const lathe_op_case *c, int32_t compute_dtype, int32_t out_dtype,
                            int32_t is_gpu, double want, double largest);

#endif
