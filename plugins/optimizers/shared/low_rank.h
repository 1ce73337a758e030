/* Low-rank projection of gradients, for optimizers that store the state of a matrix in projected
 * form.
 *
 * A matrix [rows, cols] consists of n_lines lines of `length` elements along its shorter side: rows
 * if rows >= cols, else columns. The projector P [rank, length] maps a line to `rank` numbers:
 *
 *     R[k][l] = sum over j of P[k][j] * G(l, j)
 *     U(l, j) = sum over k of N[k][l] * P[k][j]      (back)
 *
 * State has the shape [rank, n_lines]. Sums run in the order of j and of k. The CPU computes
 * LATHE_LINES independent lines at a time, a GPU uses the kernels of low_rank_cuda.h; both give the
 * same bits.
 */
#ifndef LATHE_OPTIMIZERS_LOW_RANK_H
#define LATHE_OPTIMIZERS_LOW_RANK_H

#include <math.h>
#include <string.h>

#include "lathe/kit/tensor_chunks.h"

#define LATHE_LINES 16
#define LATHE_MAX_PROJECTION 1024
#define LATHE__LINE_TILE 256

typedef struct lathe_low_rank {
    int64_t rows, cols, rank;
    int32_t by_columns;     /* 1: the lines are columns */
    int32_t reserved;       /* 0 */
    const float *projector; /* [rank, length] */
} lathe_low_rank;

/** Geometry of a parameter projected to `rank` directions. rank is 0 if it is not projected: roles
 *  other than MATRIX and ADAPTER, and matrices whose shorter side is not longer than `rank`. */
static inline lathe_low_rank lathe_low_rank_of(int64_t rank, int32_t role, int64_t rows,
                                               int64_t cols)
{
    const int64_t shorter = rows < cols ? rows : cols;
    const int is_matrix = role == LATHE_ROLE_MATRIX || role == LATHE_ROLE_ADAPTER;
    const lathe_low_rank r = {rows,        cols, is_matrix && shorter > rank ? rank : 0,
                              rows < cols, 0,    NULL};
    return r;
}

static inline lathe_low_rank lathe_low_rank_param(int64_t rank, const lathe_param_info *param)
{
    const int64_t rows = param->desc.rank > 1 ? param->desc.dims[0] : 1;
    const int64_t n = lathe_desc_count(&param->desc);
    return lathe_low_rank_of(rank, param->role, rows, rows > 0 ? n / rows : 0);
}

static inline int64_t lathe_low_rank_lines(const lathe_low_rank *r)
{
    return r->by_columns ? r->cols : r->rows;
}

static inline int64_t lathe_low_rank_length(const lathe_low_rank *r)
{
    return r->by_columns ? r->rows : r->cols;
}

/** Declares both moments: [rank, n_lines] if projected, else the parameter's shape. Returns 2. */
static inline int32_t lathe_low_rank_moments(const lathe_low_rank *r, const lathe_param_info *param,
                                             lathe_slot *out)
{
    const lathe_desc desc =
        r->rank > 0 ? lathe_desc_2d(LATHE_F32, r->rank, lathe_low_rank_lines(r)) : param->desc;
    out[0].name = "exp_avg";
    out[1].name = "exp_avg_sq";
    out[0].desc = out[1].desc = desc;
    out[0].desc.dtype = out[1].desc.dtype = LATHE_F32;
    return 2;
}

/** Moves an element by factor*u and then applies its decay. */
LATHE_HD static inline float lathe_low_rank_move(float x, float u, float factor, float decay)
{
    const float moved = fmaf(factor, u, x);
    return fmaf(-decay, moved, moved); /* 1 - decay would lose the decay to rounding */
}

/* x(line + l, j) of the matrix. */
static inline int64_t lathe__line_at(const lathe_low_rank *r, int64_t line, int64_t j)
{
    return r->by_columns ? j * r->cols + line : line * r->cols + j;
}

/** out[rank][LATHE_LINES] = R of lines [line, line + n), n <= LATHE_LINES; other lanes are 0.
 *  `scale` is a factor on g. */
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

/** x(l, j) += factor*U(l, j); x(l, j) -= decay*x(l, j) for lines [line, line + n), U from n_in
 * [rank][LATHE_LINES]. */
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
                *to = lathe_low_rank_move(*to, tile[j][l], factor, decay);
            }
    }
}

#endif
