/* CUDA kernels of low_rank_queue.h, for the projection and for tensors that are not projected. The
 * sums of their matrix products run in the CPU's order. Include this file only through
 * low_rank_queue.h.
 *
 * A block computes a tile of 64 x 64 elements of a product, a thread 4 x 4 of them. Each term is
 * one fmaf, one term after another, so the bits equal the CPU's. Bound by f32 arithmetic outside
 * the tensor cores.
 */
#ifndef LATHE_OPTIMIZERS_LOW_RANK_CUDA_H
#define LATHE_OPTIMIZERS_LOW_RANK_CUDA_H

#include "low_rank_queue.h"

#define LATHE__DEPTH 16   /* terms of a tile in shared memory */
#define LATHE__THREADS 16 /* along each side of a block */

/* Loads terms [at, at + n) of the tile's elements from `first` on. is_deep: terms are contiguous in
 * memory. */
template <typename Get>
static __device__ inline void lathe__tile_fetch(float (*tile)[LATHE__TILE], int64_t first,
                                                int64_t size, int64_t at, int n, int is_deep,
                                                const Get &get)
{
    for (int e = (int)threadIdx.x; e < LATHE__DEPTH * LATHE__TILE; e += LATHE_ELEMENTWISE_THREADS) {
        const int k = is_deep ? e % LATHE__DEPTH : e / LATHE__TILE;
        const int i = is_deep ? e / LATHE__DEPTH : e % LATHE__TILE;
        if (k < n)
            tile[k][i] = first + i < size ? get(first + i, at + k) : 0.0f;
    }
}

/** Calls done(i, j, sum over k of a(i, k)*b(j, k)) for the elements i, j of tile number `tile` of
 *  [rows, cols]. All threads must call it. a_deep, b_deep: the elements of one sum are contiguous
 *  in memory. */
template <typename A, typename B, typename Done>
static __device__ inline void lathe_tile_product(int64_t rows, int64_t cols, int64_t depth,
                                                 int64_t tile, const A &a, int a_deep, const B &b,
                                                 int b_deep, const Done &done)
{
    __shared__ float left[LATHE__DEPTH][LATHE__TILE], right[LATHE__DEPTH][LATHE__TILE];
    const int64_t across = (cols + LATHE__TILE - 1) / LATHE__TILE;
    const int64_t row = tile / across * LATHE__TILE, col = tile % across * LATHE__TILE;
    const int y = (int)threadIdx.x / LATHE__THREADS, x = (int)threadIdx.x % LATHE__THREADS;
    float sum[4][4] = {{0.0f}};
    for (int64_t at = 0; at < depth; at += LATHE__DEPTH) {
        const int n = (int)(depth - at < LATHE__DEPTH ? depth - at : LATHE__DEPTH);
        lathe__tile_fetch(left, row, rows, at, n, a_deep, a);
        lathe__tile_fetch(right, col, cols, at, n, b_deep, b);
        __syncthreads();
        for (int k = 0; k < n; k++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fmaf(left[k][y + i * LATHE__THREADS],
                                     right[k][x + j * LATHE__THREADS], sum[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (row + y + i * LATHE__THREADS < rows && col + x + j * LATHE__THREADS < cols)
                done(row + y + i * LATHE__THREADS, col + x + j * LATHE__THREADS, sum[i][j]);
}

/* Updates tensors that are not projected. */
LATHE_CUDA_KERNEL(lathe_elementwise_step, LATHE_ELEMENTWISE_THREADS, lathe_low_rank_args)
{
    const float scale = a.on.scalars[LATHE_SCALAR_GRAD_SCALE];
    for (int64_t chunk = blockIdx.x; chunk < a.on.n_chunks; chunk += gridDim.x) {
        const lathe_elementwise_chunk c = lathe_elementwise_chunk_of(&a.on, chunk);
        float *const m = (float *)c.x->slots[0], *const v = (float *)c.x->slots[1];
        float factor, decay;
        double change = 0.0, size = 0.0;
        if (c.x->slots[a.projected_at] != NULL)
            continue;
        lathe_low_rank_rates(a.on.scalars, c.x->lr_mult, a.weight_decay, c.x->weight_decay_mult,
                             &factor, &decay);
        for (int64_t i = c.begin + threadIdx.x; i < c.end; i += blockDim.x) {
            const float u = lathe_adam_element(&a.adam, c.x->grad[i] * scale, &m[i], &v[i]);
            const float was = c.x->param[i];
            const float now = lathe_low_rank_move(was, u, factor, decay);
            c.x->param[i] = now;
            lathe_elementwise_done(c.x, i, was, now, &change, &size);
        }
        lathe_elementwise_sums(&a.on, chunk, change, size);
    }
}

/* Computes R of tensor t, updates its moments and computes its direction. */
LATHE_CUDA_KERNEL(lathe_low_rank_project, LATHE_ELEMENTWISE_THREADS, lathe_low_rank_args)
{
    const lathe_optimizer_tensor *const x = a.on.tensors + a.t;
    const float scale = a.on.scalars[LATHE_SCALAR_GRAD_SCALE];
    const float *const g = x->grad, *const p = a.projector;
    float *const m = (float *)x->slots[0], *const v = (float *)x->slots[1];
    float *const r = a.r, *const u = a.u;
    const int64_t lines = a.lines, length = a.length;
    const int by_columns = a.by_columns;
    const lathe_adam_numbers adam = a.adam;
    for (int64_t tile = blockIdx.x; tile < lathe_n_tiles(a.rank, lines); tile += gridDim.x)
        lathe_tile_product(
            a.rank, lines, length, tile, [=](int64_t k, int64_t j) { return p[k * length + j]; }, 1,
            [=](int64_t l, int64_t j) {
                return g[by_columns ? j * lines + l : l * length + j] * scale;
            },
            !by_columns,
            [=](int64_t k, int64_t l, float sum) {
                const int64_t i = k * lines + l;
                if (r != NULL)
                    r[i] = sum;
                u[i] = lathe_adam_element(&adam, sum, &m[i], &v[i]);
            });
}

#endif
