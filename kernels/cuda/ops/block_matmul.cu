/* BLOCK_MATMUL: y[g] (= or +=) alpha op(a[g]) op(b[g]) for each block g of columns.
 *
 * A block of threads computes a tile of 32 by 32 results of one g, 32 terms at a time, which it
 * keeps in shared memory as f32; a thread computes 4 results. The rows of a tile have one extra
 * element, so that the elements of a column are in different banks. Each result is summed in f32 in
 * the order of k. With 32 columns to a block an element that is read takes part in 32
 * multiply-adds.
 */
#include "base/launch.cuh"

#define TILE 32
#define ROWS_AT_A_TIME (CUDA_THREADS / TILE)
#define RESULTS (TILE / ROWS_AT_A_TIME) /* of a thread */

struct operand {
    int64_t stride;     /* elements from one row to the next */
    int64_t width;      /* columns of a block */
    int64_t rows, cols; /* of op(x) of a block */
    int trans;
};

/* Loads rows i.. and columns j.. of op(x) of block g, zero outside. Threads of a warp read
 * neighbouring elements. */
template <typename T>
static __device__ __forceinline__ void load(float (*to)[TILE + 1], const T *x, operand o, int64_t g,
                                            int64_t i, int64_t j)
{
    const int lane = (int)threadIdx.x % TILE;
    for (int line = (int)threadIdx.x / TILE; line < TILE; line += ROWS_AT_A_TIME) {
        const int r = o.trans ? lane : line, c = o.trans ? line : lane;
        const int64_t row = o.trans ? j + c : i + r, col = o.trans ? i + r : j + c;
        to[r][c] = i + r < o.rows && j + c < o.cols
                       ? cuda_float(x[row * o.stride + g * o.width + col])
                       : 0.0f;
    }
}

template <typename T, typename Y>
static __global__ void __launch_bounds__(CUDA_THREADS)
    products(const T *a, const T *b, Y *y, operand oa, operand ob, int64_t y_stride,
             int64_t tiles_m, int64_t tiles_n, float alpha, int accumulate)
{
    __shared__ float ta[TILE][TILE + 1], tb[TILE][TILE + 1];
    const int64_t g = blockIdx.x / (tiles_m * tiles_n), tile = blockIdx.x % (tiles_m * tiles_n);
    const int64_t i = tile / tiles_n * TILE, j = tile % tiles_n * TILE;
    const int lane = (int)threadIdx.x % TILE, line = (int)threadIdx.x / TILE;
    float sums[RESULTS] = {};
    for (int64_t k = 0; k < oa.cols; k += TILE) {
        load(ta, a, oa, g, i, k);
        load(tb, b, ob, g, k, j);
        __syncthreads();
        for (int c = 0; c < TILE; c++) {
            const float v = tb[c][lane];
            CUDA_UNROLLED
            for (int r = 0; r < RESULTS; r++)
                sums[r] += ta[line + r * ROWS_AT_A_TIME][c] * v;
        }
        __syncthreads(); /* all threads have read the tiles */
    }
    CUDA_UNROLLED
    for (int r = 0; r < RESULTS; r++) {
        const int64_t row = i + line + r * ROWS_AT_A_TIME;
        if (row < oa.rows && j + lane < ob.cols)
            cuda_put(y + row * y_stride + g * ob.cols + j + lane, accumulate, alpha * sums[r]);
    }
}

static operand side(const lathe_desc *d, int64_t blocks, int32_t trans)
{
    const int64_t width = d->dims[1] / blocks;
    return {d->dims[1], width, trans ? width : d->dims[0], trans ? d->dims[0] : width, trans != 0};
}

template <typename T, typename Y>
static lathe_status run_as(lathe_kernel *k, const lathe_kernel_args *args)
{
    const int64_t g = k->attrs.count;
    const operand a = side(&k->in[0], g, k->attrs.trans_a);
    const operand b = side(&k->in[1], g, k->attrs.trans_b);
    const int64_t tiles_m = (a.rows + TILE - 1) / TILE, tiles_n = (b.cols + TILE - 1) / TILE;
    return cuda_run(k, args, g * tiles_m * tiles_n, CUDA_THREADS, products<T, Y>,
                    (const T *)args->in[0], (const T *)args->in[1], (Y *)args->out[0], a, b,
                    k->out[0].dims[1], tiles_m, tiles_n, (float)k->attrs.alpha,
                    (int)(args->accumulate & 1u));
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *args)
{
    CUDA_BY_DTYPE(k->in[0].dtype, T,
                  { CUDA_BY_DTYPE(k->out[0].dtype, Y, { return run_as<T, Y>(k, args); }); });
}

const kernel_op CUDA_OP(BLOCK_MATMUL) = {nullptr, run, nullptr, 1};
