/* Products of a few rows: dot products with the rows of the weight, which are read as stored.
 *
 * First the rows of `a` are widened to f32 in scratch, in the order in which widening in registers
 * yields the weight's elements: of each 2 VL bf16 elements, first the even ones, then the odd ones.
 * The tail of a row, fewer than 2 VL elements, is padded with zeros.
 *
 *   scratch: a f32 [m][k rounded up to 2 VL]
 */
#include "rows.h"

#include "simd.h"

#define STEP (2 * VL)           /* elements of a weight row that are processed at a time */
#define CHUNK_BYTES (16 * 1024) /* of weights that a worker takes at a time, about */
#define MOST_A 4                /* rows of a that are processed at a time */
#define MOST_WAYS 4

typedef struct rows_job {
    const matmul_spec *spec;
    const float *a; /* [m][wide] */
    const char *b;
    const float *bias;
    void *c;
    int64_t wide;
    int32_t accumulate;
} rows_job;

int cpu_rows_serves(const matmul_spec *s)
{
    return s->m <= CPU_ROWS_MOST && s->trans_b && !s->trans_a && s->a_dtype == s->b_dtype;
}

int64_t cpu_rows_scratch(const matmul_spec *s)
{
    return s->m * cpu_round_up(s->k, STEP) * (int64_t)sizeof(float);
}

CPU_INLINE void load_step(const void *p, vf *x, vf *y, int32_t dtype)
{
    if (dtype == LATHE_BF16) {
        v_widen_pairs(p, x, y);
    } else if (dtype == LATHE_F16) {
        *x = v_widen(p, LATHE_F16);
        *y = v_widen((const uint16_t *)p + VL, LATHE_F16);
    } else {
        *x = v_load(p);
        *y = v_load((const float *)p + VL);
    }
}

/* Loads the last n < STEP elements of a row, padded with zeros. */
CPU_INLINE void load_tail(const char *p, int64_t n, vf *x, vf *y, int32_t dtype)
{
    char tail[STEP * sizeof(float)] = {0};
    memcpy(tail, p, (size_t)(n * (dtype == LATHE_F32 ? 4 : 2)));
    load_step(tail, x, y, dtype);
}

/* Widens elements [0, n) of a row to f32, in the order of load_step, padded with zeros to whole
 * STEPs. */
CPU_INLINE void spread_row(float *to, const void *from, int64_t n, int32_t dtype)
{
    const int64_t bytes = dtype == LATHE_F32 ? 4 : 2;
    const char *const p = from;
    vf x, y;
    for (int64_t i = 0; i < n; i += STEP) {
        if (n - i >= STEP)
            load_step(p + i * bytes, &x, &y, dtype);
        else
            load_tail(p + i * bytes, n - i, &x, &y, dtype);
        v_store(to + i, x);
        v_store(to + i + VL, y);
    }
}

CPU_INLINE void store_value(const rows_job *job, int64_t row, int64_t column, float sum)
{
    const matmul_spec *s = job->spec;
    float y = (float)s->alpha * sum;
    if (job->bias != NULL)
        y += job->bias[column];
    const int64_t i = row * s->n + column;
    if (s->c_dtype == LATHE_F32)
        st(job->c, i, LATHE_F32, job->accumulate, y);
    else if (s->c_dtype == LATHE_BF16)
        st(job->c, i, LATHE_BF16, job->accumulate, y);
    else
        st(job->c, i, LATHE_F16, job->accumulate, y);
}

/* Returns sum + the products of one step's elements with those of a row of a. */
CPU_INLINE vf add_step(vf sum, vf x, vf y, const float *a)
{
    return v_fma(y, v_load(a + VL), v_fma(x, v_load(a), sum));
}

/* Multiplies one row of the weight with `n_a` rows of a from `row` on. Each sum has `ways`
 * accumulators, which hide the latency of the additions; leftover steps go to the first ones. */
CPU_INLINE void dot_row(const rows_job *job, int64_t row, int64_t column, int n_a, int ways,
                        int32_t dtype)
{
    const int64_t k = job->spec->k, bytes = dtype == LATHE_F32 ? 4 : 2;
    const int64_t whole = k / STEP * STEP, stride = ways * STEP;
    const float *const a = job->a + row * job->wide;
    const char *const b = job->b + column * k * bytes;
    vf sums[MOST_A][MOST_WAYS], x, y;
#pragma GCC unroll 16
    for (int r = 0; r < n_a; r++)
#pragma GCC unroll 16
        for (int u = 0; u < ways; u++)
            sums[r][u] = v_zero();
    int64_t i = 0;
    for (; i + stride <= whole; i += stride)
#pragma GCC unroll 16
        for (int u = 0; u < ways; u++) {
            load_step(b + (i + u * STEP) * bytes, &x, &y, dtype);
#pragma GCC unroll 16
            for (int r = 0; r < n_a; r++)
                sums[r][u] = add_step(sums[r][u], x, y, a + r * job->wide + i + u * STEP);
        }
#pragma GCC unroll 16
    for (int u = 0; u < ways; u++, i += STEP) {
        if (i >= k)
            break;
        if (i < whole)
            load_step(b + i * bytes, &x, &y, dtype);
        else
            load_tail(b + i * bytes, k - i, &x, &y, dtype);
#pragma GCC unroll 16
        for (int r = 0; r < n_a; r++)
            sums[r][u] = add_step(sums[r][u], x, y, a + r * job->wide + i);
    }
#pragma GCC unroll 16
    for (int r = 0; r < n_a; r++) {
        vf sum = sums[r][0];
#pragma GCC unroll 16
        for (int u = 1; u < ways; u++)
            sum = v_add(sum, sums[r][u]);
        store_value(job, row + r, column, v_sum(sum));
    }
}

