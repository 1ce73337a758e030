/* LINEAR, its two derivatives and MATMUL by cuBLASLt; matmul_spec.c describes the products.
 *
 *   y = x W^T + b     db[j] = sum over rows of dy[i,j]
 *
 * A bias is f32 and is added before y is rounded. If the library cannot do this (y of 16 bits),
 * rows are processed in blocks: first the f32 product of a block, then the bias, while the block is
 * still in the cache. The two kernels of this file are bound by memory. Products in fp8 are in
 * fp8_product.cu, those of LINEAR with attrs.invariant in invariant_product.cu.
 */
#include "base/columns.cuh"
#include "base/launch.cuh"
#include "products/blas.h"
#include "products/blocked_product.cuh"
#include "products/fp8_product.h"
#include "products/invariant_product.h"

struct linear {
    cuda_product *product;
    cuda_row_product blocks; /* used instead of `product`: f32 blocks, then the bias is added */
    int64_t block_at;        /* offset of the block in scratch, after the product's own */
    cuda_fp8_product *fp8;   /* used instead of both */
    cuda_invariant_product *invariant; /* used instead of all of them */
    int64_t rows, cols;                /* of y, or of dy for db */
};

static void release(lathe_kernel *k)
{
    linear *s = (linear *)k->state;
    cuda_product_destroy(cuda_of(k), s->product);
    cuda_row_product_destroy(cuda_of(k), &s->blocks);
    cuda_fp8_product_destroy(k, s->fp8);
    cuda_invariant_product_destroy(k, s->invariant);
    k->host->free(s);
}

static lathe_status make(lathe_kernel *k, const matmul_spec *spec, int64_t *out_scratch)
{
    linear *s = (linear *)k->host->alloc((int64_t)sizeof *s);
    if (s == nullptr)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    s->rows = spec->m;
    s->cols = spec->n;
    if (spec->fp8 != 0)
        return cuda_fp8_product_create(k, spec, &s->fp8, out_scratch);
    if (spec->invariant)
        return cuda_invariant_product_create(k, spec, &s->invariant, out_scratch);
    return cuda_product_create(cuda_of(k), spec, &s->product, out_scratch);
}

/* Prepares the products of blocks of rows, in f32. */
static lathe_status make_blocks(lathe_kernel *k, matmul_spec spec, int64_t *out_scratch)
{
    linear *s = (linear *)k->state;
    int64_t bytes = 0;
    cuda_product_destroy(cuda_of(k), s->product);
    s->product = nullptr;
    spec.c_dtype = LATHE_F32;
    spec.bias = 0;
    LATHE_TRY(cuda_row_product_create(cuda_of(k), spec, CUDA_BLOCK_BYTES, &s->blocks, &bytes));
    s->block_at = cuda_round_up(bytes, 64);
    *out_scratch = s->block_at + s->blocks.block_rows * s->cols * 4;
    return LATHE_OK;
}

static lathe_status prepare_linear(lathe_kernel *k, int64_t *out_scratch)
{
    matmul_spec spec;
    kernel_product_linear(k, &spec);
    LATHE_TRY(make(k, &spec, out_scratch));
    if (spec.fp8 == 0 && !spec.invariant && spec.bias &&
        !cuda_product_adds_bias(((linear *)k->state)->product))
        return make_blocks(k, spec, out_scratch);
    return LATHE_OK;
}

static lathe_status prepare_dx(lathe_kernel *k, int64_t *out_scratch)
{
    matmul_spec spec;
    kernel_product_dx(k, &spec);
    return make(k, &spec, out_scratch);
}

static lathe_status prepare_matmul(lathe_kernel *k, int64_t *out_scratch)
{
    matmul_spec spec;
    kernel_product_matmul(k, &spec);
    return make(k, &spec, out_scratch);
}

static lathe_status prepare_dw(lathe_kernel *k, int64_t *out_scratch)
{
    matmul_spec spec;
    kernel_product_dw(k, &spec);
    LATHE_TRY(make(k, &spec, out_scratch));
    linear *s = (linear *)k->state;
    s->rows = spec.k;
    s->cols = spec.m;
    if (kernel_has_out(k, 1)) {
        const int64_t partials = cuda_columns_scratch(s->rows, s->cols);
        if (partials > *out_scratch) /* the sums for db are complete before the product starts */
            *out_scratch = partials;
    }
    return LATHE_OK;
}

