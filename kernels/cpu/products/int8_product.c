/* A worker takes INT8_OUTPUTS outputs. For a few rows it reads their codes as they lie; for more it
 * packs them, so that a lane is an output, and multiplies a tile of rows at a time. Each tile is
 * finished while its sums are in the cache.
 *
 *   scratch: | inputs | for each worker: codes of a part | sums of a tile |
 */
#include "products/int8_product.h"

#include "products/int8_loops.h"

#define TASKS_OF_WORKER 4 /* at least, if there are enough rows */
#define LEAST_ROWS 96     /* of x in a task, for which packing the codes is worth it */
#define SUMS (INT8_TILE_ROWS > INT8_FEW_ROWS ? INT8_TILE_ROWS : INT8_FEW_ROWS)

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

int cpu_int8_serves(const matmul_spec *spec, const lathe_packed_weight *weight)
{
    lathe_activations asked = {0};
    return spec->trans_b && LATHE_HAS(weight->table, activations) &&
           weight->table->activations(weight->self, spec->n, spec->k, &asked);
}

lathe_status cpu_int8_init(const lathe_host *host, const matmul_spec *spec,
                           const lathe_packed_weight *weight, cpu_int8 *p, int64_t *out_scratch)
{
    const lathe_quant_v1 *table = weight->table;
    lathe_activations asked = {0};
    lathe_weight_codes codes = {0};
    const int64_t stride = cpu_round_up(spec->k, INT8_BLOCK);
    (void)table->activations(weight->self, spec->n, spec->k, &asked);
    if (asked.dtype != LATHE_I8 || spec->k > LATHE_ACTIVATION_COLS || !LATHE_HAS(table, codes) ||
        !LATHE_HAS(table, part_scales) ||
        !table->codes(weight->self, spec->n, spec->k, NULL, &codes) ||
        codes.order != LATHE_CODES_BYTES || codes.values != LATHE_VALUES_I8 || codes.bits != 8 ||
        codes.has_offsets || codes.group < spec->k)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "the format's weight cannot be multiplied with inputs of 8 bits");
    *p = (cpu_int8){.spec = *spec,
                    .weight = *weight,
                    .plane = codes.plane,
                    .threshold = asked.threshold,
                    .n_workers = host->n_threads(),
                    .input_bytes = int8_inputs_bytes(spec->m, spec->k)};
    p->worker_bytes = SUMS * INT8_OUTPUTS * (int64_t)sizeof(int32_t);
    if (spec->m > INT8_FEW_ROWS)
        p->worker_bytes += INT8_OUTPUTS * stride;
    *out_scratch = p->input_bytes + p->n_workers * p->worker_bytes;
    return LATHE_OK;
}

/* ---- codes of a part ---- */

typedef struct int8_job {
    const cpu_int8_use *uses;
    int8_inputs inputs[CPU_GEMV_JOINED];
    const int8_loops *loops;
    int64_t first[CPU_GEMV_JOINED + 1]; /* task of each product; then the number of tasks */
    int64_t rows;                       /* of x in a task */
    char *workers;
    int64_t worker_bytes; /* of the largest product */
} int8_job;

/* INT8_OUTPUTS outputs, of which the last may lack, and how they lie. */
typedef struct int8_part {
    const cpu_int8_use *use;
    const int8_inputs *in;
    int64_t first, n;      /* outputs */
    const uint8_t *codes;  /* of the first output, as they lie */
    const uint8_t *packed; /* [INT8_OUTPUTS / INT8_TILE][stride / 4][INT8_TILE][4]; NULL: none */
    float scales[INT8_OUTPUTS], bias[INT8_OUTPUTS];
} int8_part;

/* Packs 8 columns of four bytes each of 8 outputs. */
CPU_INLINE void pack_block(const uint8_t *const from[8], int64_t col, uint8_t *to)
{
    const __m256i sign = _mm256_set1_epi8((char)0x80);
    __m256 r[8];
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps((const float *)(const void *)(from[i] + col));
    v8_transpose(r);
    for (int i = 0; i < 8; i++)
        _mm256_storeu_si256((__m256i *)(void *)(to + i * 4 * INT8_TILE),
                            _mm256_xor_si256(_mm256_castps_si256(r[i]), sign));
}

/* Packs the codes of 8 outputs, of which those beyond the last repeat it. */
static void pack_eight(const int8_part *p, int64_t output, uint8_t *to)
{
    const int64_t k = p->in->k, whole = k / 32 * 32;
    const uint8_t *from[8];
    uint8_t ends[8][32] = {{0}};
    for (int64_t i = 0; i < 8; i++) {
        from[i] = p->codes + at_most(output + i, p->n - 1) * k;
        memcpy(ends[i], from[i] + whole, (size_t)(k - whole));
    }
    for (int64_t col = 0; col < whole; col += 32)
        pack_block(from, col, to + col * INT8_TILE);
    for (int64_t i = 0; i < 8; i++)
        from[i] = ends[i];
    for (int64_t col = whole; col < p->in->stride; col += 32) {
        pack_block(from, 0, to + col * INT8_TILE);
        memset(ends, 0, sizeof ends);
    }
}

