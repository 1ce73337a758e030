/* A matrix product of compute dtypes: oneDNN as it is, or in blocks for one of two reasons.
 *
 *  - bf16 where oneDNN has no bf16 product (processors without AVX-512): blocks go through f32.
 *  - trans_a with a long sum: oneDNN would split the sum over the workers, and the result would
 *    depend on how many there are. It does not for sums of at most SUM_BLOCK (measured with 2, 7
 *    and 32 workers, oneDNN 2.6).
 *
 * Blocks: without trans_a, rows of c; with trans_a, the summed dimension (so that a block of `a` is
 * contiguous), c being added up in f32; with trans_a and trans_b, which only MATMUL asks for, no
 * block is contiguous, and there is one.
 *
 *   scratch: | oneDNN | a block f32 | b (or its block) f32 | c (or its block) f32 |
 *            those that need no conversion are empty
 */
#include "product.h"

#include "element.h"

#define ROW_BLOCK 256
#define SUM_BLOCK 1024

struct cpu_product {
    cpu_matmul_spec spec;
    cpu_matmul *whole; /* the product as it is, or a whole block */
    cpu_matmul *tail;  /* the last, shorter block */
    int32_t by_blocks;
    int32_t in_f32; /* blocks are converted */
    int64_t block, n_blocks;
    int64_t a_at, b_at, c_at; /* offsets in scratch; c_at < 0: c is f32 already */
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

/* The product of one block of `rows` rows (of c, or of the summed dimension). */
static cpu_matmul_spec block_spec(const cpu_product *p, int64_t rows)
{
    cpu_matmul_spec f = p->spec;
    f.c_dtype = LATHE_F32;
    if (p->in_f32)
        f.a_dtype = f.b_dtype = LATHE_F32;
    if (f.trans_a) {
        f.k = rows;
        f.may_accumulate = 1; /* later blocks add; bias is never asked for with trans_a */
    } else {
        f.m = rows;
    }
    return f;
}

static lathe_status create_by_blocks(cpu_device *device, cpu_product *p, int64_t *out_scratch)
{
    cpu_matmul_spec *s = &p->spec;
    const int64_t rows = s->trans_a ? s->k : s->m;
    const int64_t most = !s->trans_a ? ROW_BLOCK : s->trans_b ? rows : SUM_BLOCK;
    p->by_blocks = 1;
    p->block = rows < most ? rows : most;
    p->n_blocks = (rows + p->block - 1) / p->block;
    const int64_t last = rows - (p->n_blocks - 1) * p->block;
    int64_t scratch = 0, tail_scratch = 0;
    if (s->trans_a && s->bias)
        return lathe_fail(device->host, LATHE_E_UNSUPPORTED, "a bias with a transposed left side");
    if (s->c_dtype != LATHE_F32)
        s->may_overwrite = 1; /* c in scratch is overwritten first */
    const cpu_matmul_spec whole = block_spec(p, p->block);
    LATHE_TRY(cpu_matmul_create(device, &whole, &p->whole, &scratch));
    if (last != p->block) {
        const cpu_matmul_spec tail = block_spec(p, last);
        LATHE_TRY(cpu_matmul_create(device, &tail, &p->tail, &tail_scratch));
    }
    if (p->whole == NULL || (last != p->block && p->tail == NULL))
        return LATHE_OK;
    const int64_t a_bytes = p->in_f32 ? p->block * (s->trans_a ? s->m : s->k) * 4 : 0;
    const int64_t b_bytes = p->in_f32 ? (s->trans_a ? p->block : s->k) * s->n * 4 : 0;
    p->a_at = cpu_round_up(scratch > tail_scratch ? scratch : tail_scratch, 64);
    p->b_at = p->a_at + cpu_round_up(a_bytes, 64);
    p->c_at = p->b_at + cpu_round_up(b_bytes, 64);
    *out_scratch = p->c_at;
    if (s->c_dtype == LATHE_F32)
        p->c_at = -1;
    else
        *out_scratch += (s->trans_a ? s->m : p->block) * s->n * 4;
    return LATHE_OK;
}

static void drop_primitives(cpu_device *device, cpu_product *p)
{
    cpu_matmul_destroy(device, p->whole);
    cpu_matmul_destroy(device, p->tail);
    p->whole = p->tail = NULL;
}

/* Tries what is fastest first; p->whole stays NULL when oneDNN has none of it. */
static lathe_status create_best(cpu_device *device, cpu_product *p, int64_t *out_scratch)
{
    if (p->spec.trans_a && !p->spec.trans_b && p->spec.k > SUM_BLOCK)
        LATHE_TRY(create_by_blocks(device, p, out_scratch));
    else
        LATHE_TRY(cpu_matmul_create(device, &p->spec, &p->whole, out_scratch));
    if (p->whole != NULL && (!p->by_blocks || p->n_blocks * p->block == p->spec.k || p->tail))
        return LATHE_OK;
    drop_primitives(device, p);
    p->in_f32 = 1;
    LATHE_TRY(create_by_blocks(device, p, out_scratch));
    if (p->whole == NULL)
        return lathe_fail(device->host, LATHE_E_DEVICE, "oneDNN has no f32 product here");
    return LATHE_OK;
}

lathe_status cpu_product_create(cpu_device *device, const cpu_matmul_spec *spec, cpu_product **out,
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
    drop_primitives(device, p);
    device->host->free(p);
}

/* n elements of x from `from` as the block's product takes them. */
static const void *operand(cpu_device *device, const cpu_product *p, const void *x, int32_t dtype,
                           int64_t from, int64_t n, float *buffer)
{
    const void *part = at(x, from, dtype);
    if (dtype == LATHE_F32 || !p->in_f32)
        return part;
    cpu_convert(device->host, buffer, LATHE_F32, part, dtype, n, 0);
    return buffer;
}

static lathe_status run_by_blocks(cpu_device *device, cpu_product *p, const void *a, const void *b,
                                  const void *bias, void *c, char *scratch, int accumulate)
{
    const cpu_matmul_spec *s = &p->spec;
    const int64_t rows = s->trans_a ? s->k : s->m;
    const int64_t a_width = s->trans_a ? s->m : s->k;
    float *a32 = (float *)(void *)(scratch + p->a_at);
    float *b32 = (float *)(void *)(scratch + p->b_at);
    float *c32 = p->c_at < 0 ? NULL : (float *)(void *)(scratch + p->c_at);
    const void *bx = s->trans_a ? NULL : operand(device, p, b, s->b_dtype, 0, s->k * s->n, b32);
    for (int64_t i = 0; i < p->n_blocks; i++) {
        const int64_t from = i * p->block;
        const int64_t n = rows - from < p->block ? rows - from : p->block;
        cpu_matmul *mm = n == p->block ? p->whole : p->tail;
        const void *ax = operand(device, p, a, s->a_dtype, from * a_width, n * a_width, a32);
        if (s->trans_a)
            bx = operand(device, p, b, s->b_dtype, from * s->n, n * s->n, b32);
        const int64_t c_from = s->trans_a ? 0 : from * s->n;
        float *cx = c32 != NULL ? c32 : (float *)c + c_from;
        const int direct = c32 == NULL && accumulate;
        LATHE_TRY(
            cpu_matmul_run(device, mm, ax, bx, bias, cx, scratch, direct || (s->trans_a && i > 0)));
        if (c32 != NULL && !s->trans_a)
            cpu_convert(device->host, at_mut(c, c_from, s->c_dtype), s->c_dtype, c32, LATHE_F32,
                        n * s->n, accumulate);
    }
    if (c32 != NULL && s->trans_a)
        cpu_convert(device->host, c, s->c_dtype, c32, LATHE_F32, s->m * s->n, accumulate);
    return LATHE_OK;
}

lathe_status cpu_product_run(cpu_device *device, cpu_product *p, const void *a, const void *b,
                             const void *bias, void *c, void *scratch, int accumulate)
{
    if (p->by_blocks)
        return run_by_blocks(device, p, a, b, bias, c, scratch, accumulate);
    return cpu_matmul_run(device, p->whole, a, b, bias, c, scratch, accumulate);
}
