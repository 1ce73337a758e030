/* A matrix product of compute dtypes: oneDNN as it is, or in blocks of rows of c, for two reasons.
 *
 *  - trans_a of a small result: a block of `a` is transposed into scratch first. oneDNN's own
 *    transposed products split a long sum over the workers when the result is small, so that the
 *    bits would depend on how many there are; its plain product does not (measured with 1, 2, 7
 *    and 32 workers, oneDNN 2.6). Large results go to its gemm, which is fastest and does not split
 *    from GEMM_SIDE on (same measurement).
 *  - bf16 where oneDNN has no bf16 product (processors without AVX-512), and f16, for
 *    which oneDNN 2.6 has none at all: blocks go through f32.
 *
 *   scratch: | oneDNN | a block | b f32 | c block f32 |     those that are not needed are empty
 */
#include "product.h"

#include "element.h"
#include "pack.h"

#define GEMM_SIDE 512 /* rows and columns of c from which trans_a takes oneDNN's gemm */
#define ROW_BLOCK 256 /* rows of c at a time when only converting */
#define PACK_ELEMENTS ((int64_t)4 << 20) /* of a transposed block of `a`, about */

struct cpu_product {
    matmul_spec spec;
    cpu_matmul *whole; /* the product as it is, or a whole block */
    cpu_matmul *tail;  /* the last, shorter block */
    int32_t by_blocks;
    int32_t in_f32; /* blocks are converted */
    int64_t block, n_blocks;
    int64_t a_at, b_at, c_at; /* offsets in scratch */
};

typedef struct convert_job {
    const void *src;
    void *dst;
    int32_t src_dtype, dst_dtype;
    int32_t accumulate;
} convert_job;

static void convert_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const convert_job *job = arg;
    float in[CPU_TILE], out[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *x = tile_in(in, job->src, job->src_dtype, i, n);
        float *y = tile_out(out, job->dst, job->dst_dtype, job->accumulate, i);
        memcpy(y, x, (size_t)n * sizeof *y);
        if (y == out)
            tile_done(out, job->dst, job->dst_dtype, job->accumulate, i, n);
    }
}

void cpu_convert(const lathe_host *host, void *dst, int32_t dst_dtype, const void *src,
                 int32_t src_dtype, int64_t n, int accumulate)
{
    convert_job job = {src, dst, src_dtype, dst_dtype, accumulate};
    host->parallel_for(n, CPU_GRAIN, convert_range, &job);
}

/* The product of one block of `rows` rows of c. */
static matmul_spec block_spec(const cpu_product *p, int64_t rows)
{
    matmul_spec f = p->spec;
    f.m = rows;
    f.trans_a = f.prefer_gemm = 0;
    if (p->in_f32)
        f.a_dtype = f.b_dtype = f.c_dtype = LATHE_F32;
    return f;
}

static void choose_block(cpu_product *p)
{
    const int64_t m = p->spec.m;
    int64_t most = p->spec.trans_a ? PACK_ELEMENTS / p->spec.k / 64 * 64 : ROW_BLOCK;
    most = most < 64 ? 64 : most;
    p->n_blocks = (m + most - 1) / most;
    p->block = (m + p->n_blocks - 1) / p->n_blocks; /* even blocks, whole cache lines of columns */
    p->block = p->n_blocks > 1 ? cpu_round_up(p->block, 64) : m;
    p->n_blocks = (m + p->block - 1) / p->block;
}

/* p->whole stays NULL when oneDNN has no such product. */
static lathe_status create_by_blocks(cpu_device *device, cpu_product *p, int64_t *out_scratch)
{
    matmul_spec *s = &p->spec;
    p->by_blocks = 1;
    choose_block(p);
    const int64_t last = s->m - (p->n_blocks - 1) * p->block;
    const int c_in_scratch = p->in_f32 && s->c_dtype != LATHE_F32;
    int64_t scratch = 0, tail_scratch = 0;
    matmul_spec whole = block_spec(p, p->block), tail = block_spec(p, last);
    if (c_in_scratch) { /* overwritten there; the conversion adds */
        whole.may_overwrite = tail.may_overwrite = 1;
        whole.may_accumulate = tail.may_accumulate = 0;
    }
    LATHE_TRY(cpu_matmul_create(device, &whole, &p->whole, &scratch));
    if (p->whole == NULL)
        return LATHE_OK;
    if (last != p->block)
        LATHE_TRY(cpu_matmul_create(device, &tail, &p->tail, &tail_scratch));
    if (last != p->block && p->tail == NULL)
        return lathe_fail(device->host, LATHE_E_DEVICE, "oneDNN has no product for the last rows");
    const int64_t a_bytes = p->block * s->k * (p->in_f32 ? 4 : lathe_dtype_bytes(s->a_dtype));
    p->a_at = cpu_round_up(scratch > tail_scratch ? scratch : tail_scratch, 64);
    p->b_at = p->a_at + cpu_round_up(a_bytes, 64);
    p->c_at = p->b_at + (p->in_f32 ? cpu_round_up(s->k * s->n * 4, 64) : 0);
    *out_scratch = p->c_at + (c_in_scratch ? p->block * s->n * 4 : 0);
    return LATHE_OK;
}

