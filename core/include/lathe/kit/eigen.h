/* Eigenvectors of a symmetric matrix, largest eigenvalues first. */
#ifndef LATHE_KIT_EIGEN_H
#define LATHE_KIT_EIGEN_H

#include "tridiagonal.h"

#define LATHE_EIGEN_ITERATIONS 60

/* Applies the sweep's rotations to columns [begin, end) of the rows. */
static inline void lathe_eigen_rotate(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const lathe_eigen *const g = (const lathe_eigen *)arg;
    (void)worker;
    for (int64_t i = g->last - 1; i >= g->first; i--) {
        double *const x = g->a + i * g->n, *const y = x + g->n;
        const double c = g->c[i], s = g->s[i];
        for (int64_t j = begin; j < end; j++) {
            const double t = y[j];
            y[j] = s * x[j] + c * t;
            x[j] = c * x[j] - s * t;
        }
    }
}

/* One implicit QL sweep over first .. last, with the shift for `first`. */
static inline void lathe_eigen_sweep(lathe_eigen *g)
{
    double *const d = g->d, *const e = g->e;
    const int64_t l = g->first, m = g->last;
    double p = (d[l + 1] - d[l]) / (2.0 * e[l]);
    double r = hypot(p, 1.0);
    double q = d[m] - d[l] + e[l] / (p + (p >= 0.0 ? r : -r));
    double s = 1.0, c = 1.0;
    p = 0.0;
    for (int64_t i = m - 1; i >= l; i--) {
        const double f = s * e[i], b = c * e[i];
        r = hypot(f, q);
        e[i + 1] = r;
        if (r == 0.0) {
            d[i + 1] -= p;
            e[m] = 0.0;
            g->first = i + 1;
            lathe_eigen_spread(g, g->n, lathe_eigen_rotate);
            g->first = l;
            return;
        }
        s = f / r;
        c = q / r;
        q = d[i + 1] - p;
        const double t = (d[i] - q) * s + 2.0 * c * b;
        p = s * t;
        d[i + 1] = q + p;
        q = c * t - b;
        g->c[i] = c;
        g->s[i] = s;
    }
    lathe_eigen_spread(g, g->n, lathe_eigen_rotate);
    d[l] -= p;
    e[l] = q;
    e[m] = 0.0;
}

static inline lathe_status lathe_eigen_diagonalise(lathe_eigen *g)
{
    const int64_t n = g->n;
    g->e[n - 1] = 0.0;
    for (int64_t l = 0; l < n; l++)
        for (int iteration = 0;; iteration++) {
            int64_t m = l;
            for (; m < n - 1; m++) {
                const double size = fabs(g->d[m]) + fabs(g->d[m + 1]);
                if (fabs(g->e[m]) <= 0x1p-53 * size)
                    break;
            }
            if (m == l)
                break;
            if (iteration == LATHE_EIGEN_ITERATIONS || !isfinite(g->d[l]))
                return lathe_fail(g->host, LATHE_E_NUMERIC,
                                  "the eigenvectors of a matrix do not converge: is it "
                                  "finite?");
            g->first = l;
            g->last = m;
            lathe_eigen_sweep(g);
        }
    return LATHE_OK;
}

/* Writes row `from` of the basis as f32, with its largest element positive. */
static inline void lathe_eigen_take(const lathe_eigen *g, int64_t from, float *out)
{
    const double *const row = g->a + from * g->n;
    int64_t most = 0;
    for (int64_t j = 1; j < g->n; j++)
        if (fabs(row[j]) > fabs(row[most]))
            most = j;
    const double sign = row[most] < 0.0 ? -1.0 : 1.0;
    for (int64_t j = 0; j < g->n; j++)
        out[j] = (float)(sign * row[j]);
}

/** Bytes of scratch for a matrix of n x n. */
static inline int64_t lathe_eigen_scratch(int64_t n)
{
    return n * 7 * (int64_t)sizeof(double);
}

/** Orthonormal eigenvectors of a [n, n] (symmetric, destroyed) for its k largest eigenvalues, as
 *  rows of out [k, n]; the element of largest magnitude of each is positive. Afterwards row i of a
 *  is the eigenvector of the eigenvalue i of the n doubles with which the scratch begins, in no
 *  order.
 *
 *  Householder reduction to a tridiagonal matrix, then implicit QL with Wilkinson's shift, in
 *  double (Golub & Van Loan, 8.3). About 4 n^3 multiplications; uses the host's threads, with a
 *  split that depends only on n. LATHE_E_NUMERIC: not finite, or more than 60 iterations for one
 *  eigenvalue. */
static inline lathe_status lathe_eigenvectors(const lathe_host *host, double *a, int64_t n,
                                              int64_t k, float *out, void *scratch)
{
    double *const at = (double *)scratch;
    lathe_eigen g;
    memset(&g, 0, sizeof g);
    g.host = host;
    g.a = a;
    g.n = n;
    g.d = at;
    g.e = at + n;
    g.v = at + 2 * n;
    g.w = at + 3 * n;
    g.c = at + 4 * n;
    g.s = at + 5 * n;
    int64_t *const taken = (int64_t *)(void *)(at + 6 * n);
    lathe_eigen_tridiagonalise(&g);
    lathe_eigen_accumulate(&g);
    LATHE_TRY(lathe_eigen_diagonalise(&g));
    memset(taken, 0, (size_t)n * sizeof *taken);
    for (int64_t r = 0; r < k; r++) {
        int64_t best = -1;
        for (int64_t j = 0; j < n; j++)
            if (!taken[j] && (best < 0 || g.d[j] > g.d[best]))
                best = j;
        taken[best] = 1;
        lathe_eigen_take(&g, best, out + r * n);
    }
    return LATHE_OK;
}

#endif
