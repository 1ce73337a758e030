/* Reduces a symmetric matrix to a tridiagonal one: the first half of lathe/kit/eigen.h. */
#ifndef LATHE_KIT_TRIDIAGONAL_H
#define LATHE_KIT_TRIDIAGONAL_H

#include <math.h>
#include <string.h>

#include "../host.h"

#define LATHE_EIGEN_SPREAD 64 /* minimum rows or columns of work for one thread */

/* Scratch: d[n] e[n] v[n] w[n] c[n] s[n] in double, taken[n] in int64_t. */
typedef struct lathe_eigen {
    const lathe_host *host;
    double *a; /* [n, n]: rows become the eigenvectors */
    int64_t n, size;
    double *d, *e; /* diagonal; elements below it */
    double *v, *w; /* Householder vector; A v */
    double *c, *s; /* rotations of one QL sweep: of rows first .. last-1 with the next row */
    int64_t first, last;
    double beta;
} lathe_eigen;

static inline void lathe_eigen_spread(lathe_eigen *g, int64_t n, lathe_range_fn fn)
{
    if (n > 0)
        g->host->parallel_for(n, LATHE_EIGEN_SPREAD, fn, g);
}

/* w = A v for the leading `size` rows; all of A is stored. */
static inline void lathe_eigen_multiply(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const lathe_eigen *const g = (const lathe_eigen *)arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const double *const row = g->a + i * g->n;
        double sum[4] = {0.0};
        int64_t j = 0;
        for (; j + 4 <= g->size; j += 4)
            for (int k = 0; k < 4; k++)
                sum[k] += row[j + k] * g->v[j + k];
        for (; j < g->size; j++)
            sum[0] += row[j] * g->v[j];
        g->w[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
}

/* A -= v w^T + w v^T for the leading `size` rows. */
static inline void lathe_eigen_rank_two(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const lathe_eigen *const g = (const lathe_eigen *)arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        double *const row = g->a + i * g->n;
        const double x = g->v[i], y = g->w[i];
        for (int64_t j = 0; j < g->size; j++)
            row[j] -= x * g->w[j] + y * g->v[j];
    }
}

/* Reduces row by row, from the last. Row i stores its reflector H = I - beta v v^T: v in columns 0
 * .. i-1, beta in s[i]. */
static inline void lathe_eigen_tridiagonalise(lathe_eigen *g)
{
    const int64_t n = g->n;
    for (int64_t i = n - 1; i > 0; i--) {
        double *const row = g->a + i * n;
        double norm = 0.0;
        for (int64_t j = 0; j < i; j++)
            norm = hypot(norm, row[j]);
        g->d[i] = row[i];
        g->s[i] = 0.0;
        g->e[i - 1] = norm;
        if (norm == 0.0)
            continue;
        const double head = row[i - 1], sigma = head > 0.0 ? -norm : norm;
        g->e[i - 1] = sigma;
        memcpy(g->v, row, (size_t)i * sizeof *row);
        g->v[i - 1] = head - sigma;
        g->beta = -1.0 / (sigma * g->v[i - 1]);
        g->s[i] = g->beta;
        g->size = i;
        lathe_eigen_spread(g, i, lathe_eigen_multiply);
        double dot = 0.0;
        for (int64_t j = 0; j < i; j++)
            dot += g->w[j] * g->v[j];
        for (int64_t j = 0; j < i; j++)
            g->w[j] = g->beta * (g->w[j] - 0.5 * g->beta * dot * g->v[j]);
        lathe_eigen_spread(g, i, lathe_eigen_rank_two);
        memcpy(row, g->v, (size_t)i * sizeof *row);
    }
    g->d[0] = g->a[0];
}

/* Multiplies rows [begin, end) by I - beta v v^T. */
static inline void lathe_eigen_reflect(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const lathe_eigen *const g = (const lathe_eigen *)arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        double *const row = g->a + r * g->n;
        double dot = 0.0;
        for (int64_t j = 0; j < g->size; j++)
            dot += row[j] * g->v[j];
        dot *= g->beta;
        for (int64_t j = 0; j < g->size; j++)
            row[j] -= dot * g->v[j];
    }
}

/* Turns the reflectors into Q^T = H_1 H_2 ... with A = Q T Q^T; its rows are the basis. */
static inline void lathe_eigen_accumulate(lathe_eigen *g)
{
    const int64_t n = g->n;
    for (int64_t i = 0; i < n; i++) {
        double *const row = g->a + i * n;
        g->beta = g->s[i];
        g->size = i;
        memcpy(g->v, row, (size_t)i * sizeof *row);
        if (i > 0 && g->beta != 0.0)
            lathe_eigen_spread(g, i, lathe_eigen_reflect);
        memset(row, 0, (size_t)n * sizeof *row);
        row[i] = 1.0;
        for (int64_t r = 0; r < i; r++)
            g->a[r * n + i] = 0.0;
    }
}

#endif
