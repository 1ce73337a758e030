/* c (= or +=) a b + bias, where a and b are first cast to fp8 (lathe/fp8.h).
 *
 * If cuBLASLt supports the scales and c's dtype, it computes everything. Otherwise (scales per row
 * on GPUs other than Hopper; a bias, which it would take only in 16 bits) rows of c are computed a
 * block at a time: first the f32 product of the codes, which stays in the cache, then a kernel
 * scales it, adds the bias and rounds once.
 *
 *   scratch: | the product's own | a: codes, factors | b | the block |
 */
#include "base/launch.cuh"
#include "lathe/fp8.h"
#include "products/fp8_product.h"

#define BLOCK_BYTES ((int64_t)16 << 20) /* fits the L2 cache of every GPU from 8.9 on */

struct cuda_fp8_product {
    cuda_fp8_cast a, b;
    int64_t m, n, k;
    cuda_product *product, *last; /* last: for a shorter last block of rows */
    int64_t block_rows, block_at; /* 0: the product is stored directly to c */
};

/* Both operands are row-major along k: the only layout that every GPU supports for fp8. */
static matmul_spec codes_spec(const matmul_spec *spec)
{
    matmul_spec out = *spec;
    out.a_dtype = spec->a_fp8;
    out.b_dtype = spec->b_fp8;
    out.trans_a = 0;
    out.trans_b = 1;
    out.bias = 0;
    return out;
}

/* Prepares the unscaled products of blocks of rows. */
static lathe_status make_blocks(const lathe_kernel *k, cuda_fp8_product *p, matmul_spec spec,
                                int64_t *out_bytes)
{
    const int64_t most = BLOCK_BYTES / (p->n * 4) < 64 ? 64 : BLOCK_BYTES / (p->n * 4);
    const int64_t blocks = (p->m + most - 1) / most;
    int64_t bytes = 0, last_bytes = 0;
    p->block_rows = cuda_round_up((p->m + blocks - 1) / blocks, LATHE_FP8_DIM);
    spec.fp8 = LATHE_FP8_NONE;
    spec.c_dtype = LATHE_F32;
    spec.may_accumulate = 0;
    spec.may_overwrite = 1;
    spec.m = p->block_rows;
    LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &p->product, &bytes));
    spec.m = p->m % p->block_rows;
    if (spec.m > 0)
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &p->last, &last_bytes));
    *out_bytes = bytes > last_bytes ? bytes : last_bytes;
    return LATHE_OK;
}

lathe_status cuda_fp8_product_create(const lathe_kernel *k, const matmul_spec *spec,
                                     cuda_fp8_product **out, int64_t *out_scratch)
{
    const matmul_spec codes = codes_spec(spec);
    int64_t bytes = 0;
    cuda_fp8_product *p = (cuda_fp8_product *)k->host->alloc((int64_t)sizeof *p);
    if (p == nullptr)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    *out = p;
    p->m = spec->m;
    p->n = spec->n;
    p->k = spec->k;
    p->a.outer = spec->m;
    p->b.outer = spec->n;
    p->a.inner = p->b.inner = spec->k;
    p->a.is_transposed = spec->trans_a;
    p->b.is_transposed = !spec->trans_b;
    p->a.dtype = spec->a_fp8;
    p->b.dtype = spec->b_fp8;
    p->a.recipe = p->b.recipe = spec->fp8;
    if (!spec->bias && cuda_product_offered(cuda_of(k), &codes))
        LATHE_TRY(cuda_product_create(cuda_of(k), &codes, &p->product, &bytes));
    else
        LATHE_TRY(make_blocks(k, p, codes, &bytes));
    const int64_t b_at = cuda_fp8_cast_place(&p->a, cuda_round_up(bytes, 64));
    p->block_at = cuda_fp8_cast_place(&p->b, b_at);
    *out_scratch = p->block_at + p->block_rows * p->n * 4;
    return LATHE_OK;
}

