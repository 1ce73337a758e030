/* Gradients in few dimensions: what optimizers share that keep their state of a matrix projected.
 *
 * A matrix [rows, cols] is seen as n_lines lines of `length` elements, along its shorter side: rows
 * where rows >= cols, else columns. The projector P [rank, length] makes rank numbers of a line:
 *
 *     R[k][l] = sum over j of P[k][j] * G(l, j)          back:  U(l, j) = sum over k of N[k][l] * P[k][j]
 *
 * State is kept as [rank, n_lines]. Work goes by LATHE_LINES lines, which touch nothing of each other's.
 * On the CPU; sums run in the order of j and of k.
 */
#ifndef LATHE_LOW_RANK_H
#define LATHE_LOW_RANK_H

#include <string.h>

#include "elementwise_cpu.h"

#define LATHE_LINES 16
#define LATHE_MAX_PROJECTION 1024
#define LATHE__LINE_TILE 256

typedef struct lathe_low_rank {
    int64_t rows, cols, rank;
    int32_t by_columns;     /* 1: the lines are columns */
    int32_t reserved;       /* 0 */
    const float *projector; /* [rank, length] */
} lathe_low_rank;

static inline int64_t lathe_low_rank_lines(const lathe_low_rank *r)
{
    return r->by_columns ? r->cols : r->rows;
}

static inline int64_t lathe_low_rank_length(const lathe_low_rank *r)
{
    return r->by_columns ? r->rows : r->cols;
}

/* x(line + l, j) of the matrix. */
static inline int64_t lathe__line_at(const lathe_low_rank *r, int64_t line, int64_t j)
{
    return r->by_columns ? j * r->cols + line : line * r->cols + j;
}

/** out[rank][LATHE_LINES] = R of lines [line, line + n), n <= LATHE_LINES; other lanes 0. `scale` is a
 *  factor on g. */
LATHE_CLONES static inline void lathe_low_rank_project(const lathe_low_rank *r, const float *g,
                                                       float scale, int64_t line, int64_t n,
                                                       float *out)
{
    const int64_t length = lathe_low_rank_length(r);
    memset(out, 0, sizeof(float) * LATHE_LINES * (size_t)r->rank);
    for (int64_t at = 0; at < length; at += LATHE__LINE_TILE) {
        const int64_t m = length - at < LATHE__LINE_TILE ? length - at : LATHE__LINE_TILE;
        float tile[LATHE__LINE_TILE][LATHE_LINES] = {{0.0f}};
        for (int64_t l = 0; l < n; l++)
            for (int64_t j = 0; j < m; j++)
                tile[j][l] = g[lathe__line_at(r, line + l, at + j)] * scale;
        for (int64_t k = 0; k < r->rank; k++) {
            const float *const p = r->projector + k * length + at;
            float sum[LATHE_LINES];
            memcpy(sum, out + k * LATHE_LINES, sizeof sum);
            for (int64_t j = 0; j < m; j++)
                for (int l = 0; l < LATHE_LINES; l++)
                    sum[l] = fmaf(p[j], tile[j][l], sum[l]);
            memcpy(out + k * LATHE_LINES, sum, sizeof sum);
        }
    }
}

/** x(l, j) += factor*U(l, j); x(l, j) -= decay*x(l, j) for lines [line, line + n), U from n_in [rank][LATHE_LINES]. */
LATHE_CLONES static inline void lathe_low_rank_add(const lathe_low_rank *r, const float *n_in,
                                                   int64_t line, int64_t n, float factor,
                                                   float decay, float *x)
{
    const int64_t length = lathe_low_rank_length(r);
    for (int64_t at = 0; at < length; at += LATHE__LINE_TILE) {
        const int64_t m = length - at < LATHE__LINE_TILE ? length - at : LATHE__LINE_TILE;
        float tile[LATHE__LINE_TILE][LATHE_LINES] = {{0.0f}};
        for (int64_t k = 0; k < r->rank; k++) {
            const float *const p = r->projector + k * length + at;
            const float *const c = n_in + k * LATHE_LINES;
            for (int64_t j = 0; j < m; j++)
                for (int l = 0; l < LATHE_LINES; l++)
                    tile[j][l] = fmaf(p[j], c[l], tile[j][l]);
        }
        for (int64_t l = 0; l < n; l++)
            for (int64_t j = 0; j < m; j++) {
                float *const to = &x[lathe__line_at(r, line + l, at + j)];
                const float moved = fmaf(factor, tile[j][l], *to);
                *to = fmaf(-decay, moved, moved); /* 1 - decay would lose it to rounding */
            }
    }
}

/* Adam as transformers' AdamW orders it: u = m/(sqrt(v) + eps), a step of
 * lr*sqrt(1 - b2^t)/(1 - b1^t) along it, the decay afterwards. */
typedef struct lathe_adam_numbers {
    float beta1, new1, beta2, new2, eps;
} lathe_adam_numbers;

static inline lathe_adam_numbers lathe_adam_numbers_of(double beta1, double beta2, double eps)
{
    const lathe_adam_numbers a = {(float)beta1, (float)(1.0 - beta1), (float)beta2,
                                  (float)(1.0 - beta2), (float)eps};
    return a;
}

/** Updates n elements of m and v with g and writes u. */
LATHE_CLONES static inline void lathe_adam_direction(const lathe_adam_numbers *a, const float *g,
                                                     float *m, float *v, float *u, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        m[i] = fmaf(a->new1, g[i], a->beta1 * m[i]);
        v[i] = fmaf(a->new2 * g[i], g[i], a->beta2 * v[i]);
        u[i] = m[i] / (sqrtf(v[i]) + a->eps);
    }
}

/** The rule on elements [begin, end) of a tensor that is not projected: p += factor*u; p -= decay*p, with
 *  the compute copy refreshed. slots[0] is m, slots[1] v. */
static inline void lathe_adam_elements(const lathe_adam_numbers *a, const lathe_optimizer_tensor *x,
                                       float scale, float factor, float decay, int64_t begin,
                                       int64_t end)
{
    float *const m = (float *)x->slots[0], *const v = (float *)x->slots[1];
    float g[LATHE__LINE_TILE], u[LATHE__LINE_TILE];
    for (int64_t at = begin; at < end; at += LATHE__LINE_TILE) {
        const int64_t n = end - at < LATHE__LINE_TILE ? end - at : LATHE__LINE_TILE;
        for (int64_t i = 0; i < n; i++)
            g[i] = x->grad[at + i] * scale;
        lathe_adam_direction(a, g, m + at, v + at, u, n);
        for (int64_t i = 0; i < n; i++) {
            const float moved = fmaf(factor, u[i], x->param[at + i]);
            x->param[at + i] = fmaf(-decay, moved, moved);
        }
    }
    lathe_shadow_refresh(x, begin, end);
}

#endif
