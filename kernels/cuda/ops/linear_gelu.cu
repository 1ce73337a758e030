/* LINEAR_GELU and LINEAR_DX_GELU: the product is computed by blocks of rows, and GELU or its
 * derivative is applied to each block while it is in the cache.
 *
 *   z = x W^T + b,  y = gelu(z)
 *       z of 16 bits, with a bias: the product of a block is f32, in scratch; then one kernel
 *       adds the bias, rounds to z and computes y = gelu(z). Otherwise the product is written
 *       to z's rows (to y's rows, where z is not wanted).
 *   dz = (dy W) * gelu'(z)
 *       the product is written to dz's rows.
 *
 * Memory traffic: the forward writes y and z once, 2 elements; LINEAR followed by GELU_TANH
 * moves 3. The backward moves 2 (z, dz); LINEAR_DX followed by GELU_TANH_BWD moves 4. The results
 * are those of the separate ops.
 */
#include "ops/gelu.cuh"
#include "products/blocked_product.cuh"

struct linear_gelu {
    cuda_row_product blocks;
    int64_t block_at; /* offset of the f32 block, after the product's own scratch; -1: none */
};

static void release(lathe_kernel *k)
{
    linear_gelu *s = (linear_gelu *)k->state;
    cuda_row_product_destroy(cuda_of(k), &s->blocks);
    k->host->free(s);
}

static lathe_status make(lathe_kernel *k, const matmul_spec *spec, int64_t *out_scratch)
{
    linear_gelu *s = (linear_gelu *)k->host->alloc((int64_t)sizeof *s);
    if (s == nullptr)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    s->block_at = -1;
    return cuda_row_product_create(cuda_of(k), *spec, CUDA_BLOCK_BYTES, &s->blocks, out_scratch);
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    matmul_spec spec;
    kernel_product_linear(k, &spec);
    if (spec.invariant) /* LINEAR has it, and GELU follows as an op of its own */
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED,
                          "%s: no product whose rows do not depend on their number",
                          kernel_op_name(k));
    LATHE_TRY(make(k, &spec, out_scratch));
    linear_gelu *s = (linear_gelu *)k->state;
    if (!spec.bias || cuda_product_adds_bias(s->blocks.product))
        return LATHE_OK;
    int64_t bytes = 0;
    cuda_row_product_destroy(cuda_of(k), &s->blocks);
    spec.c_dtype = LATHE_F32;
    spec.bias = 0;
    /* a block is at most as large as y: the plan has that much memory for y's gradient if the two
     * ops are separate */
    LATHE_TRY(cuda_row_product_create(
        cuda_of(k), spec, spec.m * spec.n * lathe_dtype_bytes(spec.a_dtype), &s->blocks, &bytes));
    s->block_at = cuda_round_up(bytes, 64);
    *out_scratch = s->block_at + s->blocks.block_rows * spec.n * 4;
    return LATHE_OK;
}

static lathe_status prepare_dx(lathe_kernel *k, int64_t *out_scratch)
{
    matmul_spec spec;
    kernel_product_dx(k, &spec);
    return make(k, &spec, out_scratch);
}

/* z = p + bias, y = gelu(z). A block computes one row, a thread N columns at a time. z may be
 * NULL. */
template <int N, typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    add_bias_gelu(const float *p, const float *bias, T *y, T *z, int64_t cols)
{
    const cuda_gelu_fn gelu;
    const int64_t row = blockIdx.x;
    for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += (int64_t)blockDim.x * N) {
        const auto v = cuda_load<N>(p + row * cols + j);
        cuda_pack<T, N> before, after;
        for (int i = 0; i < N; i++) {
            before.v[i] = cuda_as<T>::from(v.v[i] + bias[j + i]);
            const float x = cuda_float(before.v[i]);
            float g;
            gelu(&x, &g);
            after.v[i] = cuda_as<T>::from(g);
        }
        if (z != nullptr)
            cuda_store(z + row * cols + j, before);
        cuda_store(y + row * cols + j, after);
    }
}

template <typename T>
static lathe_status finish_block(lathe_kernel *k, const lathe_kernel_args *a, const float *block,
                                 int64_t row, int64_t rows)
{
    const linear_gelu *s = (const linear_gelu *)k->state;
    const int64_t cols = s->blocks.columns;
    const float *bias = (const float *)a->in[2];
    T *y = (T *)a->out[0] + row * cols;
    T *z = kernel_has_out(k, 1) ? (T *)a->out[1] + row * cols : nullptr;
    if (cols % 4 == 0 && ((uintptr_t)y | (uintptr_t)z) % 16 == 0)
        return cuda_run(k, a, rows, CUDA_THREADS, add_bias_gelu<4, T>, block, bias, y, z, cols);
    return cuda_run(k, a, rows, CUDA_THREADS, add_bias_gelu<1, T>, block, bias, y, z, cols);
}

static lathe_status run_by_scratch(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear_gelu *s = (const linear_gelu *)k->state;
    float *block = (float *)((char *)a->scratch + s->block_at);
    for (int64_t row = 0; row < s->blocks.rows; row += s->blocks.block_rows) {
        LATHE_TRY(cuda_row_product_run(cuda_of(k), &s->blocks, row, a, nullptr, block));
        CUDA_BY_DTYPE(k->out[0].dtype, T, {
            LATHE_TRY(finish_block<T>(k, a, block, row, cuda_row_product_rows(&s->blocks, row)));
        });
    }
    return LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear_gelu *s = (const linear_gelu *)k->state;
    const void *bias = kernel_has_in(k, 2) ? a->in[2] : nullptr;
    if (s->block_at >= 0)
        return run_by_scratch(k, a);
    for (int64_t row = 0; row < s->blocks.rows; row += s->blocks.block_rows) {
        const int64_t at = row * s->blocks.columns;
        const int64_t n = cuda_row_product_rows(&s->blocks, row) * s->blocks.columns;
        CUDA_BY_DTYPE(k->out[0].dtype, T, {
            T *y = (T *)a->out[0] + at;
            T *z = kernel_has_out(k, 1) ? (T *)a->out[1] + at : y;
            LATHE_TRY(cuda_row_product_run(cuda_of(k), &s->blocks, row, a, bias, z));
            LATHE_TRY(cuda_map(k, a, cuda_gelu_fn{},
                               cuda_map_io<T, T, T>{z, nullptr, nullptr, {y, nullptr}, 0u}, n));
        });
    }
    return LATHE_OK;
}

static lathe_status run_dx(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear_gelu *s = (const linear_gelu *)k->state;
    for (int64_t row = 0; row < s->blocks.rows; row += s->blocks.block_rows) {
        const int64_t at = row * s->blocks.columns;
        const int64_t n = cuda_row_product_rows(&s->blocks, row) * s->blocks.columns;
        CUDA_BY_DTYPE(k->out[0].dtype, T, {
            const T *z = (const T *)a->in[2] + at;
            T *dz = (T *)a->out[0] + at;
            LATHE_TRY(cuda_row_product_run(cuda_of(k), &s->blocks, row, a, nullptr, dz));
            LATHE_TRY(cuda_map(k, a, cuda_gelu_bwd_fn{},
                               cuda_map_io<T, T, T>{dz, z, nullptr, {dz, nullptr}, 0u}, n));
        });
    }
    return LATHE_OK;
}

const kernel_op CUDA_OP(LINEAR_GELU) = {prepare, run, release, 0};
const kernel_op CUDA_OP(LINEAR_DX_GELU) = {prepare_dx, run_dx, release, 0};
