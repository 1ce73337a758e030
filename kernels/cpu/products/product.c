/* A matrix product of compute dtypes, computed in the fastest of these ways:
 *
 *  - few rows with a transposed right operand, as in decoding: gemv.c, which reads each weight
 *    once;
 *  - 16-bit operands for which the processor has no instructions (bf16 without AVX512-BF16, and
 *    f16, for which oneDNN 2.6 has no product at all): packed_gemm.c, which widens them
 *    while packing;
 *  - trans_a with a small result: blocks of `a` are transposed into scratch, for oneDNN's plain
 *    product. When the result is small, oneDNN's own transposed products split a long sum over the
 *    workers, so the bits would depend on the number of workers; its plain product does not
 *    (measured with 1, 2, 7 and 32 workers, oneDNN 2.6). Large results use oneDNN's transposed
 *    gemm, which is fastest and does not split a sum when both sides of the result are at least
 *    GEMM_SIDE (same measurement);
 *  - everything else: oneDNN's product as it is.
 *
 * With AMX tiles (bf16 on Sapphire Rapids) oneDNN divides sums by the number of workers. Its
 * products without the tiles take two to eight times as long (16 cores), so they are used
 * nevertheless, and the bits depend on the number of workers there.
 *
 *   scratch: | oneDNN | a block |     or that of gemv.c or packed_gemm.c
 */
#include "products/product.h"

#include "base/element.h"
#include "products/gemv.h"
#include "products/pack.h"
#include "products/packed_gemm.h"

#define GEMM_SIDE 512 /* with trans_a: minimum rows and columns of c for oneDNN's gemm */
#define PACK_ELEMENTS ((int64_t)4 << 20) /* elements of a transposed block of `a`, about */

enum { BY_ONEDNN, BY_ROWS, BY_PACKING };

struct cpu_product {
    matmul_spec spec;
    int32_t way; /* BY_* */
    cpu_packed_gemm packed;
    cpu_matmul *whole; /* the whole product, or one whole block */
    cpu_matmul *tail;  /* the last, shorter block */
    int32_t by_blocks;
    int64_t block, n_blocks;
    int64_t a_at; /* offset in scratch */
};

/* Describes the product of one block of `rows` rows of c. */
static matmul_spec block_spec(const cpu_product *p, int64_t rows)
{
    matmul_spec f = p->spec;
    f.m = rows;
    f.trans_a = f.prefer_gemm = 0;
    return f;
}

static void choose_block(cpu_product *p)
{
    const int64_t m = p->spec.m;
    int64_t most = PACK_ELEMENTS / p->spec.k / 64 * 64;
    most = most < 64 ? 64 : most;
    p->n_blocks = (m + most - 1) / most;
    /* blocks of equal size, each of whole cache lines of columns */
    p->block = (m + p->n_blocks - 1) / p->n_blocks;
    p->block = p->n_blocks > 1 ? cpu_round_up(p->block, 64) : m;
    p->n_blocks = (m + p->block - 1) / p->block;
}

/* Leaves p->whole NULL if oneDNN has no such product. */
static lathe_status create_by_blocks(cpu_device *device, cpu_product *p, int64_t *out_scratch)
{
    const matmul_spec *s = &p->spec;
    p->by_blocks = 1;
    choose_block(p);
    const int64_t last = s->m - (p->n_blocks - 1) * p->block;
    int64_t scratch = 0, tail_scratch = 0;
    const matmul_spec whole = block_spec(p, p->block), tail = block_spec(p, last);
    LATHE_TRY(cpu_matmul_create(device, &whole, &p->whole, &scratch));
    if (p->whole == NULL)
        return LATHE_OK;
    if (last != p->block)
        LATHE_TRY(cpu_matmul_create(device, &tail, &p->tail, &tail_scratch));
    if (last != p->block && p->tail == NULL)
        return lathe_fail(device->host, LATHE_E_DEVICE, "oneDNN has no product for the last rows");
    p->a_at = cpu_round_up(scratch > tail_scratch ? scratch : tail_scratch, 64);
    *out_scratch = p->a_at + p->block * s->k * lathe_dtype_bytes(s->a_dtype);
    return LATHE_OK;
}

