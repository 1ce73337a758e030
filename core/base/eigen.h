/* Eigenvectors of a symmetric matrix, largest eigenvalues first: lathe_host.eigenvectors, and for
 * singular vectors of weights. */
#ifndef LATHE_BASE_EIGEN_H
#define LATHE_BASE_EIGEN_H

#include "lathe/host.h"

/** lathe_host.eigenvectors. Afterwards row i of a is the eigenvector of the eigenvalue i of the n
 *  doubles with which the scratch begins, in no order. */
lathe_status lathe_eigenvectors(double *a, int64_t n, int64_t k, float *out, void *scratch);

#endif