void cuda_fp8_product_destroy(const lathe_kernel *k, cuda_fp8_product *p)
{
    if (p == nullptr)
        return;
    cuda_product_destroy(cuda_of(k), p->product);
    cuda_product_destroy(cuda_of(k), p->last);
    k->host->free(p);
}

/* How a block of products is finished. */
struct finish {
    const float *products; /* [rows, cols] */
    const float *a, *b;    /* inverse factors of row i at i*step, of column j at j*step */
    const float *bias;     /* [cols], or NULL */
    int64_t cols;
    int32_t step, accumulate;
};

/* c = p * (a_i * b_j) + bias_j. A block computes one row, a thread four columns at a time. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS) finish_rows(finish f, T *c)
{
    const int64_t row = blockIdx.x;
    const float a = f.a[row * f.step];
    for (int64_t j = (int64_t)threadIdx.x * 4; j < f.cols; j += (int64_t)blockDim.x * 4) {
        const auto p = cuda_load<4>(f.products + row * f.cols + j);
        T *to = c + row * f.cols + j;
        auto out = f.accumulate ? cuda_load<4>((const T *)to) : cuda_pack<T, 4>{};
        CUDA_UNROLLED
        for (int i = 0; i < 4; i++) {
            const float bias = f.bias == nullptr ? 0.0f : f.bias[j + i];
            cuda_put(&out.v[i], f.accumulate, p.v[i] * (a * f.b[(j + i) * f.step]) + bias);
        }
        cuda_store(to, out);
    }
}

static lathe_status run_blocks(const lathe_kernel *k, const lathe_kernel_args *a,
                               const cuda_fp8_product *p, const float *bias)
{
    char *scratch = (char *)a->scratch;
    float *block = (float *)(scratch + p->block_at);
    const int32_t step = p->a.recipe == LATHE_FP8_ROWWISE ? 1 : 0;
    const finish all = {block,
                        (const float *)(scratch + p->a.inverses_at),
                        (const float *)(scratch + p->b.inverses_at),
                        bias,
                        p->n,
                        step,
                        (int32_t)(a->accumulate & 1u)};
    if ((uintptr_t)a->out[0] % 16 != 0)
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED,
                          "%s: a product in fp8 goes to tensors that are 16-byte aligned",
                          kernel_op_name(k));
    for (int64_t row = 0; row < p->m; row += p->block_rows) {
        const int64_t rows = p->m - row < p->block_rows ? p->m - row : p->block_rows;
        finish f = all;
        f.a += row * step;
        LATHE_TRY(cuda_product_run(cuda_of(k), rows < p->block_rows ? p->last : p->product,
                                   scratch + p->a.codes_at + row * p->k, scratch + p->b.codes_at,
                                   nullptr, block, a->scratch, 0, a->stream));
        CUDA_BY_DTYPE(k->out[0].dtype, T, {
            LATHE_TRY(
                cuda_run(k, a, rows, CUDA_THREADS, finish_rows<T>, f, (T *)a->out[0] + row * p->n));
        });
    }
    return LATHE_OK;
}

lathe_status cuda_fp8_product_run(const lathe_kernel *k, const lathe_kernel_args *a,
                                  const cuda_fp8_product *p, const float *bias)
{
    char *scratch = (char *)a->scratch;
    LATHE_TRY(cuda_fp8_cast_run(k, a, &p->a, a->in[0]));
    LATHE_TRY(cuda_fp8_cast_run(k, a, &p->b, a->in[1]));
    if (p->block_rows > 0)
        return run_blocks(k, a, p, bias);
    LATHE_TRY(cuda_product_scale(cuda_of(k), p->product,
                                 (const float *)(scratch + p->a.inverses_at),
                                 (const float *)(scratch + p->b.inverses_at)));
    return cuda_product_run(cuda_of(k), p->product, scratch + p->a.codes_at,
                            scratch + p->b.codes_at, nullptr, a->out[0], a->scratch,
                            (a->accumulate & 1u) != 0, a->stream);
}
