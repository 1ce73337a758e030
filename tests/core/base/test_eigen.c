/* Eigenvectors: they reconstruct the matrix and are orthonormal; degenerate and empty cases. */
#include "base/eigen.h"
#include "support/optimizer_case.h"

/* All eigenvectors of G G^T, G [n, m] uniform: V^T V = I, and V A V^T is diagonal and
 * descending. */
static void check(int64_t n, int64_t m)
{
    double *const a = calloc((size_t)(n * n), sizeof *a), *const kept = calloc((size_t)(n * n), 8);
    float *const v = calloc((size_t)(n * n), sizeof *v);
    void *const scratch = malloc((size_t)lathe_eigenvectors_scratch(n));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t l = 0; l < m; l++)
                a[i * n + j] += (double)case_uniform(1, (uint64_t)i, l) *
                                (double)case_uniform(1, (uint64_t)j, l);
    memcpy(kept, a, (size_t)(n * n) * sizeof *a);
    cr_assert_eq(lathe_eigenvectors(a, n, n, v, scratch), LATHE_OK);
    double last = HUGE_VAL, trace = 0.0;
    for (int64_t i = 0; i < n; i++)
        trace += kept[i * n + i];
    for (int64_t p = 0; p < n; p++)
        for (int64_t q = 0; q <= p; q++) {
            double dot = 0.0, form = 0.0;
            for (int64_t i = 0; i < n; i++) {
                double row = 0.0;
                for (int64_t j = 0; j < n; j++)
                    row += kept[i * n + j] * (double)v[q * n + j];
                dot += (double)v[p * n + i] * (double)v[q * n + i];
                form += (double)v[p * n + i] * row;
            }
            /* the vectors are rounded to f32: 6e-8 each */
            cr_assert_float_eq(dot, p == q, 1e-6, "n %d: v%d.v%d is %g", (int)n, (int)p, (int)q,
                               dot);
            if (p != q)
                cr_assert_float_eq(form, 0.0, 1e-6 * trace, "n %d: %d %d", (int)n, (int)p, (int)q);
            if (p == q) {
                cr_assert(form <= last + 1e-6 * trace, "n %d: values rise at %d", (int)n, (int)p);
                last = form;
            }
        }
    free(a);
    free(kept);
    free(v);
    free(scratch);
}

Test(eigen, vectors_are_orthonormal_and_diagonalise)
{
    check(1, 1);
    check(2, 5);
    check(7, 7);
    check(40, 100);
    check(130, 200);
}

Test(eigen, takes_rank_deficient_and_zero_matrices)
{
    check(20, 3);
    double a[9] = {0};
    float v[9];
    double scratch[21];
    cr_assert_eq(lathe_eigenvectors(a, 3, 3, v, scratch), LATHE_OK);
    for (int k = 0; k < 9; k++)
        cr_assert(isfinite(v[k]));
}

Test(eigen, refuses_a_matrix_that_is_not_finite)
{
    double a[9] = {1, 2, 3, 2, (double)NAN, 1, 3, 1, 2};
    float v[9];
    double scratch[21];
    cr_assert_eq(lathe_eigenvectors(a, 3, 3, v, scratch), LATHE_E_NUMERIC);
}
