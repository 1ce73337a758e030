/* Products with a transposed weight whose sums are added in one order, whatever the number of rows
 * of `a`: a row of the result has the same bits alone and among others. Each element is a dot
 * product of a row of `a` and a row of the weight, which is read as stored.
 *
 * The order of a sum: the elements are cut into steps of STEP, which are added to one vector in
 * order, lane by lane; then the lanes are added (v_sum). One vector per sum is enough even for one
 * row of `a`: the processor computes the next elements of c while it waits.
 *
 * The rows of `a` are first copied to scratch if they need it: they are widened to f32, in the
 * order in which widening in registers yields the weight's elements, and padded with zeros to whole
 * steps. With instructions for bf16, bf16 rows stay as they are.
 *
 *   scratch: a [m][k rounded up to STEP]
 */
#include "products/gemv.h"

#include "products/dot_steps.h"

#define CHUNK_BYTES (16 * 1024) /* of weights that a worker takes at a time, about */
#define MOST_COLUMNS 48         /* of c that a worker computes at a time */
#define BLOCK_ROWS 64           /* of a that a worker takes at a time, if there are more */

/* Elements of c that a kernel keeps in registers. */
#if VL == 16
#define TILE_ROWS 8
#define TILE_COLUMNS 3
#else
#define TILE_ROWS 4
#define TILE_COLUMNS 2
#endif

#define AHEAD                                                                                      \
    4 /* tiles between the one that is computed and the one that is fetched to the L2 cache */

typedef struct rows_job {
    const matmul_spec *spec;
    const char *a; /* [m], a_bytes apart */
    const char *b;
    const float *bias;
    void *c;
    int64_t a_bytes;
    int32_t accumulate;
} rows_job;

int cpu_gemv_serves(const matmul_spec *s)
{
    return (s->m <= CPU_GEMV_MOST || s->invariant) && s->trans_b && !s->trans_a &&
           s->a_dtype == s->b_dtype;
}

/* Whether the kernels can read the rows of `a` where they are. */
static int reads_in_place(const matmul_spec *s)
{
    return s->k % STEP == 0 && a_bytes_of(s->a_dtype) == bytes_of(s->a_dtype);
}

int64_t cpu_gemv_scratch(const matmul_spec *s)
{
    return reads_in_place(s) ? 0 : s->m * cpu_round_up(s->k, STEP) * a_bytes_of(s->a_dtype);
}

/* ---- copies of the rows of a ---- */

/* Copies the last n < STEP elements of a row, padded with zeros. */
CPU_INLINE const char *padded_tail(char *tail, const char *p, int64_t n, int32_t dtype)
{
    memset(tail, 0, STEP * sizeof(float));
    memcpy(tail, p, (size_t)(n * bytes_of(dtype)));
    return tail;
}

CPU_INLINE void copy_step(char *to, const char *from, int32_t dtype)
{
    vf x, y;
    if (a_bytes_of(dtype) == 2) {
        memcpy(to, from, 2 * STEP);
        return;
    }
    load_step(from, &x, &y, dtype);
    v_store((float *)(void *)to, x);
    v_store((float *)(void *)to + VL, y);
}

CPU_INLINE void copy_row(char *to, const char *from, int64_t n, int32_t dtype)
{
    char tail[STEP * sizeof(float)];
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP)
        copy_step(to + i * a_bytes_of(dtype), from + i * bytes_of(dtype), dtype);
    if (i < n)
        copy_step(to + i * a_bytes_of(dtype),
                  padded_tail(tail, from + i * bytes_of(dtype), n - i, dtype), dtype);
}

typedef struct copy_job {
    const matmul_spec *spec;
    const char *from;
    char *to;
} copy_job;

static void copy_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const copy_job *job = arg;
    const matmul_spec *s = job->spec;
    const int64_t wide = cpu_round_up(s->k, STEP) * a_bytes_of(s->a_dtype);
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        CPU_BY_DTYPE(s->a_dtype, copy_row, job->to + r * wide,
                     job->from + r * s->k * bytes_of(s->a_dtype), s->k);
}

