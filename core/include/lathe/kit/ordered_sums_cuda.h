/* Sums that a kernel adds up in the order of the CPU's loop, so that both give the same bits. CUDA
 * C++ only.
 *
 * A run is what the loop adds up in one go, from its first element to its last. A block of threads
 * takes LATHE_RUNS runs: all threads fetch a tile of each, then one thread of a run adds the tile's
 * values.
 */
#ifndef LATHE_KIT_ORDERED_SUMS_CUDA_H
#define LATHE_KIT_ORDERED_SUMS_CUDA_H

#include "elementwise.h"

#define LATHE_RUNS 32
#define LATHE__RUN_TILE 64

typedef double lathe__run_tile[LATHE_RUNS][LATHE__RUN_TILE + 1];

/* The one of a kernel, however many sums it makes. */
static __device__ inline lathe__run_tile *lathe__run_tile_get(void)
{
    __shared__ lathe__run_tile tile;
    return &tile;
}

/** In thread k < n_runs the sum over j < length of value(k, j), in the order of j; 0 in the
 *  others. All threads call it, with the same arguments. is_across: neighbours in memory are
 *  those of k, else those of j. */
template <typename Value>
static __device__ inline double lathe_run_sum(int n_runs, int64_t length, int is_across,
                                              const Value &value)
{
    lathe__run_tile &tile = *lathe__run_tile_get();
    double sum = 0.0;
    for (int64_t at = 0; at < length; at += LATHE__RUN_TILE) {
        const int m = (int)(length - at < LATHE__RUN_TILE ? length - at : LATHE__RUN_TILE);
        for (int e = (int)threadIdx.x; e < LATHE_RUNS * LATHE__RUN_TILE;
             e += LATHE_ELEMENTWISE_THREADS) {
            const int k = is_across ? e % LATHE_RUNS : e / LATHE__RUN_TILE;
            const int j = is_across ? e / LATHE_RUNS : e % LATHE__RUN_TILE;
            if (k < n_runs && j < m)
                tile[k][j] = value(k, at + j);
        }
        __syncthreads();
        if ((int)threadIdx.x < n_runs)
            for (int j = 0; j < m; j++)
                sum += tile[threadIdx.x][j];
        __syncthreads();
    }
    return sum;
}

/** Sum of x[0 .. n-1], in order, in all threads. All threads call it. */
static __device__ inline double lathe_ordered_sum(const double *x, int64_t n)
{
    __shared__ double total;
    const double sum = lathe_run_sum(1, n, 0, [=](int, int64_t j) { return x[j]; });
    if (threadIdx.x == 0)
        total = sum;
    __syncthreads();
    const double all = total;
    __syncthreads();
    return all;
}

#endif