/* Computes columns [begin, end) of c. A row of the weight stays in the L1 cache for all rows of
 * a. */
CPU_INLINE void dot_columns(const rows_job *job, int64_t begin, int64_t end, int32_t dtype)
{
    const int64_t m = job->spec->m;
    for (int64_t j = begin; j < end; j++)
        for (int64_t r = 0; r < m; r += MOST_A)
            if (m - r == 1)
                dot_row(job, r, j, 1, 4, dtype);
            else if (m - r == 2)
                dot_row(job, r, j, 2, 4, dtype);
            else if (m - r == 3)
                dot_row(job, r, j, 3, 2, dtype);
            else
                dot_row(job, r, j, 4, 2, dtype);
}

static void columns_of(const rows_job *job, int64_t begin, int64_t end)
{
    CPU_BY_DTYPE(job->spec->b_dtype, dot_columns, job, begin, end);
}

/* Widens the rows of `a` into scratch. */
static void spread_rows(const matmul_spec *spec, const void *a, float *to, int64_t wide)
{
    for (int64_t r = 0; r < spec->m; r++) {
        const void *const from = at(a, r * spec->k, spec->a_dtype);
        CPU_BY_DTYPE(spec->a_dtype, spread_row, to + r * wide, from, spec->k);
    }
}

static rows_job job_of(const cpu_rows_product *p, void *scratch, int accumulate)
{
    return (rows_job){.spec = p->spec,
                      .a = scratch,
                      .b = p->b,
                      .bias = p->bias,
                      .c = p->c,
                      .wide = cpu_round_up(p->spec->k, STEP),
                      .accumulate = accumulate};
}

/* Rows of the weight that a worker takes at a time. */
static int64_t chunk_columns(const matmul_spec *spec)
{
    const int64_t k_bytes = spec->k * lathe_dtype_bytes(spec->b_dtype);
    const int64_t row_bytes = k_bytes > 0 ? k_bytes : 1; /* k = 0: the sums are empty */
    return (CHUNK_BYTES + row_bytes - 1) / row_bytes;
}

/* ---- several products of one a ---- */

/* The rows of all weights are numbered in one sequence, product after product. */
typedef struct joined_job {
    rows_job products[CPU_ROWS_JOINED];
    int64_t first[CPU_ROWS_JOINED + 1]; /* first row of each product; then the number of rows */
} joined_job;

/* Computes the columns of rows [begin, end) of that sequence. */
static void joined_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const joined_job *job = arg;
    (void)worker;
    for (int64_t at_row = begin, p = 0; at_row < end; p++) {
        const int64_t last = end < job->first[p + 1] ? end : job->first[p + 1];
        if (at_row >= last)
            continue;
        columns_of(&job->products[p], at_row - job->first[p], last - job->first[p]);
        at_row = last;
    }
}

static void run_joined(const lathe_host *host, const cpu_rows_product *products, int32_t n,
                       const void *a, void *scratch, int accumulate)
{
    const matmul_spec *spec = products[0].spec;
    joined_job job = {.first = {0}};
    for (int32_t i = 0; i < n; i++) {
        job.products[i] = job_of(&products[i], scratch, accumulate);
        job.first[i + 1] = job.first[i] + products[i].spec->n;
    }
    spread_rows(spec, a, scratch, job.products[0].wide);
    host->parallel_for(job.first[n], chunk_columns(spec), joined_range, &job);
}

void cpu_rows_run(const lathe_host *host, const matmul_spec *spec, const void *a, const void *b,
                  const float *bias, void *c, void *scratch, int accumulate)
{
    const cpu_rows_product product = {spec, b, bias, c};
    run_joined(host, &product, 1, a, scratch, accumulate);
}

void cpu_rows_run_joined(const lathe_host *host, const cpu_rows_product *products, int32_t n,
                         const void *a, void *scratch)
{
    run_joined(host, products, n, a, scratch, 0);
}
