/* A worker decodes a part of the weight, a few rows, into its own memory, small enough for the
 * cache, and multiplies it there with all rows of `a`. Sums are added in the order of gemv.c. If a
 * part is only a range of columns, the partial sums are stored to memory until the next range, so
 * that the order does not depend on how the weight is cut.
 *
 * With AVX-512, codes of four bits are multiplied without being decoded (lookup_dot.h): then the
 * part is the values of its groups, and copies of codes if the format needs them. In bf16 on
 * processors that multiply it, quantized_dot.h multiplies the codes of formats that describe them.
 *
 *   scratch: | a in the forms of quantized_dot.h | a, as cpu_gemv_ready | for each worker: a part,
 *   vectors [WAITING_ROWS][rows of a part]; or what quantized_dot.h needs |
 */
#include "products/quantized_gemv.h"

#include "products/lookup_dot.h"

/* Bytes of a decoded part: about half an L1 cache if `a` has few rows; more if it has more, whose
 * product takes longer than decoding. */
#define PART_BYTES (20 * 1024)
#define LARGE_PART_BYTES (256 * 1024)
#define WAITING_ROWS 16   /* rows of `a` that a worker multiplies with a part at a time */
#define MOST_PART_ROWS 48 /* of a decoded part */
/* A transposed weight whose codes are multiplied: the most rows of a part, and the fewest parts of
 * a worker if there are enough rows. */
#define TURNED_ROWS 1024
#define TURNED_PARTS 4
#define VALUES_BYTES (16 * 1024) /* of the values of a part whose codes are multiplied */
#define VALUE_BYTES (LATHE_CODE_VALUES * (int64_t)sizeof(float)) /* of a group */
#define CHUNK_ELEMENTS (32 * 1024) /* of the weight that a worker takes at a time, about */

/* Sums that a kernel keeps in registers. */
#if VL == 16
#define TILE_ROWS 8
#define TILE_COLUMNS 3
#define LINE_COLUMNS 8 /* for one row of a */
#else
#define TILE_ROWS 4
#define TILE_COLUMNS 2
#define LINE_COLUMNS 4
#endif

/* ---- sizes ---- */

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

static int64_t at_least(int64_t n, int64_t least)
{
    return n > least ? n : least;
}

/* Elements from one row of a decoded part to the next: whole steps. */
static int64_t part_stride(const cpu_quantized_gemv *p)
{
    return cpu_round_up(p->cols, STEP);
}

/* Rows of a part over all its runs. */
static int64_t part_rows(const cpu_quantized_gemv *p)
{
    return p->rows * p->by.runs;
}

/* Units of rows of a part whose codes the format copies, because it lies transposed: the more rows,
 * the longer are the runs of memory that it reads, which the hardware predicts. All workers get
 * parts. */
static int64_t turned_units(const cpu_quantized_gemv *p, int64_t run)
{
    const int64_t rows = at_most(TURNED_ROWS, run / (TURNED_PARTS * p->n_workers));
    return at_least(rows / p->by.rows, 1);
}

static void cut_weight(cpu_quantized_gemv *p)
{
    const matmul_spec *s = &p->spec;
    const int64_t row_bytes = cpu_round_up(s->k, STEP) * bytes_of(s->b_dtype);
    const int64_t unit = p->by.rows * p->by.runs, run = s->n / p->by.runs;
    const int is_small = s->m <= WAITING_ROWS;
    const int64_t room = (is_small ? PART_BYTES : LARGE_PART_BYTES) / (row_bytes * unit);
    int64_t units = at_most(room, MOST_PART_ROWS / unit);
    if (units * unit < LINE_COLUMNS)
        units = (LINE_COLUMNS + unit - 1) / unit;
    if (p->group > 0 && p->by.rows > 1)
        units = turned_units(p, run);
    else if (p->group > 0 && unit == 1 && units > LINE_COLUMNS)
        units -= units % LINE_COLUMNS; /* the loops take so many rows at a time */
    p->rows = at_most(units * p->by.rows, run);
    p->cols = s->k;
    if (is_small && part_rows(p) * row_bytes > PART_BYTES) {
        const int64_t cols = PART_BYTES / (part_rows(p) * bytes_of(s->b_dtype));
        p->cols = at_most(s->k, cols < LATHE_PART_COLS ? LATHE_PART_COLS
                                                       : cols / LATHE_PART_COLS * LATHE_PART_COLS);
    }
    if (p->group > 0) {
        const int64_t groups = VALUES_BYTES / (part_rows(p) * VALUE_BYTES);
        p->cols = at_most(s->k, at_least(groups * p->group / LATHE_PART_COLS, 1) * LATHE_PART_COLS);
    }
    p->n_parts = (run + p->rows - 1) / p->rows;
}

