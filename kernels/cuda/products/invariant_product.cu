/* y = x W^T + b, or y += x W^T, by products of a fixed number of rows, so that a row of y has the
 * same bits alone and among others: decoding, the rest of a prompt and scoring give one token the
 * same logits.
 *
 * cuBLASLt chooses its algorithm, and with it the order of the sums, by the shape of a product.
 * Here the shape is always the same: rows are multiplied FIXED_ROWS at a time, and a smaller rest
 * is copied to scratch and filled up with zeros. So few rows are in one tile of the library's
 * kernels, whose rows are computed alike. One row takes as long as FIXED_ROWS, which is as long as
 * reading the weights takes.
 *
 *   scratch: | product | x [rows, k] | y [rows, stride] |
 *
 * The product's result has rows of a multiple of 64 elements. It is written to y if y has them too
 * and nothing is added, else to scratch, from where a kernel stores it. With a bias, or where the
 * product is added to y, the result in scratch is f32, so that y is rounded once.
 */
#include "products/invariant_product.h"

#include "base/launch.cuh"

/* 2 operations for each weight and row: below the rate at which a GPU computes while it reads. */
#define FIXED_ROWS_F32 32
#define FIXED_ROWS_16_BITS 64

struct cuda_invariant_product {
    cuda_product *product;
    int64_t rows, n, k, stride; /* stride: of the result */
    int32_t dtype, y_dtype, block_dtype;
    int32_t bias, adds;
    int64_t x_at, y_at; /* offsets in scratch */
};

void cuda_invariant_product_destroy(lathe_kernel *k, cuda_invariant_product *p)
{
    if (p == nullptr)
        return;
    cuda_product_destroy(cuda_of(k), p->product);
    k->host->free(p);
}

lathe_status cuda_invariant_product_create(lathe_kernel *k, const matmul_spec *spec,
                                           cuda_invariant_product **out, int64_t *out_scratch)
{
    cuda_invariant_product *p = (cuda_invariant_product *)k->host->alloc((int64_t)sizeof *p);
    matmul_spec one = *spec;
    int64_t bytes = 0;
    if (p == nullptr)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    p->rows = spec->a_dtype == LATHE_F32 ? FIXED_ROWS_F32 : FIXED_ROWS_16_BITS;
    p->n = spec->n;
    p->k = spec->k;
    p->stride = cuda_round_up(spec->n, 64);
    p->dtype = spec->a_dtype;
    p->y_dtype = spec->c_dtype;
    p->bias = spec->bias;
    p->adds = spec->may_accumulate;
    p->block_dtype = spec->bias || p->adds ? LATHE_F32 : spec->c_dtype;
    one.m = p->rows;
    one.c_dtype = p->block_dtype;
    one.c_stride = p->stride;
    one.bias = one.may_accumulate = 0;
    const lathe_status status = cuda_product_create(cuda_of(k), &one, &p->product, &bytes);
    if (status != LATHE_OK) {
        cuda_invariant_product_destroy(k, p);
        return status;
    }
    p->x_at = cuda_round_up(bytes, 256);
    p->y_at = p->x_at + cuda_round_up(p->rows * p->k * lathe_dtype_bytes(p->dtype), 256);
    *out = p;
    *out_scratch = p->y_at + p->rows * p->stride * lathe_dtype_bytes(p->block_dtype);
    return LATHE_OK;
}

/* x [n elements], then zeros up to `all` elements. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    fill_up(const T *x, T *to, int64_t n, int64_t all)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = i < n ? x[i] : cuda_as<T>::from(0.0f);
}

/* y = block + bias, or y += block, row by row. */
template <typename S, typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    put_rows(const S *block, int64_t stride, const float *bias, int32_t adds, T *y,
             int64_t y_stride, int64_t n)
{
    const int64_t row = blockIdx.x;
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
        const float x = cuda_float(block[row * stride + j]);
        T *to = &y[row * y_stride + j];
        *to = cuda_as<T>::from(bias != nullptr ? x + bias[j] : adds ? cuda_float(*to) + x : x);
    }
}

static lathe_status put(lathe_kernel *k, const lathe_kernel_args *a,
                        const cuda_invariant_product *p, const void *block, const float *bias,
                        void *y, int64_t y_stride, int64_t m)
{
    CUDA_BY_DTYPE(p->y_dtype, T, {
        if (p->block_dtype == LATHE_F32)
            return cuda_run(k, a, m, CUDA_THREADS, put_rows<float, T>, (const float *)block,
                            p->stride, bias, p->adds, (T *)y, y_stride, p->n);
        return cuda_run(k, a, m, CUDA_THREADS, put_rows<T, T>, (const T *)block, p->stride, bias,
                        p->adds, (T *)y, y_stride, p->n);
    });
}

/* The product of at most p->rows rows. */
static lathe_status run_rows(lathe_kernel *k, const lathe_kernel_args *a,
                             const cuda_invariant_product *p, const void *x, int64_t m,
                             const void *w, const float *bias, void *y, int64_t y_stride)
{
    char *scratch = (char *)a->scratch;
    const int64_t all = p->rows * p->k;
    const int direct =
        m == p->rows && y_stride == p->stride && !p->bias && !p->adds && (uintptr_t)y % 16 == 0;
    if (m < p->rows || (uintptr_t)x % 16 != 0) {
        CUDA_BY_DTYPE(p->dtype, T, {
            LATHE_TRY(cuda_run(k, a, cuda_blocks(cuda_of(k), all), CUDA_THREADS, fill_up<T>,
                               (const T *)x, (T *)(void *)(scratch + p->x_at), m * p->k, all));
        });
        x = scratch + p->x_at;
    }
    void *to = direct ? y : scratch + p->y_at;
    LATHE_TRY(cuda_product_run(cuda_of(k), p->product, x, w, nullptr, to, scratch, 0, a->stream));
    return direct ? LATHE_OK : put(k, a, p, to, bias, y, y_stride, m);
}

lathe_status cuda_invariant_product_run(lathe_kernel *k, const lathe_kernel_args *a,
                                        const cuda_invariant_product *p, const void *x, int64_t m,
                                        const void *w, const float *bias, void *y, int64_t y_stride)
{
    const int64_t x_bytes = p->k * lathe_dtype_bytes(p->dtype);
    const int64_t y_bytes = y_stride * lathe_dtype_bytes(p->y_dtype);
    for (int64_t row = 0; row < m; row += p->rows)
        LATHE_TRY(run_rows(k, a, p, (const char *)x + row * x_bytes,
                           m - row < p->rows ? m - row : p->rows, w, bias,
                           (char *)y + row * y_bytes, y_stride));
    return LATHE_OK;
}
