/* Sums in f64 over ranges of elements. A block sums a range: each thread adds every n-th element in
 * order, then the threads' sums are added in a fixed tree. The split depends only on the length of
 * the range. */
#ifndef LATHE_CUDA_SUMS_CUH
#define LATHE_CUDA_SUMS_CUH

#include "base/launch.cuh"

#define CUDA_SUM_PIECE 16384 /* elements of a long sum that one block adds */

/** Sum of f(i), first <= i < last, on every thread of the block; all must call it. f reads memory
 *  and writes none: a thread evaluates eight of its elements before it adds the first, so that
 *  their reads are in flight together. */
template <typename F>
static __device__ __forceinline__ double cuda_range_sum(int64_t first, int64_t last, const F &f)
{
    constexpr int AHEAD = 8;
    const int64_t stride = blockDim.x;
    double sum = 0.0;
    int64_t i = first + threadIdx.x;
    for (; i + (AHEAD - 1) * stride < last; i += AHEAD * stride) {
        double x[AHEAD];
        CUDA_UNROLLED
        for (int j = 0; j < AHEAD; j++)
            x[j] = f(i + j * stride);
        CUDA_UNROLLED
        for (int j = 0; j < AHEAD; j++)
            sum += x[j];
    }
    for (; i < last; i += stride)
        sum += f(i);
    return cuda_block_sum(sum);
}

/** Number of blocks for a sum over n elements, at least one. */
static inline int64_t cuda_sum_pieces(int64_t n)
{
    return n < 1 ? 1 : (n + CUDA_SUM_PIECE - 1) / CUDA_SUM_PIECE;
}

/** The block's piece of n elements. */
static __device__ __forceinline__ int64_t cuda_piece_first()
{
    return (int64_t)blockIdx.x * CUDA_SUM_PIECE;
}

static __device__ __forceinline__ int64_t cuda_piece_last(int64_t n)
{
    const int64_t last = cuda_piece_first() + CUDA_SUM_PIECE;
    return last < n ? last : n;
}

#endif