/* Bytes of the values of a part's groups. */
static int64_t values_bytes(const cpu_quantized_gemv *p)
{
    return part_rows(p) * (p->cols / p->group) * VALUE_BYTES;
}

void cpu_quantized_gemv_init(const matmul_spec *spec, const lathe_packed_weight *weight,
                             int32_t n_workers, cpu_quantized_gemv *p, int64_t *out_scratch)
{
    *p = (cpu_quantized_gemv){
        .spec = *spec, .weight = *weight, .by = {1, 1, 0}, .n_workers = n_workers};
    if (LATHE_HAS(weight->table, part_rows))
        weight->table->part_rows(weight->self, spec->n, spec->k, &p->by);
    if (spec->m <= WAITING_ROWS && looks_up(spec->b_dtype) && LATHE_HAS(weight->table, code_group))
        p->group = weight->table->code_group(weight->self, spec->n, spec->k);
    cut_weight(p);
    const int64_t sums = at_most(spec->m, WAITING_ROWS) * part_rows(p);
    p->part_bytes = cpu_round_up(part_rows(p) * part_stride(p) * bytes_of(spec->b_dtype), 64);
    if (p->group > 0) {
        const int64_t codes = cpu_round_up(part_rows(p) * p->cols / 2, 64);
        p->part_bytes = at_least(p->part_bytes, values_bytes(p) + codes);
    }
    p->worker_bytes = p->part_bytes + sums * VL * (int64_t)sizeof(float);
    p->sums_codes = cpu_quantized_dot_init(spec, weight, n_workers, &p->sums);
    if (p->sums_codes) {
        p->layout_bytes = cpu_round_up(dot_layout_bytes(&p->sums.layout, spec->m), 64);
        p->worker_bytes = at_least(p->worker_bytes, p->sums.worker_bytes);
    }
    *out_scratch = cpu_round_up(cpu_gemv_scratch(spec), 64) + n_workers * p->worker_bytes;
}

/* ---- sums ---- */

/* A decoded part, rows of a, and the vectors of their sums. */
typedef struct part_view {
    const char *w; /* [columns], w_bytes apart */
    const char *a; /* [rows], a_bytes apart; the part's first column */
    float *sums;   /* [rows][columns][VL] */
    int64_t w_bytes, a_bytes, columns, steps;
    int32_t is_first; /* the sums begin at 0 */
} part_view;

/* Adds the products of rows [r, r + rows) of a and columns [j, j + columns). */
CPU_INLINE void add_products(const part_view *v, int64_t r, int64_t j, int rows, int columns,
                             int32_t dtype)
{
    const char *w = v->w + j * v->w_bytes, *a = v->a + r * v->a_bytes;
    float *const sums = v->sums + (r * v->columns + j) * VL;
    vf acc[TILE_ROWS][LINE_COLUMNS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int c = 0; c < columns; c++)
            acc[i][c] = v->is_first ? v_zero() : v_load(sums + (i * v->columns + c) * VL);
    for (int64_t s = 0; s < v->steps; s++) {
#if MULTIPLIES_BF16
        if (dtype == LATHE_BF16) {
            __m512bh x[LINE_COLUMNS];
#pragma GCC unroll 16
            for (int c = 0; c < columns; c++)
                x[c] = (__m512bh)_mm512_loadu_si512(w + c * v->w_bytes);
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const __m512bh y = (__m512bh)_mm512_loadu_si512(a + i * v->a_bytes);
#pragma GCC unroll 16
                for (int c = 0; c < columns; c++)
                    acc[i][c] = _mm512_dpbf16_ps(acc[i][c], x[c], y);
            }
            w += STEP * bytes_of(dtype);
            a += STEP * a_bytes_of(dtype);
            continue;
        }
#endif
        vf x[2][LINE_COLUMNS];
#pragma GCC unroll 16
        for (int c = 0; c < columns; c++)
            load_step(w + c * v->w_bytes, &x[0][c], &x[1][c], dtype);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const vf y = v_load((const float *)(const void *)(a + i * v->a_bytes) + half * VL);
#pragma GCC unroll 16
                for (int c = 0; c < columns; c++)
                    acc[i][c] = v_fma(x[half][c], y, acc[i][c]);
            }
        w += STEP * bytes_of(dtype);
        a += STEP * a_bytes_of(dtype);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int c = 0; c < columns; c++)
            v_store(sums + (i * v->columns + c) * VL, acc[i][c]);
}

