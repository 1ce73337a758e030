/* Casts bf16 to fp8, scaled by the largest magnitude of the source tensor, or of each row of the
 * result.
 *
 * Magnitudes are compared as the bits of bf16: these have the order of the numbers, with NaN above
 * infinity. So a maximum does not depend on the order of comparisons, and a NaN reaches the factor.
 * All kernels are bound by memory. A cast by rows that does not transpose reads its source once
 * (rows.cuh); all others read it twice, for the magnitude and for the cast. A transposed cast uses
 * a tile of codes in shared memory, so that it reads and writes whole sectors.
 */
#include "base/rows.cuh"
#include "lathe/fp8.h"
#include "products/fp8_product.h"

#define LANES 8                                /* bf16 elements in 16 bytes */
#define MOST_PARTS 1024                        /* partial maxima of a tensor */
#define TILE 64                                /* rows and columns of a transposed tile */
#define TILE_PACKS (TILE / LANES)              /* packs in a row of the tile */
#define TILE_LINES (CUDA_THREADS / TILE_PACKS) /* rows that are read at a time */
#define PART_ROWS 512                          /* rows per part, for the magnitudes of columns */

struct factors {
    float *factor, *inverse;
    int32_t dtype, recipe;
};

typedef cuda_pack<cuda_bf16, LANES> source_pack;
typedef cuda_pack<uint8_t, LANES> code_pack;

/* Converts two floats to codes; the first is in the low byte. */
template <int DTYPE> static __device__ __forceinline__ uint16_t codes_of(float first, float second)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t codes;
    if constexpr (DTYPE == LATHE_F8_E4M3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
    return codes;
#else
    const uint32_t low =
        DTYPE == LATHE_F8_E4M3 ? lathe_f32_to_e4m3(first) : lathe_f32_to_e5m2(first);
    const uint32_t high =
        DTYPE == LATHE_F8_E4M3 ? lathe_f32_to_e4m3(second) : lathe_f32_to_e5m2(second);
    return (uint16_t)(low | high << 8);
#endif
}

/* Multiplies eight elements by their factors and converts them. */
template <int DTYPE, typename F>
static __device__ __forceinline__ code_pack cast_pack(const source_pack &x, const F &factor)
{
    code_pack out;
    CUDA_UNROLLED
    for (int j = 0; j < LANES; j += 2) {
        const uint16_t codes =
            codes_of<DTYPE>(cuda_float(x.v[j]) * factor(j), cuda_float(x.v[j + 1]) * factor(j + 1));
        out.v[j] = (uint8_t)codes;
        out.v[j + 1] = (uint8_t)(codes >> 8);
    }
    return out;
}

static __device__ __forceinline__ unsigned magnitude(cuda_bf16 x)
{
    return x.bits & 0x7fffu;
}

static __device__ __forceinline__ unsigned larger(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

static __device__ __forceinline__ unsigned pack_magnitude(const source_pack &x)
{
    unsigned most = 0;
    CUDA_UNROLLED
    for (int j = 0; j < LANES; j++)
        most = larger(most, magnitude(x.v[j]));
    return most;
}

/* Maximum over the block; every thread must call it, and every thread gets the result. */
static __device__ unsigned block_magnitude(unsigned x)
{
    __shared__ unsigned warps[CUDA_THREADS / CUDA_WARP];
    x = cuda_warp_max(x);
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0)
        warps[threadIdx.x / CUDA_WARP] = x;
    __syncthreads();
    for (int w = 0; w < CUDA_THREADS / CUDA_WARP; w++)
        x = larger(x, warps[w]);
    return x;
}

static __device__ __forceinline__ float factor_of(unsigned most, int32_t dtype, int32_t recipe)
{
    return lathe_fp8_scale(lathe_bf16_to_f32((uint16_t)most), dtype, recipe);
}

static __device__ __forceinline__ void put_factor(const factors &f, int64_t i, unsigned most)
{
    const float factor = factor_of(most, f.dtype, f.recipe);
    f.factor[i] = factor;
    f.inverse[i] = 1.0f / factor;
}

