/* Elements of any dtype as doubles, and the outputs of an op in double precision. */
#ifndef LATHE_GRAPH_OP_VALUES_H
#define LATHE_GRAPH_OP_VALUES_H

#include "graph/ir/op_info.h"

/** out = op(in), all as doubles in row-major order; in[i] and out[i] are NULL if absent; outputs
 *  are zero on entry. Only the value between the two halves of a fused op is rounded, to the
 *  compute dtype, as the op defines. LATHE_E_UNSUPPORTED: DEQUANT, which the codec defines.
 *  LATHE_E_NOMEM. */
lathe_status lathe__op_exact(const lathe_op_problem *p, double *const *in, double *const *out);

/** x rounded to `dtype`. */
double lathe__op_round(double x, int32_t dtype);
/** Element i of memory of a dtype, as a double; and the reverse. */
double lathe__op_load(const void *memory, int32_t dtype, int64_t i);
void lathe__op_store(void *memory, int32_t dtype, int64_t i, double x);

/* Functions of one element that several ops share. */
double lathe__sigmoid(double x);
double lathe__gelu(double x);
double lathe__gelu_slope(double x);

#endif
