/* EXPERT_LINEAR and its derivatives: products with a weight for each expert.
 *
 * The rows of an expert are known on the device only, and cuBLASLt needs sizes on the host; waiting
 * for them would end the queue in every layer. So blocks find their tile themselves: there are at
 * most M/32 + E tiles of rows, and a block adds up the tiles of the experts until it reaches its
 * own. A tile is 32 by 32 results, 32 terms at a time through shared memory in f32, as in
 * block_matmul.cu; tensor cores are not used.
 *
 * Each result is summed in f32 in the order of its terms, so a row's bits do not depend on the
 * other rows. */
#include "base/launch.cuh"

#define TILE 32
#define ROWS_AT_A_TIME (CUDA_THREADS / TILE)
#define RESULTS (TILE / ROWS_AT_A_TIME) /* of a thread */

/* Rows [row, end) of an expert; expert < 0: the block has no tile. */
struct expert_tile {
    int32_t expert;
    int64_t row, end;
};

static __device__ expert_tile find_tile(const int32_t *first, int32_t experts, int64_t tile)
{
    for (int32_t e = 0; e < experts; e++) {
        const int64_t tiles = (first[e + 1] - first[e] + TILE - 1) / TILE;
        if (tile < tiles)
            return {e, first[e] + tile * TILE, first[e + 1]};
        tile -= tiles;
    }
    return {-1, 0, 0};
}

/* A tile of y [rows, n] = x [rows, terms] b, where b is [n, terms] with `turned`, else [terms, n].
 */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    expert_rows(const T *x, const T *w, const int32_t *first, T *y, int32_t experts, int64_t terms,
                int64_t n, int64_t tiles_n, int turned, int accumulate)
{
    __shared__ float tx[TILE][TILE + 1], tw[TILE][TILE + 1];
    const expert_tile t = find_tile(first, experts, blockIdx.x / tiles_n);
    if (t.expert < 0) /* the same for the whole block */
        return;
    const int64_t j = blockIdx.x % tiles_n * TILE;
    const T *b = w + t.expert * n * terms;
    const int lane = (int)threadIdx.x % TILE, line = (int)threadIdx.x / TILE;
    float sums[RESULTS] = {};
    for (int64_t k = 0; k < terms; k += TILE) {
        for (int r = line; r < TILE; r += ROWS_AT_A_TIME) {
            tx[r][lane] = t.row + r < t.end && k + lane < terms
                              ? cuda_float(x[(t.row + r) * terms + k + lane])
                              : 0.0f;
            /* tw[term][column]; neighbouring threads read neighbouring elements */
            if (turned)
                tw[lane][r] = j + r < n && k + lane < terms
                                  ? cuda_float(b[(j + r) * terms + k + lane])
                                  : 0.0f;
            else
                tw[r][lane] =
                    j + lane < n && k + r < terms ? cuda_float(b[(k + r) * n + j + lane]) : 0.0f;
        }
        __syncthreads();
        for (int c = 0; c < TILE; c++) {
            const float v = tw[c][lane];
            CUDA_UNROLLED
            for (int r = 0; r < RESULTS; r++)
                sums[r] += tx[line + r * ROWS_AT_A_TIME][c] * v;
        }
        __syncthreads(); /* all threads have read the tiles */
    }
    CUDA_UNROLLED
    for (int r = 0; r < RESULTS; r++) {
        const int64_t row = t.row + line + r * ROWS_AT_A_TIME;
        if (row < t.end && j + lane < n)
            cuda_put(y + row * n + j + lane, accumulate, sums[r]);
    }
}

/* A tile of dW [o, i] of one expert: the sum of dy[r, o] x[r, i] over its rows. */
template <typename T, typename Y>
static __global__ void __launch_bounds__(CUDA_THREADS)
    expert_dw(const T *dy, const T *x, const int32_t *first, Y *dw, int64_t o, int64_t i,
              int64_t tiles_o, int64_t tiles_i, int accumulate)
{
    __shared__ float td[TILE][TILE + 1], tx[TILE][TILE + 1];
    const int64_t e = blockIdx.x / (tiles_o * tiles_i), tile = blockIdx.x % (tiles_o * tiles_i);
    const int64_t at_o = tile / tiles_i * TILE, at_i = tile % tiles_i * TILE;
    const int lane = (int)threadIdx.x % TILE, line = (int)threadIdx.x / TILE;
    const int64_t end = first[e + 1];
    float sums[RESULTS] = {};
    for (int64_t r = first[e]; r < end; r += TILE) {
        for (int c = line; c < TILE; c += ROWS_AT_A_TIME) {
            const int has_row = r + c < end;
            td[c][lane] =
                has_row && at_o + lane < o ? cuda_float(dy[(r + c) * o + at_o + lane]) : 0.0f;
            tx[c][lane] =
                has_row && at_i + lane < i ? cuda_float(x[(r + c) * i + at_i + lane]) : 0.0f;
        }
        __syncthreads();
        for (int c = 0; c < TILE; c++) {
            const float v = tx[c][lane];
            CUDA_UNROLLED
            for (int s = 0; s < RESULTS; s++)
                sums[s] += td[c][line + s * ROWS_AT_A_TIME] * v;
        }
        __syncthreads(); /* all threads have read the tiles */
    }
    CUDA_UNROLLED
    for (int s = 0; s < RESULTS; s++) {
        const int64_t row = at_o + line + s * ROWS_AT_A_TIME;
        if (row < o && at_i + lane < i)
            cuda_put(dw + (e * o + row) * i + at_i + lane, accumulate, sums[s]);
    }
}

static lathe_status run_rows(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t experts = k->in[2].dims[0] - 1, rows = k->in[0].dims[0];
    const int64_t terms = k->in[0].dims[1], n = k->out[0].dims[1];
    const int64_t tiles_n = (n + TILE - 1) / TILE, tiles = (rows + TILE - 1) / TILE + experts;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, tiles * tiles_n, CUDA_THREADS, expert_rows<T>, (const T *)a->in[0],
                        (const T *)a->in[1], (const int32_t *)a->in[2], (T *)a->out[0],
                        (int32_t)experts, terms, n, tiles_n,
                        (int)(k->op_id == LATHE_OP_EXPERT_LINEAR), (int)(a->accumulate & 1u));
    });
}

template <typename T, typename Y>
static lathe_status run_dw_as(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t experts = k->in[2].dims[0] - 1, o = k->in[0].dims[1], i = k->in[1].dims[1];
    const int64_t tiles_o = (o + TILE - 1) / TILE, tiles_i = (i + TILE - 1) / TILE;
    return cuda_run(k, a, experts * tiles_o * tiles_i, CUDA_THREADS, expert_dw<T, Y>,
                    (const T *)a->in[0], (const T *)a->in[1], (const int32_t *)a->in[2],
                    (Y *)a->out[0], o, i, tiles_o, tiles_i, (int)(a->accumulate & 1u));
}

static lathe_status run_dw(lathe_kernel *k, const lathe_kernel_args *a)
{
    CUDA_BY_DTYPE(k->in[0].dtype, T,
                  { CUDA_BY_DTYPE(k->out[0].dtype, Y, { return run_dw_as<T, Y>(k, a); }); });
}

const kernel_op CUDA_OP(EXPERT_LINEAR) = {nullptr, run_rows, nullptr, 0};
const kernel_op CUDA_OP(EXPERT_LINEAR_DX) = {nullptr, run_rows, nullptr, 1};
const kernel_op CUDA_OP(EXPERT_LINEAR_DW) = {nullptr, run_dw, nullptr, 1};
