/* The leading singular vectors of a matrix, and the last ones. */
#ifndef LATHE_EXEC_SINGULAR_H
#define LATHE_EXEC_SINGULAR_H

#include <stdint.h>

#include "lathe/status.h"

/** Splits the best approximation of w [rows, cols] of rank r into two factors: row k of a [r, cols]
 *  is sqrt(scale * s_k) v_k and column k of b [rows, r] is sqrt(scale * s_k) u_k, with the singular
 *  values s_1 >= s_2 >= .. and their vectors, so b a = scale * sum of s_k u_k v_k^T. The largest
 *  element of each vector of the shorter side is positive. r is at most min(rows, cols).
 *
 *  Eigenvectors of the Gram matrix of the shorter side, in double (base/eigen.h): about
 *  min(rows, cols)^2 (rows + cols) + 4 min(rows, cols)^3 multiplications, and memory for two such
 *  matrices. Bitwise repeatable. LATHE_E_NUMERIC: w is not finite; LATHE_E_NOMEM. */
lathe_status lathe_singular_factors(const float *w, int64_t rows, int64_t cols, int64_t r,
                                    double scale, float *a, float *b);

/** Gives the left singular vectors of w [rows, cols] for its r smallest singular values as the
 *  columns of out [rows, r], falling values first: U[:, -r:] of torch.linalg.svd with
 *  full_matrices=False, but for signs. of_columns 1: the right ones, out [cols, r]. r is at most
 *  min(rows, cols). Work, memory and LATHE_E_NUMERIC as above. LATHE_E_CONFIG: vectors of the
 *  longer side are wanted, and one of their values is 0 (to 1e-12 of the largest), so that its
 *  vector is not determined. */
lathe_status lathe_singular_minor(const float *w, int64_t rows, int64_t cols, int64_t r,
                                  int32_t of_columns, float *out);

#endif