/* Like add_products, for all columns. */
CPU_INLINE void add_rows(const part_view *v, int64_t r, int rows, int columns, int32_t dtype)
{
    int64_t j = 0;
    for (; j + columns <= v->columns; j += columns)
        add_products(v, r, j, rows, columns, dtype);
    for (; j < v->columns; j++)
        add_products(v, r, j, rows, 1, dtype);
}

CPU_INLINE void add_part(const part_view *v, int64_t rows, int32_t dtype)
{
    int64_t r = 0;
    for (; rows - r >= TILE_ROWS; r += TILE_ROWS)
        add_rows(v, r, TILE_ROWS, TILE_COLUMNS, dtype);
    for (; rows - r >= 4; r += 4)
        add_rows(v, r, 4, TILE_COLUMNS, dtype);
    if (rows - r >= 2) {
        add_rows(v, r, 2, LINE_COLUMNS / 2, dtype);
        r += 2;
    }
    if (r < rows)
        add_rows(v, r, 1, LINE_COLUMNS, dtype);
}

/* ---- a part ---- */

typedef struct planes_job {
    const cpu_quantized_gemv_use *uses;
    quantized_dot_run runs[CPU_GEMV_JOINED]; /* x: NULL for products that do not sum codes */
    int64_t first[CPU_GEMV_JOINED + 1]; /* first part of each product; then the number of parts */
    const char *a;
    int64_t a_bytes;
    char *workers;
    int64_t worker_bytes; /* of the largest product */
    int32_t accumulate;
} planes_job;

/* Decodes columns [col, ..) of the part into `to`, and pads its rows with zeros to whole steps.
 * Returns the steps. */
static int64_t decode(const cpu_quantized_gemv_use *u, lathe_weight_part *part, int64_t col,
                      char *to)
{
    const cpu_quantized_gemv *p = u->product;
    const int64_t width = bytes_of(p->spec.b_dtype);
    part->col = col;
    part->cols = at_most(p->spec.k - col, p->cols);
    const int64_t whole = cpu_round_up(part->cols, STEP);
    p->weight.table->decode_part(p->weight.self, p->spec.n, p->spec.k, u->planes, part, to,
                                 p->spec.b_dtype);
    for (int64_t i = 0; whole > part->cols && i < part->rows * part->runs; i++)
        memset(to + (i * part->stride + part->cols) * width, 0,
               (size_t)((whole - part->cols) * width));
    return whole / STEP;
}

/* Adds the products of codes from column `col` on to the sums; 0: they must be decoded. */
static int add_coded(const cpu_quantized_gemv_use *u, lathe_weight_part *part, int64_t col,
                     lookup_part *v, int64_t rows, char *own)
{
    const cpu_quantized_gemv *p = u->product;
    const int32_t dtype = p->spec.b_dtype;
    float *const values = (float *)(void *)own, *const sums = v->sums;
    lathe_part_codes codes;
    part->col = col;
    part->cols = at_most(p->spec.k - col, p->cols);
    if (!p->weight.table->part_codes(p->weight.self, p->spec.n, p->spec.k, u->planes, part, dtype,
                                     values, own + values_bytes(p), &codes))
        return 0;
    v->row_bytes = codes.row_bytes;
    v->groups = part->cols / p->group;
    v->group_steps = p->group / STEP;
    for (int64_t k = 0; k < part->runs; k++) {
        v->codes = codes.codes + k * codes.run_bytes;
        v->shift = codes.shift + (int32_t)k * codes.run_shift;
        v->values = values + k * part->rows * v->groups * LATHE_CODE_VALUES;
        v->sums = sums + k * part->rows * VL;
        add_code_part(v, rows, part->rows, codes.layout, dtype);
    }
    v->sums = sums;
    return 1;
}