/* Casts each row with its own factor, not transposed. */
template <int DTYPE, int KIND>
static __global__ void __launch_bounds__(CUDA_THREADS)
    cast_rows(const cuda_bf16 *x, uint8_t *codes, factors f, int64_t rows, int64_t d)
{
    const int64_t n = (int64_t)blockIdx.x * cuda_row_groups<KIND> + cuda_row_group<KIND>();
    if (n >= rows)
        return;
    const cuda_row<cuda_bf16, LANES, KIND> row(x + n * d, d);
    unsigned most = 0;
    cuda_row_each<KIND, LANES>(
        d, [&](int64_t i, int at) { most = larger(most, pack_magnitude(row.get(i, at))); });
    most = KIND == CUDA_ROW_WARP ? cuda_warp_max(most) : block_magnitude(most);
    const float factor = factor_of(most, DTYPE, f.recipe);
    if (cuda_row_place<KIND>() == 0)
        f.inverse[n] = 1.0f / factor;
    cuda_row_each<KIND, LANES>(d, [&](int64_t i, int at) {
        cuda_store(codes + n * d + i,
                   cast_pack<DTYPE>(row.get(i, at), [&](int) { return factor; }));
    });
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    tensor_parts(const cuda_bf16 *x, unsigned *parts, int64_t n)
{
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned most = 0;
    for (int64_t i = thread * LANES; i < n; i += (int64_t)gridDim.x * blockDim.x * LANES)
        most = larger(most, pack_magnitude(cuda_load<LANES>(x + i)));
    most = block_magnitude(most);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = most;
}

/* Combines the partial maxima into the factor of a tensor. One block. */
static __global__ void __launch_bounds__(CUDA_THREADS)
    finish_tensor(const unsigned *parts, int64_t n, factors f)
{
    unsigned most = 0;
    for (int64_t p = threadIdx.x; p < n; p += blockDim.x)
        most = larger(most, parts[p]);
    most = block_magnitude(most);
    if (threadIdx.x == 0)
        put_factor(f, 0, most);
}

/* parts[p, j] = maximum of column j over the rows of part p. A block computes TILE columns of a
 * part. */
static __global__ void __launch_bounds__(CUDA_THREADS)
    column_parts(const cuda_bf16 *x, unsigned *parts, int64_t rows, int64_t cols, int64_t across)
{
    __shared__ unsigned shared[TILE_LINES][TILE + 1];
    const int64_t part = blockIdx.x / across, first = part * PART_ROWS;
    const int64_t last = first + PART_ROWS < rows ? first + PART_ROWS : rows;
    const int64_t c0 = blockIdx.x % across * TILE;
    const int at = (int)threadIdx.x % TILE_PACKS * LANES, line = (int)threadIdx.x / TILE_PACKS;
    unsigned most[LANES] = {};
    for (int64_t r = first + line; r < last && c0 + at < cols; r += TILE_LINES) {
        const source_pack v = cuda_load<LANES>(x + r * cols + c0 + at);
        CUDA_UNROLLED
        for (int j = 0; j < LANES; j++)
            most[j] = larger(most[j], magnitude(v.v[j]));
    }
    CUDA_UNROLLED
    for (int j = 0; j < LANES; j++)
        shared[line][at + j] = most[j];
    __syncthreads();
    if (threadIdx.x >= TILE || c0 + threadIdx.x >= cols)
        return;
    unsigned all = 0;
    for (int l = 0; l < TILE_LINES; l++)
        all = larger(all, shared[l][threadIdx.x]);
    parts[part * cols + c0 + threadIdx.x] = all;
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    finish_columns(const unsigned *parts, int64_t n_parts, int64_t cols, factors f)
{
    const int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned most = 0;
    if (j >= cols)
        return;
    for (int64_t p = 0; p < n_parts; p++)
        most = larger(most, parts[p * cols + j]);
    put_factor(f, j, most);
}

template <int DTYPE>
static __global__ void __launch_bounds__(CUDA_THREADS)
    cast_all(const cuda_bf16 *x, uint8_t *codes, const float *factor, int64_t n)
{
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const float f = *factor;
    for (int64_t i = thread * LANES; i < n; i += (int64_t)gridDim.x * blockDim.x * LANES)
        cuda_store(codes + i, cast_pack<DTYPE>(cuda_load<LANES>(x + i), [&](int) { return f; }));
}

/* codes[c, r] = x[r, c] * factor[c * step]. A line of the tile has 17 words, one more than its
 * data, so that the eight packs of a row are four banks apart and the words of a column are in
 * different banks. */
template <int DTYPE>
static __global__ void __launch_bounds__(CUDA_THREADS)
    cast_transposed(const cuda_bf16 *x, uint8_t *codes, const float *factor, int64_t step,
                    int64_t rows, int64_t cols)
{
    constexpr int words = 16 / 4;
    __shared__ uint32_t tile[TILE][TILE / 4 + 1];
    const int64_t across = (cols + TILE - 1) / TILE;
    const int64_t r0 = blockIdx.x / across * TILE, c0 = blockIdx.x % across * TILE;
    const int at = (int)threadIdx.x % TILE_PACKS * LANES, line = (int)threadIdx.x / TILE_PACKS;
    for (int r = line; r < TILE; r += TILE_LINES) {
        if (r0 + r >= rows || c0 + at >= cols)
            continue;
        const float *of = factor + (c0 + at) * step;
        const code_pack out = cast_pack<DTYPE>(cuda_load<LANES>(x + (r0 + r) * cols + c0 + at),
                                               [&](int j) { return of[j * step]; });
        CUDA_UNROLLED
        for (int j = 0; j < LANES; j++)
            ((uint8_t *)tile[at + j])[r] = out.v[j];
    }
    __syncthreads();
    const int c = (int)threadIdx.x / words, r = (int)threadIdx.x % words * 16;
    if (c0 + c >= cols || r0 + r >= rows)
        return;
    cuda_pack<uint32_t, words> out;
    for (int w = 0; w < words; w++)
        out.v[w] = tile[c][r / 4 + w];
    cuda_store((uint32_t *)(codes + (c0 + c) * rows + r0 + r), out);
}

/* ---- host ---- */

static int64_t n_parts(const cuda_fp8_cast *c)
{
    const int64_t n = (c->outer * c->inner + CUDA_THREADS * LANES - 1) / (CUDA_THREADS * LANES);
    if (c->recipe == LATHE_FP8_TENSORWISE)
        return n < MOST_PARTS ? n : MOST_PARTS;
    return c->is_transposed ? (c->inner + PART_ROWS - 1) / PART_ROWS * c->outer : 0;
}

int64_t cuda_fp8_cast_place(cuda_fp8_cast *cast, int64_t at)
{
    const int64_t factors = (cast->recipe == LATHE_FP8_ROWWISE ? cast->outer : 1) * 4;
    cast->codes_at = at;
    cast->factors_at = cast->codes_at + cuda_round_up(cast->outer * cast->inner, 64);
    cast->inverses_at = cast->factors_at + cuda_round_up(factors, 64);
    cast->parts_at = cast->inverses_at + cuda_round_up(factors, 64);
    return cast->parts_at + cuda_round_up(n_parts(cast) * 4, 64);
}

template <int DTYPE, int KIND>
static lathe_status run_rows(const lathe_kernel *k, const lathe_kernel_args *a,
                             const cuda_fp8_cast *c, const cuda_bf16 *x, uint8_t *codes, factors f)
{
    const int64_t blocks = (c->outer + cuda_row_groups<KIND> - 1) / cuda_row_groups<KIND>;
    return cuda_run(k, a, blocks, CUDA_THREADS, cast_rows<DTYPE, KIND>, x, codes, f, c->outer,
                    c->inner);
}

/* Computes the factors of a source that the cast reads again. */
static lathe_status run_factors(const lathe_kernel *k, const lathe_kernel_args *a,
                                const cuda_fp8_cast *c, const cuda_bf16 *x, factors f)
{
    unsigned *parts = (unsigned *)((char *)a->scratch + c->parts_at);
    const int64_t n = n_parts(c);
    if (c->recipe == LATHE_FP8_TENSORWISE) {
        LATHE_TRY(cuda_run(k, a, n, CUDA_THREADS, tensor_parts, x, parts, c->outer * c->inner));
        return cuda_run(k, a, 1, CUDA_THREADS, finish_tensor, parts, n, f);
    }
    const int64_t across = (c->outer + TILE - 1) / TILE, down = n / c->outer;
    LATHE_TRY(cuda_run(k, a, down * across, CUDA_THREADS, column_parts, x, parts, c->inner,
                       c->outer, across));
    return cuda_run(k, a, (c->outer + CUDA_THREADS - 1) / CUDA_THREADS, CUDA_THREADS,
                    finish_columns, parts, down, c->outer, f);
}

template <int DTYPE>
static lathe_status run_as(const lathe_kernel *k, const lathe_kernel_args *a,
                           const cuda_fp8_cast *c, const cuda_bf16 *x)
{
    char *scratch = (char *)a->scratch;
    uint8_t *codes = (uint8_t *)(scratch + c->codes_at);
    const factors f = {(float *)(scratch + c->factors_at), (float *)(scratch + c->inverses_at),
                       c->dtype, c->recipe};
    if (c->recipe == LATHE_FP8_ROWWISE && !c->is_transposed) {
        if (c->inner <= CUDA_WARP * CUDA_ROW_KEPT)
            return run_rows<DTYPE, CUDA_ROW_WARP>(k, a, c, x, codes, f);
        if (c->inner <= CUDA_THREADS * CUDA_ROW_KEPT)
            return run_rows<DTYPE, CUDA_ROW_BLOCK>(k, a, c, x, codes, f);
        return run_rows<DTYPE, CUDA_ROW_LONG>(k, a, c, x, codes, f);
    }
    LATHE_TRY(run_factors(k, a, c, x, f));
    if (!c->is_transposed)
        return cuda_run(k, a, cuda_blocks(cuda_of(k), c->outer * c->inner / LANES), CUDA_THREADS,
                        cast_all<DTYPE>, x, codes, f.factor, c->outer * c->inner);
    const int64_t tiles = ((c->inner + TILE - 1) / TILE) * ((c->outer + TILE - 1) / TILE);
    return cuda_run(k, a, tiles, CUDA_THREADS, cast_transposed<DTYPE>, x, codes, f.factor,
                    c->recipe == LATHE_FP8_ROWWISE ? 1 : 0, c->inner, c->outer);
}

lathe_status cuda_fp8_cast_run(const lathe_kernel *k, const lathe_kernel_args *a,
                               const cuda_fp8_cast *cast, const void *source)
{
    if ((uintptr_t)source % 16 != 0)
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED,
                          "%s: fp8 is cast from tensors that are 16-byte aligned",
                          kernel_op_name(k));
    return cast->dtype == LATHE_F8_E4M3
               ? run_as<LATHE_F8_E4M3>(k, a, cast, (const cuda_bf16 *)source)
               : run_as<LATHE_F8_E5M2>(k, a, cast, (const cuda_bf16 *)source);
}
