/* Rows that are quantized: int8_product.c. Few rows, and rows whose bits may not depend on the
 * others: quantized_gemv.c. Else the workers
 * decode a block of the weight, each a part of it, and then multiply the block together:
 *
 *   b = W^T:  rows of W    ->  columns of c, whose sums are complete
 *   b = W:    columns of W ->  columns of c, likewise
 *
 *   scratch: | product of a block | the block |     or that of quantized_gemv.c or int8_product.c
 */
#include "products/quantized_product.h"

#include "base/element.h"
#include "products/int8_product.h"
#include "products/quantized_gemv.h"

#define PART_ROWS 128                 /* of W^T for each worker, about */
#define PART_BYTES ((int64_t)1 << 20) /* of W for each worker, about */
#define TASKS_PER_WORKER 4

struct cpu_quantized {
    matmul_spec spec;
    int32_t is_by_rows, is_int8;
    cpu_quantized_gemv rows;
    cpu_int8 int8;
    lathe_packed_weight weight;
    cpu_product *whole, *tail; /* of a block; of the last, shorter one */
    int64_t block;             /* columns of c in a block */
    int64_t task;              /* rows of W that a worker decodes at a time */
    int64_t block_at;          /* offset in scratch */
};

static int64_t at_least(int64_t n, int64_t least)
{
    return n > least ? n : least;
}

/* Elements of a row of W. */
static int64_t row_elements(const matmul_spec *s)
{
    return s->trans_b ? s->k : s->n;
}

static int64_t rows_of_w(const matmul_spec *s)
{
    return s->trans_b ? s->n : s->k;
}

static void choose_block(cpu_quantized *p, int32_t n_workers)
{
    const matmul_spec *s = &p->spec;
    lathe_part_rows by = {1, 1, 0};
    if (LATHE_HAS(p->weight.table, part_rows))
        p->weight.table->part_rows(p->weight.self, rows_of_w(s), row_elements(s), &by);
    if (s->trans_b) {
        p->block = cpu_round_up(n_workers * PART_ROWS, by.rows);
    } else {
        const int64_t column_bytes = at_least(s->k * lathe_dtype_bytes(s->b_dtype), 1);
        p->block =
            at_least(n_workers * PART_BYTES / column_bytes / LATHE_PART_COLS, 1) * LATHE_PART_COLS;
    }
    p->block = p->block < s->n ? p->block : s->n;
    const int64_t rows = s->trans_b ? p->block : s->k;
    p->task = cpu_round_up(at_least(rows / (n_workers * TASKS_PER_WORKER), 1), by.rows);
}

/* The product of a block of n columns of c. */
static lathe_status create_block(cpu_device *device, const cpu_quantized *p, int64_t n,
                                 cpu_product **out, int64_t *io_scratch)
{
    matmul_spec s = p->spec;
    int64_t bytes = 0;
    s.n = n;
    s.c_stride = matmul_c_stride(&p->spec);
    LATHE_TRY(cpu_product_create(device, &s, out, &bytes));
    *io_scratch = at_least(*io_scratch, bytes);
    return LATHE_OK;
}

static lathe_status create_blocks(cpu_device *device, cpu_quantized *p, int64_t *out_scratch)
{
    const matmul_spec *s = &p->spec;
    int64_t scratch = 0;
    choose_block(p, device->host->n_threads());
    LATHE_TRY(create_block(device, p, p->block, &p->whole, &scratch));
    if (s->n % p->block != 0)
        LATHE_TRY(create_block(device, p, s->n % p->block, &p->tail, &scratch));
    p->block_at = cpu_round_up(scratch, 64);
    *out_scratch = p->block_at + p->block * s->k * lathe_dtype_bytes(s->b_dtype);
    return LATHE_OK;
}

lathe_status cpu_quantized_create(cpu_device *device, const matmul_spec *spec,
                                  const lathe_packed_weight *weight, cpu_quantized **out,
                                  int64_t *out_scratch)
{
    const lathe_host *host = device->host;
    *out = NULL;
    if (!LATHE_HAS(weight->table, decode_part))
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "the format of the weight decodes no parts");
    cpu_quantized *p = host->alloc((int64_t)sizeof *p);
    if (p == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for a matrix product");
    p->spec = *spec;
    p->weight = *weight;
    p->is_int8 = cpu_int8_serves(spec, weight);
    p->is_by_rows = cpu_gemv_serves(spec);
    lathe_status status = LATHE_OK;
    if (p->is_int8) {
        status = cpu_int8_init(host, spec, weight, &p->int8, out_scratch);
    } else if (p->is_by_rows) {
        cpu_quantized_gemv_init(spec, weight, host->n_threads(), &p->rows, out_scratch);
        *out_scratch += p->rows.layout_bytes;
    } else {
        status = create_blocks(device, p, out_scratch);
    }
    if (status != LATHE_OK) {
        cpu_quantized_destroy(device, p);
        return status;
    }
    *out = p;
    return LATHE_OK;
}

void cpu_quantized_destroy(cpu_device *device, cpu_quantized *p)
{
    if (p == NULL)
        return;
    cpu_product_destroy(device, p->whole);
    cpu_product_destroy(device, p->tail);
    device->host->free(p);
}

typedef struct block_job {
    const cpu_quantized *p;
    const void *const *planes;
    void *to;
    int64_t first, n; /* columns of c */
} block_job;

/* Decodes tasks [begin, end) of the block. */
static void decode_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const block_job *job = arg;
    const cpu_quantized *p = job->p;
    const matmul_spec *s = &p->spec;
    const int64_t rows = s->trans_b ? job->n : s->k, cols = s->trans_b ? s->k : job->n;
    const int64_t from = begin * p->task, last = end * p->task < rows ? end * p->task : rows;
    const lathe_weight_part part = {.row = from + (s->trans_b ? job->first : 0),
                                    .rows = last - from,
                                    .runs = 1,
                                    .col = s->trans_b ? 0 : job->first,
                                    .cols = cols,
                                    .stride = cols};
    (void)worker;
    p->weight.table->decode_part(p->weight.self, rows_of_w(s), row_elements(s), job->planes, &part,
                                 at_mut(job->to, from * cols, s->b_dtype), s->b_dtype);
}

lathe_status cpu_quantized_run(cpu_device *device, cpu_quantized *p, const void *a,
                               const void *const *planes, const float *bias, void *c, void *scratch,
                               int accumulate)
{
    const matmul_spec *s = &p->spec;
    block_job job = {.p = p, .planes = planes, .to = (char *)scratch + p->block_at};
    if (p->is_int8) {
        const cpu_int8_use use = {&p->int8, planes, bias, c};
        return cpu_int8_run(device->host, &use, 1, a, scratch);
    }
    if (p->is_by_rows) {
        const cpu_quantized_gemv_use use = {&p->rows, planes, bias, c};
        return cpu_quantized_gemv_run(device->host, &use, 1, a, scratch, accumulate);
    }
    for (; job.first < s->n; job.first += p->block) {
        job.n = s->n - job.first < p->block ? s->n - job.first : p->block;
        const int64_t rows = s->trans_b ? job.n : s->k;
        device->host->parallel_for((rows + p->task - 1) / p->task, 1, decode_range, &job);
        LATHE_TRY(cpu_product_run(device, job.n == p->block ? p->whole : p->tail, a, job.to,
                                  bias != NULL ? bias + job.first : NULL,
                                  at_mut(c, job.first, s->c_dtype), scratch, accumulate));
    }
    return LATHE_OK;
}
