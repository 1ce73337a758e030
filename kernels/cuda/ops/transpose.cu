/* TRANSPOSE: y[s,r] = x[r,s], any dtype of 1, 2, 4 or 8 bytes.
 *
 * A block moves a tile of 32 by 32 through shared memory, whose rows have one extra element so that
 * the elements of a column are in different banks. Bound by memory: each element is read and
 * written once; a row of a tile has 32 elements, which are whole sectors of 32 bytes if the
 * tensor's rows are.
 */
#include "base/launch.cuh"

#define TILE 32
#define ROWS_AT_A_TIME (CUDA_THREADS / TILE)

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    transpose(const T *x, T *y, int64_t rows, int64_t cols)
{
    __shared__ T tile[TILE][TILE + 1];
    const int64_t across = (cols + TILE - 1) / TILE;
    const int64_t r0 = blockIdx.x / across * TILE, c0 = blockIdx.x % across * TILE;
    const int lane = (int)threadIdx.x % TILE, line = (int)threadIdx.x / TILE;
    for (int i = line; i < TILE; i += ROWS_AT_A_TIME)
        if (r0 + i < rows && c0 + lane < cols)
            tile[i][lane] = x[(r0 + i) * cols + c0 + lane];
    __syncthreads();
    for (int i = line; i < TILE; i += ROWS_AT_A_TIME)
        if (c0 + i < cols && r0 + lane < rows)
            y[(c0 + i) * rows + r0 + lane] = tile[lane][i];
}

template <typename T> static lathe_status run_as(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t rows = k->in[0].dims[0], cols = k->in[0].dims[1];
    const int64_t tiles = ((rows + TILE - 1) / TILE) * ((cols + TILE - 1) / TILE);
    if (tiles == 0)
        return LATHE_OK;
    return cuda_run(k, a, tiles, CUDA_THREADS, transpose<T>, (const T *)a->in[0], (T *)a->out[0],
                    rows, cols);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    switch (lathe_dtype_bytes(k->in[0].dtype)) {
    case 1:
        return run_as<uint8_t>(k, a);
    case 2:
        return run_as<uint16_t>(k, a);
    case 4:
        return run_as<uint32_t>(k, a);
    default:
        return run_as<uint64_t>(k, a);
    }
}

const kernel_op CUDA_OP(TRANSPOSE) = {nullptr, run, nullptr, 0};
