/* Linear attention with a decaying state in double precision, for the checks. */
#ifndef SCAN_EXACT_H
#define SCAN_EXACT_H

#include "lathe/host.h"
#include "scan.h"

/** o, and if y[1] is not NULL what remains of the sequences. x: inputs of the op, n_in and those of
 *  the state; y: outputs. a: shapes, scale and kind of rule alone. */
void scan_exact_forward(const lathe_host *host, const scan_args *a, int32_t n_in,
                        const double *const *x, double *const *y);

/** Gradients. x: the gradient of o, then the inputs of the op. */
void scan_exact_backward(const lathe_host *host, const scan_args *a, int32_t n_in,
                         const double *const *x, double *const *y);

#endif