/* Adds up the lanes of n vectors. */
static void add_lanes(const float *sums, int64_t n, float *out)
{
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        const float *const v = sums + j * VL;
        v_sum4(v_load(v), v_load(v + VL), v_load(v + 2 * VL), v_load(v + 3 * VL), out + j);
    }
    for (; j < n; j++)
        out[j] = v_sum(v_load(sums + j * VL));
}

CPU_INLINE void store_sums(const cpu_quantized_gemv_use *u, const float *sums, int64_t row,
                           int64_t column, int64_t n, int accumulate, int32_t dtype)
{
    const matmul_spec *s = &u->product->spec;
    const float alpha = (float)s->alpha;
    void *const to = at_mut(u->c, row * matmul_c_stride(s) + column, dtype);
    for (int64_t j = 0; j < n; j++) {
        float y = alpha * sums[j];
        if (u->bias != NULL)
            y += u->bias[column + j];
        st(to, j, dtype, accumulate, y);
    }
}

/* Stores the finished sums of `rows` rows of a from `row` on with the rows of the part. */
static void store_part(const planes_job *job, const cpu_quantized_gemv_use *u,
                       const lathe_weight_part *part, int64_t row, int64_t rows, const float *sums)
{
    const int64_t columns = part->rows * part->runs;
    float line[MOST_PART_ROWS * 4];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < part->runs; k++) {
            const int64_t column = part->row + k * part->distance;
            for (int64_t j = 0; j < part->rows; j += MOST_PART_ROWS) {
                const int64_t n = at_most(part->rows - j, MOST_PART_ROWS);
                add_lanes(sums + (r * columns + k * part->rows + j) * VL, n, line);
                CPU_BY_DTYPE(u->product->spec.c_dtype, store_sums, u, line, row + r, column + j, n,
                             job->accumulate);
            }
        }
}

/* Multiplies part `i` of the weight with all rows of a. */
static void multiply_part(const planes_job *job, const cpu_quantized_gemv_use *u, int64_t i,
                          char *own)
{
    const cpu_quantized_gemv *p = u->product;
    const matmul_spec *s = &p->spec;
    const int64_t run = s->n / p->by.runs, width = bytes_of(s->b_dtype);
    float *const sums = (float *)(void *)(own + p->part_bytes);
    lathe_weight_part part = {.row = i * p->rows,
                              .rows = at_most(run - i * p->rows, p->rows),
                              .runs = p->by.runs,
                              .distance = p->by.distance,
                              .stride = part_stride(p)};
    part_view v = {.w = own,
                   .sums = sums,
                   .w_bytes = part.stride * width,
                   .a_bytes = job->a_bytes,
                   .columns = part.rows * part.runs};
    lookup_part c = {.sums = sums, .a_bytes = job->a_bytes, .sum_columns = v.columns};
    for (int64_t row = 0; row < s->m; row += WAITING_ROWS) {
        const int64_t rows = at_most(s->m - row, WAITING_ROWS);
        for (int64_t col = 0; col < s->k; col += p->cols) {
            c.is_first = col == 0;
            c.a = job->a + row * job->a_bytes + col * a_bytes_of(s->a_dtype);
            if (p->group > 0 && add_coded(u, &part, col, &c, rows, own))
                continue;
            if (row == 0 || p->cols < s->k)
                v.steps = decode(u, &part, col, own);
            v.is_first = col == 0;
            v.a = job->a + row * job->a_bytes + col * a_bytes_of(s->a_dtype);
            CPU_BY_DTYPE(s->b_dtype, add_part, &v, rows);
        }
        store_part(job, u, &part, row, rows, sums);
    }
}

/* Like multiply_part, for a product whose codes are multiplied and summed as integers, before the
 * scales are applied (quantized_dot.h). */
