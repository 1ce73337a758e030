/* Computes a product in blocks of rows, so that a block is still in the cache when the next kernel
 * reads it. */
#ifndef LATHE_CUDA_BLOCKED_PRODUCT_CUH
#define LATHE_CUDA_BLOCKED_PRODUCT_CUH

#include "products/blas.h"

/** Size of a block's result: fits the L2 cache of every GPU from 8.0 on. */
#define CUDA_BLOCK_BYTES ((int64_t)16 << 20)

struct cuda_row_product {
    cuda_product *product, *last; /* last: for a shorter last block; NULL: all blocks are equal */
    int64_t rows, block_rows; /* rows of a block are a multiple of 8, so that blocks are aligned */
    int64_t a_row_bytes, columns; /* bytes of a row of the left operand; columns of the result */
};

/** Fills *out, which must be zero; call cuda_row_product_destroy also after a failure. A block has
 *  at most `most_bytes` and CUDA_BLOCK_BYTES, but at least 64 rows, or half of all rows if that is
 *  fewer. A run needs *out_scratch bytes. */
static inline lathe_status cuda_row_product_create(cuda_device *device, matmul_spec spec,
                                                   int64_t most_bytes, cuda_row_product *out,
                                                   int64_t *out_scratch)
{
    const int64_t half = cuda_round_up((spec.m + 1) / 2, 8), least = half < 64 ? half : 64;
    const int64_t fit = (most_bytes < CUDA_BLOCK_BYTES ? most_bytes : CUDA_BLOCK_BYTES) /
                        (spec.n * lathe_dtype_bytes(spec.c_dtype));
    const int64_t most = fit < least ? least : fit, blocks = (spec.m + most - 1) / most;
    int64_t last_scratch = 0;
    out->rows = spec.m;
    out->columns = spec.n;
    out->a_row_bytes = spec.k * lathe_dtype_bytes(spec.a_dtype);
    out->block_rows = cuda_round_up((spec.m + blocks - 1) / blocks, 8);
    if (out->block_rows > spec.m)
        out->block_rows = spec.m;
    spec.m = out->block_rows;
    LATHE_TRY(cuda_product_create(device, &spec, &out->product, out_scratch));
    spec.m = out->rows % out->block_rows;
    if (spec.m > 0)
        LATHE_TRY(cuda_product_create(device, &spec, &out->last, &last_scratch));
    if (last_scratch > *out_scratch)
        *out_scratch = last_scratch;
    return LATHE_OK;
}

static inline void cuda_row_product_destroy(cuda_device *device, cuda_row_product *p)
{
    cuda_product_destroy(device, p->product);
    cuda_product_destroy(device, p->last);
    p->product = p->last = nullptr;
}

/** Number of rows of the block that begins at `row`. */
static inline int64_t cuda_row_product_rows(const cuda_row_product *p, int64_t row)
{
    return p->rows - row < p->block_rows ? p->rows - row : p->block_rows;
}

/** Queues the product of the block that begins at `row`. `a` has the whole left operand; `c` is the
 *  block's result. */
static inline lathe_status cuda_row_product_run(cuda_device *device, const cuda_row_product *p,
                                                int64_t row, const lathe_kernel_args *a,
                                                const void *bias, void *c)
{
    return cuda_product_run(
        device, cuda_row_product_rows(p, row) < p->block_rows ? p->last : p->product,
        (const char *)a->in[0] + row * p->a_row_bytes, a->in[1], bias, c, a->scratch, 0, a->stream);
}

#endif