/* Tries what is fastest first. */
static lathe_status create_best(cpu_device *device, cpu_product *p, int64_t *out_scratch)
{
    const int large = p->spec.m >= GEMM_SIDE && p->spec.n >= GEMM_SIDE;
    p->spec.prefer_gemm = p->spec.trans_a && large && p->spec.c_dtype == LATHE_F32;
    if (p->spec.trans_a && !p->spec.prefer_gemm)
        LATHE_TRY(create_by_blocks(device, p, out_scratch));
    else
        LATHE_TRY(cpu_matmul_create(device, &p->spec, &p->whole, out_scratch));
    if (p->whole != NULL)
        return LATHE_OK;
    p->in_f32 = 1;
    LATHE_TRY(create_by_blocks(device, p, out_scratch));
    if (p->whole == NULL)
        return lathe_fail(device->host, LATHE_E_DEVICE, "oneDNN has no f32 product here");
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

/* Rows from .. from+n-1 of op(a) as the block's product takes them. */
static const void *block_of_a(cpu_device *device, const cpu_product *p, const void *a, int64_t from,
                              int64_t n, void *buffer)
{
    const matmul_spec *s = &p->spec;
    const int32_t dtype = p->in_f32 ? LATHE_F32 : s->a_dtype;
    if (s->trans_a) {
        cpu_pack_transposed(device->host, buffer, dtype, at(a, from, s->a_dtype), s->a_dtype, s->k,
                            n, s->m);
        return buffer;
    }
    const void *rows = at(a, from * s->k, s->a_dtype);
    if (s->a_dtype == dtype)
        return rows;
    cpu_convert(device->host, buffer, LATHE_F32, rows, s->a_dtype, n * s->k, 0);
    return buffer;
}

static lathe_status run_by_blocks(cpu_device *device, cpu_product *p, const void *a, const void *b,
                                  const void *bias, void *c, char *scratch, int accumulate)
{
    const matmul_spec *s = &p->spec;
    const int c_in_scratch = p->in_f32 && s->c_dtype != LATHE_F32;
    const void *bx = b;
    if (p->in_f32 && s->b_dtype != LATHE_F32) {
        cpu_convert(device->host, scratch + p->b_at, LATHE_F32, b, s->b_dtype, s->k * s->n, 0);
        bx = scratch + p->b_at;
    }
    for (int64_t i = 0; i < p->n_blocks; i++) {
        const int64_t from = i * p->block;
        const int64_t n = s->m - from < p->block ? s->m - from : p->block;
        const void *ax = block_of_a(device, p, a, from, n, scratch + p->a_at);
        void *part = at_mut(c, from * s->n, s->c_dtype);
        void *cx = c_in_scratch ? scratch + p->c_at : part;
        LATHE_TRY(cpu_matmul_run(device, n == p->block ? p->whole : p->tail, ax, bx, bias, cx,
                                 scratch, accumulate && !c_in_scratch));
        if (c_in_scratch)
            cpu_convert(device->host, part, s->c_dtype, cx, LATHE_F32, n * s->n, accumulate);
    }
    return LATHE_OK;
}

lathe_status cpu_product_run(cpu_device *device, cpu_product *p, const void *a, const void *b,
                             const void *bias, void *c, void *scratch, int accumulate)
{
    if (p->by_blocks)
        return run_by_blocks(device, p, a, b, bias, c, scratch, accumulate);
    return cpu_matmul_run(device, p->whole, a, b, bias, c, scratch, accumulate);
}