/* Whether oneDNN is fast with the operands' dtype in this build. */
static int onednn_has(int32_t dtype)
{
    return dtype == LATHE_F32 || (dtype == LATHE_BF16 && LATHE_CPU_ISA == 3);
}

static lathe_status create_onednn(cpu_device *device, cpu_product *p, int64_t *out_scratch)
{
    const int large = p->spec.m >= GEMM_SIDE && p->spec.n >= GEMM_SIDE;
    p->spec.prefer_gemm = p->spec.trans_a && large && p->spec.c_dtype == LATHE_F32;
    if (p->spec.trans_a && !p->spec.prefer_gemm)
        return create_by_blocks(device, p, out_scratch);
    return cpu_matmul_create(device, &p->spec, &p->whole, out_scratch);
}

static lathe_status create_best(cpu_device *device, cpu_product *p, int64_t *out_scratch)
{
    if (cpu_gemv_serves(&p->spec)) {
        p->way = BY_ROWS;
        *out_scratch = cpu_gemv_scratch(&p->spec);
        return LATHE_OK;
    }
    if (onednn_has(p->spec.a_dtype) && onednn_has(p->spec.b_dtype)) {
        LATHE_TRY(create_onednn(device, p, out_scratch));
        if (p->whole != NULL)
            return LATHE_OK;
    }
    p->way = BY_PACKING;
    cpu_packed_gemm_init(&p->spec, device->host->n_threads(), &p->packed, out_scratch);
    return LATHE_OK;
}

lathe_status cpu_product_create(cpu_device *device, const matmul_spec *spec, cpu_product **out,
                                int64_t *out_scratch)
{
    cpu_product *p = device->host->alloc((int64_t)sizeof *p);
    *out = NULL;
    if (p == NULL)
        return lathe_fail(device->host, LATHE_E_NOMEM, "no memory for a matrix product");
    p->spec = *spec;
    if (!p->spec.may_accumulate)
        p->spec.may_overwrite = 1;
    const lathe_status status = create_best(device, p, out_scratch);
    if (status != LATHE_OK) {
        cpu_product_destroy(device, p);
        return status;
    }
    *out = p;
    return LATHE_OK;
}

void cpu_product_destroy(cpu_device *device, cpu_product *p)
{
    if (p == NULL)
        return;
    cpu_matmul_destroy(device, p->whole);
    cpu_matmul_destroy(device, p->tail);
    device->host->free(p);
}

static lathe_status run_by_blocks(cpu_device *device, const cpu_product *p, const void *a,
                                  const void *b, const void *bias, void *c, char *scratch,
                                  int accumulate)
{
    const matmul_spec *s = &p->spec;
    for (int64_t i = 0; i < p->n_blocks; i++) {
        const int64_t from = i * p->block;
        const int64_t n = s->m - from < p->block ? s->m - from : p->block;
        cpu_pack_transposed(device->host, scratch + p->a_at, s->a_dtype, at(a, from, s->a_dtype),
                            s->a_dtype, s->k, n, s->m);
        LATHE_TRY(cpu_matmul_run(device, n == p->block ? p->whole : p->tail, scratch + p->a_at, b,
                                 bias, at_mut(c, from * s->n, s->c_dtype), scratch, accumulate));
    }
    return LATHE_OK;
}

lathe_status cpu_product_run(cpu_device *device, cpu_product *p, const void *a, const void *b,
                             const void *bias, void *c, void *scratch, int accumulate)
{
    if (p->way == BY_ROWS) {
        cpu_gemv_run(device->host, &p->spec, a, b, bias, c, scratch, accumulate);
        return LATHE_OK;
    }
    if (p->way == BY_PACKING)
        return cpu_packed_gemm_run(device->host, &p->packed, a, b, bias, c, scratch, accumulate);
    if (p->by_blocks)
        return run_by_blocks(device, p, a, b, bias, c, scratch, accumulate);
    return cpu_matmul_run(device, p->whole, a, b, bias, c, scratch, accumulate);
}