const char *cpu_gemv_ready(const lathe_host *host, const matmul_spec *spec, const void *a,
                           void *scratch, int64_t *out_bytes)
{
    copy_job job = {spec, a, scratch};
    *out_bytes = cpu_round_up(spec->k, STEP) * a_bytes_of(spec->a_dtype);
    if (reads_in_place(spec))
        return a;
    if (spec->m <= CPU_GEMV_MOST)
        copy_range(&job, 0, spec->m, 0);
    else
        host->parallel_for(spec->m, 8, copy_range, &job);
    return scratch;
}

/* ---- one or two rows of a, one row of the weight ---- */

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

/* Multiplies one row of the weight with `n_a` rows of a from `row` on. */
CPU_INLINE void dot_row(const rows_job *job, int64_t row, int64_t column, int n_a, int32_t dtype)
{
    const int64_t k = job->spec->k, wide = a_bytes_of(dtype);
    const char *const a = job->a + row * job->a_bytes;
    const char *const b = job->b + column * k * bytes_of(dtype);
    char tail[STEP * sizeof(float)];
    vf sums[2];
#pragma GCC unroll 2
    for (int r = 0; r < n_a; r++)
        sums[r] = v_zero();
    int64_t i = 0;
    for (; i + STEP <= k; i += STEP)
#pragma GCC unroll 2
        for (int r = 0; r < n_a; r++)
            sums[r] =
                add_step(sums[r], b + i * bytes_of(dtype), a + r * job->a_bytes + i * wide, dtype);
    if (i < k) {
        (void)padded_tail(tail, b + i * bytes_of(dtype), k - i, dtype);
#pragma GCC unroll 2
        for (int r = 0; r < n_a; r++)
            sums[r] = add_step(sums[r], tail, a + r * job->a_bytes + i * wide, dtype);
    }
#pragma GCC unroll 2
    for (int r = 0; r < n_a; r++)
        store_value(job, row + r, column, v_sum(sums[r]));
}

/* ---- tiles of rows of a and rows of the weight ---- */

/* Adds one step to a tile of accumulators. b [columns]: pointers to the elements of this step. */
CPU_INLINE void tile_step(vf (*acc)[TILE_COLUMNS], const char *const *b, const char *a,
                          int64_t a_bytes, int rows, int columns, int32_t dtype)
{
#if MULTIPLIES_BF16
    if (dtype == LATHE_BF16) {
        __m512bh w[TILE_COLUMNS];
#pragma GCC unroll 16
        for (int j = 0; j < columns; j++)
            w[j] = (__m512bh)_mm512_loadu_si512(b[j]);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const __m512bh x = (__m512bh)_mm512_loadu_si512(a + r * a_bytes);
#pragma GCC unroll 16
            for (int j = 0; j < columns; j++)
                acc[r][j] = _mm512_dpbf16_ps(acc[r][j], w[j], x);
        }
        return;
    }
#endif
    vf w[2][TILE_COLUMNS];
#pragma GCC unroll 16
    for (int j = 0; j < columns; j++)
        load_step(b[j], &w[0][j], &w[1][j], dtype);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const vf x = v_load((const float *)(const void *)(a + r * a_bytes) + half * VL);
#pragma GCC unroll 16
            for (int j = 0; j < columns; j++)
                acc[r][j] = v_fma(w[half][j], x, acc[r][j]);
        }
}

/* Sums rows x columns elements of c, from weight row `column` on, into sums [rows][MOST_COLUMNS].
 */
