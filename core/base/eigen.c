/* Eigenvectors of a symmetric matrix: Householder reduction to a tridiagonal matrix, then implicit
 * QL with Wilkinson's shift (Golub & Van Loan, 8.3). */
#include "base/eigen.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"

#define SPREAD 64         /* minimum rows or columns of work for one thread */
#define MAX_ITERATIONS 60 /* of QL for one eigenvalue; two or three are usual */

/* Scratch: d[n] e[n] v[n] w[n] c[n] s[n] in double, taken[n] in int64_t. */
typedef struct eigen {
    double *a; /* [n, n]: rows become the eigenvectors */
    int64_t n, size;
    double *d, *e; /* diagonal; elements below it */
    double *v, *w; /* Householder vector; A v */
    double *c, *s; /* rotations of one QL sweep: of rows first .. last-1 with the next row */
    int64_t first, last;
    double beta;
} eigen;

static void spread(eigen *g, int64_t n, lathe_range_fn fn)
{
    if (n > 0)
        lathe_parallel_for(n, SPREAD, fn, g);
}

/* w = A v for the leading `size` rows; all of A is stored. */
static void multiply(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const eigen *const g = arg;
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
static void rank_two(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const eigen *const g = arg;
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
static void tridiagonalise(eigen *g)
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
        spread(g, i, multiply);
        double dot = 0.0;
        for (int64_t j = 0; j < i; j++)
            dot += g->w[j] * g->v[j];
        for (int64_t j = 0; j < i; j++)
            g->w[j] = g->beta * (g->w[j] - 0.5 * g->beta * dot * g->v[j]);
        spread(g, i, rank_two);
        memcpy(row, g->v, (size_t)i * sizeof *row);
    }
    g->d[0] = g->a[0];
}

/* Multiplies rows [begin, end) by I - beta v v^T. */
static void reflect(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const eigen *const g = arg;
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
static void accumulate(eigen *g)
{
    const int64_t n = g->n;
    for (int64_t i = 0; i < n; i++) {
        double *const row = g->a + i * n;
        g->beta = g->s[i];
        g->size = i;
        memcpy(g->v, row, (size_t)i * sizeof *row);
        if (i > 0 && g->beta != 0.0)
            spread(g, i, reflect);
        memset(row, 0, (size_t)n * sizeof *row);
        row[i] = 1.0;
        for (int64_t r = 0; r < i; r++)
            g->a[r * n + i] = 0.0;
    }
}

/* Applies the sweep's rotations to columns [begin, end) of the rows. */
static void rotate(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const eigen *const g = arg;
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
static void sweep(eigen *g)
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
            spread(g, g->n, rotate);
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
    spread(g, g->n, rotate);
    d[l] -= p;
    e[l] = q;
    e[m] = 0.0;
}

static lathe_status diagonalise(eigen *g)
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
            if (iteration == MAX_ITERATIONS || !isfinite(g->d[l]))
                return lathe_error(LATHE_E_NUMERIC,
                                   "the eigenvectors of a matrix do not converge: is it finite?");
            g->first = l;
            g->last = m;
            sweep(g);
        }
    return LATHE_OK;
}

/* Writes row `from` of the basis as f32, with its largest element positive. */
static void take(const eigen *g, int64_t from, float *out)
{
    const double *const row = g->a + from * g->n;
    int64_t max = 0;
    for (int64_t j = 1; j < g->n; j++)
        if (fabs(row[j]) > fabs(row[max]))
            max = j;
    const double sign = row[max] < 0.0 ? -1.0 : 1.0;
    for (int64_t j = 0; j < g->n; j++)
        out[j] = (float)(sign * row[j]);
}

lathe_status lathe_eigenvectors(double *a, int64_t n, int64_t k, float *out, void *scratch)
{
    double *const at = scratch;
    eigen g;
    memset(&g, 0, sizeof g);
    g.a = a;
    g.n = n;
    g.d = at;
    g.e = at + n;
    g.v = at + 2 * n;
    g.w = at + 3 * n;
    g.c = at + 4 * n;
    g.s = at + 5 * n;
    int64_t *const taken = (int64_t *)(void *)(at + 6 * n);
    tridiagonalise(&g);
    accumulate(&g);
    LATHE_TRY(diagonalise(&g));
    memset(taken, 0, (size_t)n * sizeof *taken);
    for (int64_t r = 0; r < k; r++) {
        int64_t best = -1;
        for (int64_t j = 0; j < n; j++)
            if (!taken[j] && (best < 0 || g.d[j] > g.d[best]))
                best = j;
        taken[best] = 1;
        take(&g, best, out + r * n);
    }
    return LATHE_OK;
}