static void pack_part(const int8_part *p, uint8_t *to)
{
    for (int64_t i = 0; i < INT8_OUTPUTS; i += 8)
        if (i / INT8_TILE * INT8_TILE < p->n)
            pack_eight(p, i, to + i / INT8_TILE * INT8_TILE * p->in->stride + i % INT8_TILE * 4);
}

static void take_scales(int8_part *p)
{
    const cpu_int8 *q = p->use->product;
    const lathe_weight_part part = {
        .row = p->first, .rows = p->n, .runs = 1, .cols = q->spec.k, .stride = 1};
    memset(p->scales, 0, sizeof p->scales);
    memset(p->bias, 0, sizeof p->bias);
    q->weight.table->part_scales(q->weight.self, q->spec.n, q->spec.k, p->use->planes, &part,
                                 p->scales, NULL);
    if (p->use->bias != NULL)
        memcpy(p->bias, p->use->bias + p->first, (size_t)p->n * sizeof *p->bias);
}

/* ---- outliers ---- */

/* Codes of column i: those of INT8_OUTPUTS outputs as numbers. */
static void codes_of_column(const int8_part *p, int64_t i, float *out)
{
    if (p->packed != NULL) {
        const vi byte = i_set(0xff);
        for (int64_t j = 0; j < p->n; j += VL) {
            const uint8_t *const tile = p->packed + j / INT8_TILE * INT8_TILE * p->in->stride;
            const vi four = i_load(tile + (i / 4 * INT8_TILE + j % INT8_TILE) * 4);
            const vi code = i_and(i_shift_right(four, (int32_t)(i % 4) * 8), byte);
            v_store(out + j, v_add(i_to_float(code), v_set(-128.0f)));
        }
        return;
    }
    for (int64_t j = 0; j < INT8_OUTPUTS; j++)
        out[j] = j < p->n ? (float)(int8_t)p->codes[j * p->in->k + i] : 0.0f;
}

/* The sums of the outliers of row r. */
static void add_outliers(const int8_part *p, int64_t r, float *sums)
{
    const int8_inputs *in = p->in;
    const uint64_t *mask = in->masks + r * (in->stride / INT8_BLOCK);
    float codes[INT8_OUTPUTS];
    for (int64_t block = 0; block < in->stride / INT8_BLOCK; block++)
        for (uint64_t bits = mask[block]; bits != 0; bits &= bits - 1) {
            const int64_t i = block * INT8_BLOCK + __builtin_ctzll(bits);
            const vf x = v_set(in->dtype == LATHE_F32    ? ld(in->x, r * in->k + i, LATHE_F32)
                               : in->dtype == LATHE_BF16 ? ld(in->x, r * in->k + i, LATHE_BF16)
                                                         : ld(in->x, r * in->k + i, LATHE_F16));
            codes_of_column(p, i, codes);
            for (int64_t j = 0; j < p->n; j += VL)
                v_store(sums + j, v_fma(x, v_load(codes + j), v_load(sums + j)));
        }
}

/* ---- results ---- */

/* Stores row r: products [INT8_OUTPUTS], from the sums of codes. */
CPU_INLINE void finish_row(const int8_part *p, int64_t r, const int32_t *codes, int32_t dtype)
{
    const matmul_spec *s = &p->use->product->spec;
    const vi shift = i_set(p->in->sums[r]);
    const vf step = v_set(p->in->scales[r]);
    float sums[INT8_OUTPUTS] = {0};
    void *const to = at_mut(p->use->c, r * matmul_c_stride(s) + p->first, dtype);
    if (p->in->outliers[r] > 0)
        add_outliers(p, r, sums);
    for (int64_t j = 0; j < p->n; j += VL) {
        const vf exact = i_to_float(i_subtract(i_load(codes + j), shift));
        const vf sum = v_fma(exact, step, v_load(sums + j));
        const vf y = v_fma(sum, v_load(p->scales + j), v_load(p->bias + j));
        if (j + VL <= p->n) {
            v_store_as(to, j, dtype, y);
            continue;
        }
        v_store(sums + j, y);
        for (int64_t i = j; i < p->n; i++)
            st(to, i, dtype, 0, sums[i]);
    }
}

static void finish(const int8_part *p, int64_t row, int64_t rows, const int32_t *sums)
{
    for (int64_t r = 0; r < rows; r++)
        CPU_BY_DTYPE(p->use->product->spec.c_dtype, finish_row, p, row + r,
                     sums + r * INT8_OUTPUTS);
}

static void multiply_lines(const int8_job *job, const int8_part *p, int32_t *sums)
{
    const int8_inputs *in = p->in;
    const int8_lines lines = {.codes = p->codes,
                              .n = p->n,
                              .k = in->k,
                              .x = in->codes,
                              .stride = in->stride,
                              .sums = sums};
    job->loops->lines(&lines, in->m);
    finish(p, 0, in->m, sums);
}