static void sum_part(const planes_job *job, int64_t product, int64_t i, char *own)
{
    const cpu_quantized_gemv_use *u = &job->uses[product];
    const quantized_dot_run *run = &job->runs[product];
    const int64_t columns = run->product->columns;
    for (int64_t row = 0; row < run->m; row += QUANTIZED_DOT_ROWS) {
        const int64_t rows = at_most(run->m - row, QUANTIZED_DOT_ROWS);
        lathe_weight_part part;
        const float *const sums = cpu_quantized_dot_part(run, i, row, rows, own, &part);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < part.runs; k++)
                CPU_BY_DTYPE(u->product->spec.c_dtype, store_sums, u,
                             sums + r * columns + k * part.rows, row + r,
                             part.row + k * part.distance, part.rows, job->accumulate);
    }
}

static void parts_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const planes_job *job = arg;
    int64_t product = 0;
    for (int64_t i = begin; i < end; i++) {
        while (i >= job->first[product + 1])
            product++;
        char *const own = job->workers + worker * job->worker_bytes;
        if (job->runs[product].x != NULL)
            sum_part(job, product, i - job->first[product], own);
        else
            multiply_part(job, &job->uses[product], i - job->first[product], own);
    }
}

/* Prepares the products whose codes are summed, and the forms of `a` that they need, which those
 * with equal forms share. Returns the scratch beyond the forms. */
static char *begin_sums(const lathe_host *host, planes_job *job, int32_t n, const void *a,
                        char *scratch)
{
    for (int32_t i = 0; i < n; i++) {
        const cpu_quantized_gemv_use *u = &job->uses[i];
        const cpu_quantized_dot *p = &u->product->sums;
        quantized_dot_run *run = &job->runs[i];
        char *const to = scratch;
        lathe_weight_codes codes = {0};
        scratch += u->product->layout_bytes;
        if (!u->product->sums_codes ||
            !p->weight.table->codes(p->weight.self, p->n, p->k, u->planes, &codes))
            continue;
        *run = (quantized_dot_run){.product = p, .planes = u->planes, .m = u->product->spec.m};
        cpu_quantized_dot_begin(run, codes.table);
        for (int32_t k = 0; k < i && run->x == NULL; k++)
            if (job->runs[k].x != NULL &&
                dot_layout_equal(&job->runs[k].product->layout, &p->layout))
                run->x = job->runs[k].x;
        if (run->x == NULL) {
            dot_layout_fill(host, &p->layout, a, run->m, to);
            run->x = to;
        }
    }
    return scratch;
}

lathe_status cpu_quantized_gemv_run(const lathe_host *host, const cpu_quantized_gemv_use *uses,
                                    int32_t n, const void *a, void *scratch, int accumulate)
{
    const cpu_quantized_gemv *p = uses[0].product;
    planes_job job = {.uses = uses, .first = {0}, .accumulate = accumulate};
    char *const rest = begin_sums(host, &job, n, a, scratch);
    int64_t elements = 0;
    for (int32_t i = 0; i < n; i++) {
        const cpu_quantized_gemv *q = uses[i].product;
        const int sums = job.runs[i].x != NULL;
        if (!sums && job.a == NULL)
            job.a = cpu_gemv_ready(host, &p->spec, a, rest, &job.a_bytes);
        job.first[i + 1] = job.first[i] + (sums ? q->sums.n_parts : q->n_parts);
        job.worker_bytes = q->worker_bytes > job.worker_bytes ? q->worker_bytes : job.worker_bytes;
        elements += q->spec.n * q->spec.k;
    }
    job.workers = rest + cpu_round_up(cpu_gemv_scratch(&p->spec), 64);
    if (host->n_threads() > p->n_workers)
        return lathe_fail(host, LATHE_E_STATE, "a product made for %d workers runs with %d",
                          (int)p->n_workers, (int)host->n_threads());
    const int64_t each = elements / job.first[n] + 1; /* of a part */
    const int64_t grain = p->spec.m > WAITING_ROWS ? 1 : CHUNK_ELEMENTS / each;
    host->parallel_for(job.first[n], grain > 1 ? grain : 1, parts_range, &job);
    return LATHE_OK;
}
