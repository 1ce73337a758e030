/* Assigns rows of a matrix to threads and loads them.
 *
 * A row of up to 1024 elements is processed by a warp, one of up to 8192 by a block of
 * CUDA_THREADS. They read it once, in packs of 16 bytes if d and the addresses allow, and keep it
 * in registers in its own dtype, at most 32 elements per thread. A longer row is processed by a
 * block that reads it again when needed.
 *
 * The assignment of elements to threads depends only on d and on N, the number of elements in a
 * pack.
 */
#ifndef LATHE_CUDA_ROWS_CUH
#define LATHE_CUDA_ROWS_CUH

#include "base/columns.cuh"
#include "base/launch.cuh"

enum cuda_row_kind { CUDA_ROW_WARP, CUDA_ROW_BLOCK, CUDA_ROW_LONG };

#define CUDA_ROW_KEPT 32 /* maximum elements of a row in one thread's registers */

template <int KIND>
constexpr int cuda_row_threads = KIND == CUDA_ROW_WARP ? CUDA_WARP : CUDA_THREADS;
/* Number of rows that a block processes at a time. */
template <int KIND> constexpr int cuda_row_groups = CUDA_THREADS / cuda_row_threads<KIND>;

/* Runs `statement` with T, N and KIND set for rows of d elements of a compute dtype. `packs`: d and
 * all addresses allow packs of 16 bytes. */
#define CUDA_BY_ROW(dtype, d, packs, T, N, KIND, ...)                                              \
    CUDA_BY_DTYPE(dtype, T, {                                                                      \
        if ((d) > CUDA_THREADS * CUDA_ROW_KEPT) {                                                  \
            constexpr int N = 1, KIND = CUDA_ROW_LONG;                                             \
            __VA_ARGS__;                                                                           \
        } else if (packs) {                                                                        \
            constexpr int N = cuda_lanes<T>;                                                       \
            CUDA_BY_ROW_KIND(d, KIND, __VA_ARGS__);                                                \
        } else {                                                                                   \
            constexpr int N = 1;                                                                   \
            CUDA_BY_ROW_KIND(d, KIND, __VA_ARGS__);                                                \
        }                                                                                          \
    })
#define CUDA_BY_ROW_KIND(d, KIND, ...)                                                             \
    do {                                                                                           \
        if ((d) <= CUDA_WARP * CUDA_ROW_KEPT) {                                                    \
            constexpr int KIND = CUDA_ROW_WARP;                                                    \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            constexpr int KIND = CUDA_ROW_BLOCK;                                                   \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/** This thread's row among the rows that the block has, and its place among the row's threads. */
template <int KIND> static __device__ __forceinline__ int cuda_row_group()
{
    return (int)threadIdx.x / cuda_row_threads<KIND>;
}

template <int KIND> static __device__ __forceinline__ int cuda_row_place()
{
    return (int)threadIdx.x % cuda_row_threads<KIND>;
}

/** Sum over the threads of a row, on each of them; all must call it. */
template <int KIND> static __device__ __forceinline__ float cuda_row_sum(float x)
{
    return KIND == CUDA_ROW_WARP ? cuda_warp_sum(x) : cuda_block_sum(x);
}

/** Maximum over the threads of a row, on each of them; all must call it. */
template <int KIND> static __device__ __forceinline__ float cuda_row_max(float x)
{
    return KIND == CUDA_ROW_WARP ? cuda_warp_max(x) : cuda_block_max(x);
}

/** Calls f(i, at) for each pack of this thread: elements i .. i+N-1, kept at `at` .. at+N-1. */
template <int KIND, int N, typename F>
static __device__ __forceinline__ void cuda_row_each(int64_t d, const F &f)
{
    constexpr int step = cuda_row_threads<KIND> * N;
    const int64_t first = (int64_t)cuda_row_place<KIND>() * N;
    if constexpr (KIND == CUDA_ROW_LONG) {
        for (int64_t i = first; i < d; i += step)
            f(i, 0);
    } else {
        CUDA_UNROLLED
        for (int p = 0; p < CUDA_ROW_KEPT / N; p++)
            if (first + p * step < d)
                f(first + p * step, p * N);
    }
}

/** Source of the rows: x, or x + other, rounded and stored to sum, which may be x or other. */
struct cuda_row_source {
    const void *x, *other;
    void *sum;
};

/** This thread's packs of one row. */
template <typename T, int N, int KIND> struct cuda_row {
    const T *row;
    cuda_pack<T, N> kept[KIND == CUDA_ROW_LONG ? 1 : CUDA_ROW_KEPT / N];

    __device__ __forceinline__ cuda_row(const T *of, int64_t d) : row(of)
    {
        if constexpr (KIND != CUDA_ROW_LONG)
            cuda_row_each<KIND, N>(
                d, [&](int64_t i, int at) { kept[at / N] = cuda_load<N>(row + i); });
    }

    /** The row that begins at element `first` of x, or of sum if `adds`. */
    __device__ __forceinline__ cuda_row(const cuda_row_source &s, int64_t first, int64_t d,
                                        int adds)
        : row((const T *)(adds ? s.sum : s.x) + first)
    {
        cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
            cuda_pack<T, N> x;
            if (KIND == CUDA_ROW_LONG && !adds)
                return;
            x = cuda_load<N>((const T *)s.x + first + i);
            if (adds) {
                const auto y = cuda_load<N>((const T *)s.other + first + i);
                for (int j = 0; j < N; j++)
                    x.v[j] = cuda_as<T>::from(cuda_float(x.v[j]) + cuda_float(y.v[j]));
                cuda_store((T *)s.sum + first + i, x);
            }
            if constexpr (KIND != CUDA_ROW_LONG)
                kept[at / N] = x;
        });
    }

    /** The pack that cuda_row_each passed to f. */
    __device__ __forceinline__ cuda_pack<T, N> get(int64_t i, int at) const
    {
        if constexpr (KIND == CUDA_ROW_LONG)
            return cuda_load<N>(row + i);
        else
            return kept[at / N];
    }
};