static void multiply_panels(const int8_job *job, const int8_part *p, int64_t row, int64_t rows,
                            int32_t *sums)
{
    const int8_inputs *in = p->in;
    for (int64_t r = row; r < row + rows; r += INT8_TILE_ROWS) {
        const int64_t n = at_most(row + rows - r, INT8_TILE_ROWS);
        for (int64_t j = 0; j < p->n; j += INT8_TILE) {
            const int8_panel panel = {.codes = p->packed + j * in->stride,
                                      .x = in->codes + r * in->stride,
                                      .stride = in->stride,
                                      .sums = sums + j};
            job->loops->panel(&panel, n);
        }
        finish(p, r, n, sums);
    }
}

static void task(const int8_job *job, int32_t product, int64_t i, char *own)
{
    const cpu_int8_use *u = &job->uses[product];
    const matmul_spec *s = &u->product->spec;
    const int64_t parts = (s->n + INT8_OUTPUTS - 1) / INT8_OUTPUTS;
    const int64_t row = i / parts * job->rows;
    int32_t *const sums = (int32_t *)(void *)own;
    int8_part p = {.use = u, .in = &job->inputs[product], .first = i % parts * INT8_OUTPUTS};
    p.n = at_most(s->n - p.first, INT8_OUTPUTS);
    p.codes = (const uint8_t *)u->planes[u->product->plane] + p.first * s->k;
    take_scales(&p);
    if (s->m <= INT8_FEW_ROWS) {
        multiply_lines(job, &p, sums);
        return;
    }
    uint8_t *const packed = (uint8_t *)(sums + SUMS * INT8_OUTPUTS);
    pack_part(&p, packed);
    p.packed = packed;
    multiply_panels(job, &p, row, at_most(s->m - row, job->rows), sums);
}

static void task_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const int8_job *job = arg;
    int32_t product = 0;
    for (int64_t i = begin; i < end; i++) {
        while (i >= job->first[product + 1])
            product++;
        task(job, product, i - job->first[product], job->workers + worker * job->worker_bytes);
    }
}

/* Quantizes the rows of x. Products with the same threshold share the result. Returns the end of
 * the scratch that it takes. */
static char *fill_inputs(const lathe_host *host, int8_job *job, int32_t n, const void *a, char *at)
{
    for (int32_t i = 0; i < n; i++) {
        const cpu_int8 *p = job->uses[i].product;
        int32_t k = 0;
        while (k < i && job->uses[k].product->threshold != p->threshold)
            k++;
        if (k < i)
            job->inputs[i] = job->inputs[k];
        else
            int8_inputs_fill(host, a, p->spec.a_dtype, p->spec.m, p->spec.k, p->threshold, at,
                             &job->inputs[i]);
        at += p->input_bytes;
    }
    return at;
}

/* Rows of x in a task: all, unless some workers would get nothing to do. */
static int64_t rows_of_task(const cpu_int8_use *uses, int32_t n, int32_t n_workers)
{
    const int64_t m = uses[0].product->spec.m;
    int64_t parts = 0;
    for (int32_t i = 0; i < n; i++)
        parts += (uses[i].product->spec.n + INT8_OUTPUTS - 1) / INT8_OUTPUTS;
    if (parts == 0)
        return m;
    const int64_t cuts = (TASKS_OF_WORKER * n_workers + parts - 1) / parts;
    const int64_t rows = cpu_round_up((m + cuts - 1) / cuts, INT8_TILE_ROWS);
    return n_workers == 1 ? m : at_most(m, rows > LEAST_ROWS ? rows : LEAST_ROWS);
}

lathe_status cpu_int8_run(const lathe_host *host, const cpu_int8_use *uses, int32_t n,
                          const void *a, void *scratch)
{
    int8_job job = {.uses = uses, .loops = cpu_int8_loops(1)};
    const int64_t m = uses[0].product->spec.m;
    if (host->n_threads() > uses[0].product->n_workers)
        return lathe_fail(host, LATHE_E_STATE, "a product made for %d workers runs with %d",
                          (int)uses[0].product->n_workers, (int)host->n_threads());
    job.rows = rows_of_task(uses, n, host->n_threads());
    job.workers = fill_inputs(host, &job, n, a, scratch);
    for (int32_t i = 0; i < n; i++) {
        const cpu_int8 *p = uses[i].product;
        const int64_t parts = (p->spec.n + INT8_OUTPUTS - 1) / INT8_OUTPUTS;
        job.first[i + 1] = job.first[i] + parts * ((m + job.rows - 1) / job.rows);
        job.worker_bytes = p->worker_bytes > job.worker_bytes ? p->worker_bytes : job.worker_bytes;
    }
    host->parallel_for(job.first[n], 1, task_range, &job);
    return LATHE_OK;
}
