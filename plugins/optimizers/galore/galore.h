/* GaLore: formulas for the host and the GPU kernels, and those kernels. */
#ifndef LATHE_GALORE_H
#define LATHE_GALORE_H

#include "shared/low_rank_queue.h"

enum { SLOT_M, SLOT_V, SLOT_PROJECTOR };

/** Arguments of the kernels. */
typedef struct galore_args {
    lathe_low_rank_args low;
    double *gram; /* [length, length] out */
    float scale;
    int32_t reserved; /* 0 */
} galore_args;
LATHE_ABI_SIZE(galore_args, 160);

#define GALORE_GRAM_TILE 16 /* side of a block's tile of elements; one element per thread */

LATHE_HD static inline int64_t galore_gram_tiles(int64_t length)
{
    const int64_t n = (length + GALORE_GRAM_TILE - 1) / GALORE_GRAM_TILE;
    return n * n;
}

#ifdef __CUDACC__

/* Number of lines in shared memory at a time: a multiple of 8. */
#define GRAM_DEPTH 32

/* Element j of line l of the gradient. */
static __device__ inline float line_element(const float *g, const lathe_low_rank_args *a, int64_t l,
                                            int64_t j)
{
    return g[a->by_columns ? j * a->lines + l : l * a->length + j];
}

/* Loads elements [first, first + tile) of lines [at, at + n). */
static __device__ inline void fetch_lines(float (*to)[GALORE_GRAM_TILE + 1], const float *g,
                                          const lathe_low_rank_args *a, int64_t at, int n,
                                          int64_t first)
{
    for (int e = (int)threadIdx.x; e < GRAM_DEPTH * GALORE_GRAM_TILE;
         e += LATHE_ELEMENTWISE_THREADS) {
        const int l = a->by_columns ? e % GRAM_DEPTH : e / GALORE_GRAM_TILE;
        const int i = a->by_columns ? e / GRAM_DEPTH : e % GALORE_GRAM_TILE;
        if (l < n && first + i < a->length)
            to[l][i] = line_element(g, a, at + l, first + i);
    }
}

/* The Gram matrix, with sums in the order of gram_rows(): one sum over the lines or, by columns,
 * eight. A product of two floats is exact in double. Bound by shared memory: two loads per term. */
LATHE_CUDA_KERNEL(galore_gram, LATHE_ELEMENTWISE_THREADS, galore_args)
{
    __shared__ float rows[GRAM_DEPTH][GALORE_GRAM_TILE + 1], cols[GRAM_DEPTH][GALORE_GRAM_TILE + 1];
    const lathe_low_rank_args *const low = &a.low;
    const float *const g = low->on.tensors[low->t].grad;
    const int64_t n = low->length, across = (n + GALORE_GRAM_TILE - 1) / GALORE_GRAM_TILE;
    const int y = (int)threadIdx.x / GALORE_GRAM_TILE, x = (int)threadIdx.x % GALORE_GRAM_TILE;
    for (int64_t tile = blockIdx.x; tile < galore_gram_tiles(n); tile += gridDim.x) {
        const int64_t row = tile / across * GALORE_GRAM_TILE,
                      col = tile % across * GALORE_GRAM_TILE;
        double sum[8] = {0.0}, all = 0.0;
        for (int64_t at = 0; at < low->lines; at += GRAM_DEPTH) {
            const int m = (int)(low->lines - at < GRAM_DEPTH ? low->lines - at : GRAM_DEPTH);
            fetch_lines(rows, g, low, at, m, row);
            fetch_lines(cols, g, low, at, m, col);
            __syncthreads();
            if (row + y < n && col + x < n)
                for (int l = 0; l < m; l++) {
                    const double term = (double)rows[l][y] * (double)cols[l][x];
                    /* constant indices, so that the sums stay in registers */
                    for (int k = 0; k < 8; k++)
                        sum[k] += k == (low->by_columns ? l % 8 : 0) ? term : 0.0;
                }
            __syncthreads();
        }
        for (int k = 0; k < 8; k++)
            all += sum[k];
        if (row + y < n && col + x < n)
            a.gram[(row + y) * n + col + x] = low->by_columns ? all : sum[0];
    }
}

/* Applies the change of tensor t, from the directions of its lines. The block of a chunk processes
 * tiles and writes their sums. */
LATHE_CUDA_KERNEL(galore_apply, LATHE_ELEMENTWISE_THREADS, galore_args)
{
    const lathe_low_rank_args *const low = &a.low;
    const lathe_optimizer_tensor *const x = low->on.tensors + low->t;
    const int64_t rows = x->rows, cols = x->cols, n_chunks = lathe_queue_chunks(x);
    const float *const by_row = low->by_columns ? low->projector : low->u;
    const float *const by_col = low->by_columns ? low->u : low->projector;
    float factor, decay;
    lathe_low_rank_rates(low->on.scalars, x->lr_mult, low->weight_decay, x->weight_decay_mult,
                         &factor, &decay);
    factor *= a.scale;
    for (int64_t chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
        double change = 0.0, size = 0.0;
        for (int64_t tile = chunk; tile < lathe_n_tiles(rows, cols); tile += n_chunks)
            lathe_tile_product(
                rows, cols, low->rank, tile,
                [=](int64_t i, int64_t k) { return by_row[k * rows + i]; }, 0,
                [=](int64_t j, int64_t k) { return by_col[k * cols + j]; }, 0,
                [&](int64_t i, int64_t j, float u) {
                    const int64_t at = i * cols + j;
                    const float was = x->param[at];
                    const float now = lathe_low_rank_move(was, u, factor, decay);
                    x->param[at] = now;
                    lathe_elementwise_done(x, at, was, now, &change, &size);
                });
        lathe_elementwise_sums(&low->on, low->on.first_chunk[low->t] + chunk, change, size);
    }
}

#endif

#endif
