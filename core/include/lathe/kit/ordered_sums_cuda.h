/* Sums in the order of a sequential CPU loop, for kernels that must give the same bits. CUDA C++
 * only.
 *
 * A run is a sequence of elements that the CPU loop adds one after the other. A block of threads
 * sums LATHE_RUNS runs at a time: all threads load a tile of each run, then one thread per run adds
 * the tile's values.
 */
#ifndef LATHE_KIT_ORDERED_SUMS_CUDA_H
#define LATHE_KIT_ORDERED_SUMS_CUDA_H

#include "elementwise.h"

#define LATHE_RUNS 32
#define LATHE__RUN_TILE 64

typedef double lathe__run_tile[LATHE_RUNS][LATHE__RUN_TILE + 1];

/* The kernel's tile in shared memory; all sums of the kernel use the same one. */
static __device__ inline lathe__run_tile *lathe__run_tile_get(void)
{
    __shared__ lathe__run_tile tile;
    return &tile;
}

/** Returns in thread k < n_runs the sum of value(k, j) over j < length, in the order of j;
 *  returns 0 in the other threads. All threads must call it, with the same arguments. is_across:
 *  consecutive k are neighbours in memory; else consecutive j are. */
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

/** Sum of x[0 .. n-1], in order. All threads must call it, and all get the sum. */
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
