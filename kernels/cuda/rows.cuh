/* Rows of a matrix, each by a warp (up to 1024 elements) or a block of CUDA_THREADS (up to 8192),
 * which read it once, in packs of 16 bytes where d and the addresses allow, and keep it in
 * registers as it came, 32 elements a thread at most. Longer rows take a block that reads again
 * what it needs again.
 *
 * Which thread has which elements is a function of d and of N, the elements of a pack, alone.
 */
#ifndef LATHE_CUDA_ROWS_CUH
#define LATHE_CUDA_ROWS_CUH

#include "columns.cuh"
#include "launch.cuh"

enum cuda_row_kind { CUDA_ROW_WARP, CUDA_ROW_BLOCK, CUDA_ROW_LONG };

#define CUDA_ROW_KEPT 32 /* elements of a row in a thread's registers, at most */

template <int KIND>
constexpr int cuda_row_threads = KIND == CUDA_ROW_WARP ? CUDA_WARP : CUDA_THREADS;
/* Rows that a block has under way. */
template <int KIND> constexpr int cuda_row_groups = CUDA_THREADS / cuda_row_threads<KIND>;

/* Runs `statement` with T, N and KIND for rows of d elements of a compute dtype; `packs`: d and all
 * addresses allow packs of 16 bytes. */
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

/** Which of the block's rows under way is this thread's, and its place among those that share it.
 */
template <int KIND> static __device__ __forceinline__ int cuda_row_group()
{
    return (int)threadIdx.x / cuda_row_threads<KIND>;
}

template <int KIND> static __device__ __forceinline__ int cuda_row_place()
{
    return (int)threadIdx.x % cuda_row_threads<KIND>;
}

/** Sum over the row's threads, the same on each; all of them call. */
template <int KIND> static __device__ __forceinline__ float cuda_row_sum(float x)
{
    return KIND == CUDA_ROW_WARP ? cuda_warp_sum(x) : cuda_block_sum(x);
}

/** Largest over the row's threads, the same on each; all of them call. */
template <int KIND> static __device__ __forceinline__ float cuda_row_max(float x)
{
    return KIND == CUDA_ROW_WARP ? cuda_warp_max(x) : cuda_block_max(x);
}

/** Calls f(i, at) for each pack of the thread's: elements i .. i+N-1, kept at `at` .. at+N-1. */
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

/** What rows are made of: x, or x + other, rounded, which goes to sum; that may be either. */
struct cuda_row_source {
    const void *x, *other;
    void *sum;
};

/** One row, the thread's packs of it. */
template <typename T, int N, int KIND> struct cuda_row {
    const T *row;
    cuda_pack<T, N> kept[KIND == CUDA_ROW_LONG ? 1 : CUDA_ROW_KEPT / N];

    __device__ __forceinline__ cuda_row(const T *of, int64_t d) : row(of)
    {
        if constexpr (KIND != CUDA_ROW_LONG)
            cuda_row_each<KIND, N>(
                d, [&](int64_t i, int at) { kept[at / N] = cuda_load<N>(row + i); });
    }

    /** The row that begins at element `first`, of x, or where it is to add, of the sum. */
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

    /** The pack that cuda_row_each names. */
    __device__ __forceinline__ cuda_pack<T, N> get(int64_t i, int at) const
    {
        if constexpr (KIND == CUDA_ROW_LONG)
            return cuda_load<N>(row + i);
        else
            return kept[at / N];
    }
};

/** Sums over the rows of a block, one per column: each thread adds to its own columns in registers
 * (for long rows in the block's part of the scratch), and the block's groups are added in order. */
template <int N, int KIND> struct cuda_row_columns {
    float sum[KIND == CUDA_ROW_LONG ? 1 : CUDA_ROW_KEPT];
    float *part; /* [d], this block's; NULL: not wanted */

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

    /** Element j of the pack that cuda_row_each names. */
    __device__ __forceinline__ void add(int64_t i, int at, int j, float x)
    {
        if constexpr (KIND != CUDA_ROW_LONG)
            sum[at + j] += x;
        else if (part != nullptr)
            part[i + j] += x;
    }

    /** Writes the block's part; all threads of the block call. */
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
            __syncthreads(); /* `shared` serves the next call as well */
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