/** Sums over the rows of a block, one per column. Each thread adds to its own columns, in registers
 *  (for long rows in the block's part of the scratch); then the block's groups are added in
 *  order. */
template <int N, int KIND> struct cuda_row_columns {
    float sum[KIND == CUDA_ROW_LONG ? 1 : CUDA_ROW_KEPT];
    float *part; /* [d], of this block; NULL: not wanted */

    /** partials: [blocks, d] of scratch, or NULL. */
    __device__ __forceinline__ cuda_row_columns(float *partials, int64_t d)
        : part(partials == nullptr ? nullptr : partials + (int64_t)blockIdx.x * d)
    {
        if constexpr (KIND != CUDA_ROW_LONG) {
            CUDA_UNROLLED
            for (int i = 0; i < CUDA_ROW_KEPT; i++)
                sum[i] = 0.0f;
        } else if (part != nullptr) {
            cuda_row_each<KIND, N>(d, [&](int64_t i, int) { part[i] = 0.0f; });
        }
    }

    /** Adds x to element j of the pack that cuda_row_each passed to f. */
    __device__ __forceinline__ void add(int64_t i, int at, int j, float x)
    {
        if constexpr (KIND != CUDA_ROW_LONG)
            sum[at + j] += x;
        else if (part != nullptr)
            part[i + j] += x;
    }

    /** Writes the block's part; all threads of the block must call it. */
    __device__ __forceinline__ void finish(int64_t d)
    {
        if (part == nullptr || KIND == CUDA_ROW_LONG)
            return;
        if constexpr (KIND == CUDA_ROW_BLOCK)
            put(part, d, 0);
        else {
            __shared__ float shared[CUDA_WARP * CUDA_ROW_KEPT];
            for (int group = 0; group < cuda_row_groups<KIND>; group++) {
                if (group == cuda_row_group<KIND>())
                    put(shared, d, group > 0);
                __syncthreads();
            }
            for (int64_t i = threadIdx.x; i < d; i += blockDim.x)
                part[i] = shared[i];
            __syncthreads(); /* the next call uses `shared` again */
        }
    }

  private:
    __device__ __forceinline__ void put(float *to, int64_t d, int adds) const
    {
        cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
            for (int j = 0; j < N; j++)
                to[i + j] = adds ? to[i + j] + sum[at + j] : sum[at + j];
        });
    }
};

#endif