CPU_INLINE void dot_tile(const rows_job *job, const char *a, int64_t column, float *sums, int rows,
                         int columns, int32_t dtype)
{
    const int64_t k = job->spec->k, row_bytes = k * bytes_of(dtype);
    const int64_t step_bytes = columns * STEP * bytes_of(dtype);
    const char *const first = job->b + column * row_bytes;
    const char *ahead = first + AHEAD * columns * row_bytes, *b[TILE_COLUMNS];
    char tails[TILE_COLUMNS][STEP * sizeof(float)];
    vf acc[TILE_ROWS][TILE_COLUMNS];
    int64_t i = 0;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int j = 0; j < columns; j++)
            acc[r][j] = v_zero();
    for (; i + STEP <= k; i += STEP, ahead += step_bytes) {
#pragma GCC unroll 16
        for (int64_t line = 0; line < step_bytes; line += 64)
            __builtin_prefetch(ahead + line, 0, 2);
#pragma GCC unroll 16
        for (int j = 0; j < columns; j++)
            b[j] = first + j * row_bytes + i * bytes_of(dtype);
        tile_step(acc, b, a + i * a_bytes_of(dtype), job->a_bytes, rows, columns, dtype);
    }
    if (i < k) {
        for (int j = 0; j < columns; j++)
            b[j] = padded_tail(tails[j], first + j * row_bytes + i * bytes_of(dtype), k - i, dtype);
        tile_step(acc, b, a + i * a_bytes_of(dtype), job->a_bytes, rows, columns, dtype);
    }
#pragma GCC unroll 16
    for (int j = 0; j < columns; j++)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r += 4) {
            float four[4];
            v_sum4(acc[r][j], acc[r + 1][j], acc[r + 2][j], acc[r + 3][j], four);
#pragma GCC unroll 4
            for (int e = 0; e < 4; e++)
                sums[(r + e) * MOST_COLUMNS + j] = four[e];
        }
}

/* Scales sums [rows][MOST_COLUMNS], adds the bias and stores them as c[row.., column..]. */
CPU_INLINE void store_sums(const rows_job *job, const float *sums, int64_t row, int64_t rows,
                           int64_t column, int64_t columns, int32_t dtype)
{
    const matmul_spec *s = job->spec;
    const float alpha = (float)s->alpha;
    for (int64_t r = 0; r < rows; r++) {
        const float *const from = sums + r * MOST_COLUMNS;
        void *const to = at_mut(job->c, (row + r) * s->n + column, dtype);
        float y[MOST_COLUMNS];
        for (int64_t j = 0; j < columns; j++)
            y[j] = alpha * from[j];
        for (int64_t j = 0; job->bias != NULL && j < columns; j++)
            y[j] += job->bias[column + j];
        if (job->accumulate)
            for (int64_t j = 0; j < columns; j++)
                st(to, j, dtype, 1, y[j]);
        else
            for (int64_t j = 0; j < columns; j++)
                st(to, j, dtype, 0, y[j]);
    }
}

/* Computes `rows` rows, TILE_ROWS or 4, of columns [begin, end). */
CPU_INLINE void tile_columns(const rows_job *job, int64_t row, int rows, int64_t begin, int64_t end,
                             int32_t dtype)
{
    float sums[TILE_ROWS * MOST_COLUMNS];
    const char *const a = job->a + row * job->a_bytes;
    for (int64_t from = begin; from < end; from += MOST_COLUMNS) {
        const int64_t n = end - from < MOST_COLUMNS ? end - from : MOST_COLUMNS;
        int64_t j = 0;
        for (; j + TILE_COLUMNS <= n; j += TILE_COLUMNS)
            dot_tile(job, a, from + j, sums + j, rows, TILE_COLUMNS, dtype);
        for (; j < n; j++)
            dot_tile(job, a, from + j, sums + j, rows, 1, dtype);
        CPU_BY_DTYPE(job->spec->c_dtype, store_sums, job, sums, row, rows, from, n);
    }
}

/* Computes rows [first, last) and columns [begin, end) of c. */
CPU_INLINE void dot_columns(const rows_job *job, int64_t first, int64_t last, int64_t begin,
                            int64_t end, int32_t dtype)
{
    int64_t r = first;
    for (; last - r >= TILE_ROWS; r += TILE_ROWS)
        tile_columns(job, r, TILE_ROWS, begin, end, dtype);
    if (last - r >= 4) {
        tile_columns(job, r, 4, begin, end, dtype);
        r += 4;
    }
    for (int64_t j = begin; j < end; j++) {
        if (last - r >= 2)
            dot_row(job, r, j, 2, dtype);
        if ((last - r) % 2 != 0)
            dot_row(job, last - 1, j, 1, dtype);
    }
}

