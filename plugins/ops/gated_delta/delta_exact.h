/* The gated delta rule in double precision, for the checks. */
#ifndef DELTA_EXACT_H
#define DELTA_EXACT_H

#include "gated_delta.h"
#include "lathe/host.h"

/** o, and if y[1] is not NULL what remains of the sequences. x: inputs of the op; y: outputs. a:
 * shapes and scale alone. */
void delta_exact_forward(const lathe_host *host, const delta_args *a, const double *const *x,
                         double *const *y);

/** Gradients. x: the gradient of o, then the inputs of the op. */
void delta_exact_backward(const lathe_host *host, const delta_args *a, const double *const *x,
                          double *const *y);

#endif
