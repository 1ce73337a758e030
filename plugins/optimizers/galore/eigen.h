/* Eigenvectors of a symmetric matrix, largest eigenvalues first. */
#ifndef LATHE_GALORE_EIGEN_H
#define LATHE_GALORE_EIGEN_H

#include "lathe/host.h"

/** Bytes of scratch for a matrix of n x n. */
int64_t galore_eigen_scratch(int64_t n);

/** Orthonormal eigenvectors of a [n, n] (symmetric, destroyed) for its k largest eigenvalues, as
 *  rows of out [k, n]; the element of largest magnitude of each is positive.
 *
 *  Householder reduction to a tridiagonal matrix, then implicit QL with Wilkinson's shift, in
 *  double (Golub & Van Loan, 8.3). About 4 n^3 multiplications; uses the host's threads, with a
 *  split that depends only on n. LATHE_E_NUMERIC: not finite, or more than 60 iterations for one
 *  eigenvalue. */
lathe_status galore_eigen(const lathe_host *host, double *a, int64_t n, int64_t k, float *out,
                          void *scratch);

#endif
