/* Every op of lathe/op.h in plain double precision: what kernels, and the graphs that plugins build, are held to. */
#ifndef LATHE_CONFORMANCE_OP_REFERENCE_H
#define LATHE_CONFORMANCE_OP_REFERENCE_H

#include "lathe/op.h"
#include "lathe/status.h"

typedef struct lathe__op_problem {
    int32_t op, n_in, n_out;
    lathe_op_attrs attrs;
    lathe_desc in[LATHE_OP_MAX_IN],
        out[LATHE_OP_MAX_OUT]; /* dtype LATHE_ABSENT: not given, not wanted */
} lathe__op_problem;

/** out = op(in), all as doubles in row-major order; in[i], out[i] are NULL where absent. Outputs are zero before.
 *  What lies between the two halves of a joined op is rounded to the compute dtype, as the op says; nothing else is.
 *  LATHE_E_UNSUPPORTED: DEQUANT, whose meaning is the codec's. LATHE_E_NOMEM. */
lathe_status lathe__op_exact(const lathe__op_problem *p, double *const *in, double *const *out);

/** x as `dtype` holds it. */
double lathe__op_round(double x, int32_t dtype);
/** Element i of memory of a dtype, as a double, and the reverse. */
double lathe__op_load(const void *memory, int32_t dtype, int64_t i);
void lathe__op_store(void *memory, int32_t dtype, int64_t i, double x);

/* shared by the files of the references */
typedef void (*lathe__op_function)(const lathe__op_problem *p, double *const *in,
                                   double *const *out);
lathe__op_function lathe__op_products(int32_t op);
lathe__op_function lathe__op_norms(int32_t op);
lathe__op_function lathe__op_rows(int32_t op);
double lathe__gelu(double x);
double lathe__gelu_slope(double x);

#endif