/* y = p + bias. A block computes one row, a thread N columns at a time. */
template <int N, typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    add_bias(const float *p, const float *bias, T *y, int64_t cols)
{
    const int64_t row = blockIdx.x;
    for (int64_t j = (int64_t)threadIdx.x * N; j < cols; j += (int64_t)blockDim.x * N) {
        const auto v = *(const cuda_pack<float, N> *)(p + row * cols + j);
        cuda_pack<T, N> out;
        for (int i = 0; i < N; i++)
            out.v[i] = cuda_as<T>::from(v.v[i] + bias[j + i]);
        *(cuda_pack<T, N> *)(y + row * cols + j) = out;
    }
}

template <typename T>
static lathe_status finish_block(lathe_kernel *k, const lathe_kernel_args *a, const float *block,
                                 T *y, int64_t rows)
{
    const linear *s = (const linear *)k->state;
    const float *bias = (const float *)a->in[2];
    if (s->cols % 4 == 0 && (uintptr_t)y % 16 == 0)
        return cuda_run(k, a, rows, CUDA_THREADS, add_bias<4, T>, block, bias, y, s->cols);
    return cuda_run(k, a, rows, CUDA_THREADS, add_bias<1, T>, block, bias, y, s->cols);
}

static lathe_status run_blocks(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear *s = (const linear *)k->state;
    float *block = (float *)((char *)a->scratch + s->block_at);
    for (int64_t row = 0; row < s->rows; row += s->blocks.block_rows) {
        LATHE_TRY(cuda_row_product_run(cuda_of(k), &s->blocks, row, a, nullptr, block));
        CUDA_BY_DTYPE(k->out[0].dtype, T, {
            LATHE_TRY(finish_block<T>(k, a, block, (T *)a->out[0] + row * s->cols,
                                      cuda_row_product_rows(&s->blocks, row)));
        });
    }
    return LATHE_OK;
}

static lathe_status run_linear(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear *s = (const linear *)k->state;
    if (s->fp8 != nullptr)
        return cuda_fp8_product_run(k, a, s->fp8,
                                    kernel_has_in(k, 2) ? (const float *)a->in[2] : nullptr);
    if (s->invariant != nullptr)
        return cuda_invariant_product_run(k, a, s->invariant, a->in[0], s->rows, a->in[1],
                                          kernel_has_in(k, 2) ? (const float *)a->in[2] : nullptr,
                                          a->out[0], s->cols);
    if (s->blocks.product != nullptr)
        return run_blocks(k, a);
    return cuda_product_run(cuda_of(k), s->product, a->in[0], a->in[1],
                            kernel_has_in(k, 2) ? a->in[2] : nullptr, a->out[0], a->scratch, 0,
                            a->stream);
}

static lathe_status run_two(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear *s = (const linear *)k->state;
    if (s->fp8 != nullptr)
        return cuda_fp8_product_run(k, a, s->fp8, nullptr);
    return cuda_product_run(cuda_of(k), s->product, a->in[0], a->in[1], nullptr, a->out[0],
                            a->scratch, (a->accumulate & 1u) != 0, a->stream);
}

static lathe_status run_dw(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear *s = (const linear *)k->state;
    if (kernel_has_out(k, 1))
        LATHE_TRY(cuda_columns_sum(k, a, a->in[0], k->in[0].dtype, s->rows, s->cols,
                                   (float *)a->out[1], (a->accumulate & 2u) != 0));
    return run_two(k, a);
}

const kernel_op CUDA_OP(LINEAR) = {prepare_linear, run_linear, release, 0};
const kernel_op CUDA_OP(LINEAR_DX) = {prepare_dx, run_two, release, 1};
const kernel_op CUDA_OP(LINEAR_DW) = {prepare_dw, run_dw, release, 3};
const kernel_op CUDA_OP(MATMUL) = {prepare_matmul, run_two, release, 1};