static void columns_of(const rows_job *job, int64_t first, int64_t last, int64_t begin, int64_t end)
{
    CPU_BY_DTYPE(job->spec->b_dtype, dot_columns, job, first, last, begin, end);
}

/* ---- dividing the work ---- */

/* Rows of the weight that a worker takes at a time. */
static int64_t chunk_columns(const matmul_spec *spec)
{
    const int64_t k_bytes = spec->k * lathe_dtype_bytes(spec->b_dtype);
    const int64_t row_bytes = k_bytes > 0 ? k_bytes : 1; /* k = 0: the sums are empty */
    const int64_t columns = (CHUNK_BYTES + row_bytes - 1) / row_bytes;
    return spec->m < 4 ? columns : cpu_round_up(columns, 8 * TILE_COLUMNS);
}

/* One or more products of one a. The rows of all weights are numbered in one sequence, product
 * after product. */
typedef struct joined_job {
    rows_job products[CPU_GEMV_JOINED];
    int64_t first[CPU_GEMV_JOINED + 1]; /* first row of each product; then the number of rows */
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
        columns_of(&job->products[p], 0, job->products[p].spec->m, at_row - job->first[p],
                   last - job->first[p]);
        at_row = last;
    }
}

/* Computes blocks [begin, end) of c: BLOCK_ROWS x MOST_COLUMNS, by rows, then by columns. */
static void block_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const rows_job *job = arg;
    const matmul_spec *s = job->spec;
    const int64_t blocks = (s->m + BLOCK_ROWS - 1) / BLOCK_ROWS;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i % blocks * BLOCK_ROWS, column = i / blocks * MOST_COLUMNS;
        columns_of(job, row, s->m - row < BLOCK_ROWS ? s->m : row + BLOCK_ROWS, column,
                   s->n - column < MOST_COLUMNS ? s->n : column + MOST_COLUMNS);
    }
}

static void run_joined(const lathe_host *host, const cpu_gemv_product *products, int32_t n,
                       const void *a, void *scratch, int accumulate)
{
    const matmul_spec *spec = products[0].spec;
    joined_job job = {.first = {0}};
    int64_t a_bytes = 0;
    const char *const rows = cpu_gemv_ready(host, spec, a, scratch, &a_bytes);
    for (int32_t i = 0; i < n; i++) {
        job.products[i] = (rows_job){.spec = products[i].spec,
                                     .a = rows,
                                     .b = products[i].b,
                                     .bias = products[i].bias,
                                     .c = products[i].c,
                                     .a_bytes = a_bytes,
                                     .accumulate = accumulate};
        job.first[i + 1] = job.first[i] + products[i].spec->n;
    }
    if (spec->m < BLOCK_ROWS) {
        host->parallel_for(job.first[n], chunk_columns(spec), joined_range, &job);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        const int64_t blocks = (spec->m + BLOCK_ROWS - 1) / BLOCK_ROWS;
        const int64_t slices = (products[i].spec->n + MOST_COLUMNS - 1) / MOST_COLUMNS;
        host->parallel_for(blocks * slices, 1, block_range, &job.products[i]);
    }
}

void cpu_gemv_run(const lathe_host *host, const matmul_spec *spec, const void *a, const void *b,
                  const float *bias, void *c, void *scratch, int accumulate)
{
    const cpu_gemv_product product = {spec, b, bias, c};
    run_joined(host, &product, 1, a, scratch, accumulate);
}

void cpu_gemv_run_joined(const lathe_host *host, const cpu_gemv_product *products, int32_t n,
                         const void *a, void *scratch)
{
    run_joined(host, products, n, a, scratch, 0);
}
