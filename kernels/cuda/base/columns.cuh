/* Sums a matrix over its rows, one sum per column (dw and db of norms and linears). Blocks of rows
 * give partial sums, which are added in order. The split depends only on the number of rows. */
#ifndef LATHE_CUDA_COLUMNS_CUH
#define LATHE_CUDA_COLUMNS_CUH

#include "base/launch.cuh"

#define CUDA_COLUMN_PARTS 256 /* maximum */

/** Rows of one part, and the number of parts (at least 1). */
static inline int64_t cuda_columns_rows(int64_t rows)
{
    const int64_t each = (rows + CUDA_COLUMN_PARTS - 1) / CUDA_COLUMN_PARTS;
    return each < 1 ? 1 : each;
}

static inline int64_t cuda_columns_parts(int64_t rows)
{
    const int64_t each = cuda_columns_rows(rows);
    return rows < 1 ? 1 : (rows + each - 1) / each;
}

/** Bytes of the partial sums, f32 [parts, cols]. */
static inline int64_t cuda_columns_scratch(int64_t rows, int64_t cols)
{
    return cuda_columns_parts(rows) * cols * 4;
}

/* out[j] (= or +=) sum over p of partials[p, j]. A block computes 32 columns; each of its warps
 * adds every eighth part in order, then the sums of the warps are added in order. */
static __global__ void __launch_bounds__(CUDA_THREADS)
    cuda_columns_add(const float *partials, int64_t parts, int64_t cols, float *out, int accumulate)
{
    constexpr int warps = CUDA_THREADS / CUDA_WARP;
    __shared__ float sums[warps][CUDA_WARP];
    const int warp = (int)threadIdx.x / CUDA_WARP, lane = (int)threadIdx.x % CUDA_WARP;
    const int64_t j = (int64_t)blockIdx.x * CUDA_WARP + lane;
    float sum = 0.0f;
    if (j < cols) {
        CUDA_UNROLL(8)
        for (int64_t p = warp; p < parts; p += warps)
            sum += partials[p * cols + j];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || j >= cols)
        return;
    for (int w = 1; w < warps; w++)
        sum += sums[w][lane];
    out[j] = accumulate ? out[j] + sum : sum;
}

static inline lathe_status cuda_columns_finish(const lathe_kernel *k, const lathe_kernel_args *a,
                                               const float *partials, int64_t parts, int64_t cols,
                                               float *out, int accumulate)
{
    return cuda_run(k, a, (cols + CUDA_WARP - 1) / CUDA_WARP, CUDA_THREADS, cuda_columns_add,
                    partials, parts, cols, out, accumulate);
}

/* partials[p, j] = sum of x[r, j] over the rows r of part p. A block computes CUDA_THREADS columns
 * of a part. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    cuda_columns_parts_of(const T *x, float *partials, int64_t rows, int64_t cols,
                          int64_t rows_per_part, int64_t blocks_per_part)
{
    const int64_t part = blockIdx.x / blocks_per_part;
    const int64_t j = blockIdx.x % blocks_per_part * blockDim.x + threadIdx.x;
    const int64_t first = part * rows_per_part;
    const int64_t last = first + rows_per_part < rows ? first + rows_per_part : rows;
    if (j >= cols)
        return;
    float sum = 0.0f;
    for (int64_t r = first; r < last; r++)
        sum += cuda_float(x[r * cols + j]);
    partials[part * cols + j] = sum;
}

/** out[j] (= or +=) sum over r of x[r, j]. The scratch of cuda_columns_scratch(rows, cols) bytes
 *  holds the partial sums. */
static inline lathe_status cuda_columns_sum(const lathe_kernel *k, const lathe_kernel_args *a,
                                            const void *x, int32_t dtype, int64_t rows,
                                            int64_t cols, float *out, int accumulate)
{
    const int64_t parts = cuda_columns_parts(rows),
                  across = (cols + CUDA_THREADS - 1) / CUDA_THREADS;
    float *partials = (float *)a->scratch;
    CUDA_BY_DTYPE(dtype, T, {
        LATHE_TRY(cuda_run(k, a, parts * across, CUDA_THREADS, cuda_columns_parts_of<T>,
                           (const T *)x, partials, rows, cols, cuda_columns_rows(rows), across));
    });
    return cuda_columns_finish(k, a, partials, parts, cols, out, accumulate);
}

#endif
