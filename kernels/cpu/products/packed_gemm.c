/* Packed products: the classic three loops around a kernel that keeps a tile of c in registers.
 * Packing widens 16-bit elements. One operand is packed whole before the product: a if it has few
 * rows, else b. The workers pack the other one in parts, where they use them.
 *
 *   b whole: for each nc columns of c:
 *              pack op(b), all of k, into panels [k][TILE_COLUMNS] of f32        (all workers)
 *              for each task, which is mc rows of c by a slice of these columns: (one worker)
 *                for each kc elements of the sum:
 *                  pack op(a) into [mc][kc]
 *                  for each panel of b, for each TILE_ROWS rows: compute the tile
 *   a whole: pack op(a)                                                          (all workers)
 *            for each task, which is a slice of the columns of c:                (one worker)
 *              for each kc elements of the sum, for each panel:
 *                pack op(b) into [kc][TILE_COLUMNS]
 *                for each TILE_ROWS rows: compute the tile
 *
 * The packed part of a stays in the L2 cache, a panel of b (kc of its rows) in the L1 cache. If k
 * is cut into several parts, the sums of the tiles stay in f32 in the worker's scratch between
 * parts. The last part scales, adds the bias and the old c, and rounds. Both ways add in the same
 * order, so that they give the same bits.
 *
 *   scratch: | packed b | for each worker: packed a, tiles |
 *       or:  | packed a | for each worker: a panel of b, tiles |
 *   packed a: by tile [kc][TILE_ROWS], tiles KC * TILE_ROWS apart; if it is packed whole, the tiles
 *   of the first part of the sum, then those of the second, and so on
 */
#include "products/packed_gemm.h"

#include "base/simd.h"
#include "products/pack.h"

#if VL == 16
#define TILE_ROWS 12
#else
#define TILE_ROWS 6
#endif
#define TILE_COLUMNS (2 * VL)
#define TILE (TILE_ROWS * TILE_COLUMNS)
#define KC 320                      /* maximum elements of a sum that are packed at a time */
#define MC 96                       /* rows of a task, about */
#define SLICE 512                   /* maximum columns of a task */
#define PACKED_B ((int64_t)4 << 20) /* maximum elements of the packed b, about */
#define TASKS_PER_WORKER 4          /* minimum, if there are enough columns */
#define LEAST_SLICE (4 * TILE_COLUMNS)
#define PACKED_A ((int64_t)2 << 20) /* maximum elements of an a that is packed whole */
#define ROWS_WHOLE 512              /* maximum rows of it; one part of its sum fits the L2 cache */
#define SLICE_WHOLE (8 * TILE_COLUMNS)
#define PANEL_TASKS 8              /* minimum tasks per worker then: n is often a few hundred */
#define ALONE ((int64_t)128 << 10) /* elements of a that one worker packs faster than several */

typedef struct packed_job {
    const cpu_packed_gemm *p;
    const void *a, *b;
    const float *bias;
    void *c;
    int32_t accumulate;
    float *packed_a, *packed_b; /* the one that is packed whole */
    char *workers;
    int64_t from, columns; /* the columns of c that are computed now */
    int64_t n_slices;
} packed_job;

/* ---- sizes ---- */

static int64_t parts_of(int64_t n, int64_t most)
{
    return (n + most - 1) / most;
}

static int64_t tiles_of(int64_t rows)
{
    return parts_of(rows, TILE_ROWS);
}

/* Cuts n into equal parts of at most `most`, and rounds the size of a part up to a multiple of
 * `unit`. */
static int64_t even_part(int64_t n, int64_t most, int64_t unit)
{
    const int64_t parts = parts_of(n, most);
    return cpu_round_up((n + parts - 1) / parts, unit);
}

/* Columns of a task: enough tasks for all workers, but at least `least` columns, so that a task
 * repays its packing, and at most `most`. */
static int64_t choose_slice(const cpu_packed_gemm *p, int64_t columns, int64_t tasks_per_worker,
                            int64_t least, int64_t most)
{
    int64_t slices = parts_of(p->n_workers * tasks_per_worker, p->n_m);
    slices = slices > columns / least ? columns / least : slices;
    slices = slices < 1 ? 1 : slices;
    const int64_t slice = cpu_round_up((columns + slices - 1) / slices, TILE_COLUMNS);
    return slice > most ? even_part(columns, most, TILE_COLUMNS) : slice;
}

static void init_b_whole(cpu_packed_gemm *p)
{
    const matmul_spec *s = &p->spec;
    const int64_t f = (int64_t)sizeof(float);
    p->mc = even_part(s->m, MC, TILE_ROWS);
    p->n_m = parts_of(s->m, p->mc);
    int64_t most = PACKED_B / s->k / SLICE * SLICE;
    most = most < SLICE ? SLICE : most;
    p->nc = even_part(s->n, most, TILE_COLUMNS);
    p->slice = choose_slice(p, p->nc, TASKS_PER_WORKER, LEAST_SLICE, SLICE);
    p->worker_at = cpu_round_up(p->nc * s->k * f, 64);
    p->part_at = cpu_round_up(p->mc * KC * f, 64);
}

static void init_a_whole(cpu_packed_gemm *p)
{
    const matmul_spec *s = &p->spec;
    const int64_t f = (int64_t)sizeof(float);
    p->mc = tiles_of(s->m) * TILE_ROWS;
    p->n_m = 1;
    p->nc = s->n;
    p->slice = choose_slice(p, s->n, PANEL_TASKS, TILE_COLUMNS, SLICE_WHOLE);
    p->worker_at = cpu_round_up(p->n_k * tiles_of(s->m) * TILE_ROWS * KC * f, 64);
    p->part_at = cpu_round_up(KC * TILE_COLUMNS * f, 64);
}

void cpu_packed_gemm_init(const matmul_spec *s, int32_t n_workers, cpu_packed_gemm *p,
                          int64_t *out_scratch)
{
    *p = (cpu_packed_gemm){.spec = *s, .n_workers = n_workers};
    p->kc = even_part(s->k, KC, 8);
    p->n_k = parts_of(s->k, p->kc);
    p->a_whole = s->m <= ROWS_WHOLE && s->m < s->n && s->trans_b && s->m * s->k <= PACKED_A;
    if (p->a_whole)
        init_a_whole(p);
    else
        init_b_whole(p);
    p->n_n = parts_of(s->n, p->nc);
    const int64_t tiles = p->n_k > 1 ? p->mc * p->slice * (int64_t)sizeof(float) : 0;
    p->worker_bytes = p->part_at + cpu_round_up(tiles, 64);
    *out_scratch = p->worker_at + n_workers * p->worker_bytes;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Follows init_b_whole and init_a_whole: with fewer rows or terms, a slice or the columns that are
 * packed at a time may be more, but not above their limits. */
int64_t cpu_packed_gemm_bound(const matmul_spec *s, int32_t n_workers)
{
    const int64_t f = (int64_t)sizeof(float), n = cpu_round_up(s->n, TILE_COLUMNS);
    const int64_t rows = cpu_round_up(smaller(s->m, MC), TILE_ROWS);
    const int64_t whole = larger(PACKED_B, smaller(n, SLICE) * s->k);
    const int64_t b_whole = cpu_round_up(smaller(n * s->k, whole) * f, 64);
    const int64_t b_worker = cpu_round_up(rows * KC * f, 64) +
                             cpu_round_up(s->k > KC ? rows * smaller(n, SLICE) * f : 0, 64);
    if (!s->trans_b)
        return b_whole + n_workers * b_worker;
    /* a part of a sum has more than half of KC terms if there are several */
    const int64_t rows_whole = cpu_round_up(smaller(s->m, ROWS_WHOLE), TILE_ROWS);
    const int64_t parts = parts_of(s->k, KC) + 1;
    const int64_t a_whole = cpu_round_up(parts * rows_whole * KC * f, 64);
    const int64_t a_worker =
        cpu_round_up(KC * TILE_COLUMNS * f, 64) +
        cpu_round_up(s->k > KC ? rows_whole * smaller(n, SLICE_WHOLE) * f : 0, 64);
    return larger(b_whole, a_whole) + n_workers * larger(b_worker, a_worker);
}

/* Elements of part `part` of the sum. */
static int64_t part_size(const cpu_packed_gemm *p, int64_t part)
{
    const int64_t left = p->spec.k - part * p->kc;
    return left < p->kc ? left : p->kc;
}

/* ---- packing ---- */

/* Packs a panel: elements [at_k, at_k+kc) of the sum, columns of c from `first` on. Columns past
 * the end are zeros. */
CPU_INLINE void pack_panel(const packed_job *job, float *to, int64_t first, int64_t at_k,
                           int64_t kc, int32_t dtype)
{
    const matmul_spec *s = &job->p->spec;
    const int64_t n = s->n - first < TILE_COLUMNS ? s->n - first : TILE_COLUMNS;
    if (s->trans_b) {
        if (n < TILE_COLUMNS)
            memset(to, 0, (size_t)(kc * TILE_COLUMNS) * sizeof *to);
        cpu_transpose_f32(to, TILE_COLUMNS, at(job->b, first * s->k + at_k, dtype), dtype, n, kc,
                          s->k);
        return;
    }
    for (int64_t i = 0; i < kc; i++) {
        float *const row = to + i * TILE_COLUMNS;
        const void *const from = at(job->b, (at_k + i) * s->n + first, dtype);
        if (n == TILE_COLUMNS) {
            for (int64_t j = 0; j < TILE_COLUMNS; j++)
                row[j] = ld(from, j, dtype);
            continue;
        }
        for (int64_t j = 0; j < TILE_COLUMNS; j++)
            row[j] = j < n ? ld(from, j, dtype) : 0.0f;
    }
}

static void pack_b_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const packed_job *job = arg;
    const int64_t k = job->p->spec.k;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        CPU_BY_DTYPE(job->p->spec.b_dtype, pack_panel, job, job->packed_b + i * TILE_COLUMNS * k,
                     job->from + i * TILE_COLUMNS, 0, k);
}

/* A vector store for element k of the sum may write past the tile's rows; the store for element k+1
 * then overwrites the excess. So only the last stores have to be exact. */

/* Packs a tile of op(a) that is stored by columns: rows from `row` on, elements [at_k, at_k+kc) of
 * the sum. */
CPU_INLINE void pack_tile_transposed(const packed_job *job, float *to, int64_t row, int64_t rows,
                                     int64_t at_k, int64_t kc, int32_t dtype)
{
    const matmul_spec *s = &job->p->spec;
    const int64_t whole = rows == TILE_ROWS && s->m - row >= VL ? kc - 1 : 0;
    for (int64_t k = 0; k < whole; k++)
        v_store(to + k * TILE_ROWS, v_load_as(job->a, (at_k + k) * s->m + row, dtype));
    for (int64_t k = whole; k < kc; k++)
        for (int64_t i = 0; i < TILE_ROWS; i++)
            to[k * TILE_ROWS + i] =
                ld(job->a, (at_k + k) * s->m + row + (i < rows ? i : rows - 1), dtype);
}

/* Packs a tile of op(a) that is stored by rows. It transposes eight rows at a time; the second
 * eight rows begin at TILE_ROWS - 8. */
CPU_INLINE void pack_tile(const packed_job *job, float *to, int64_t row, int64_t rows, int64_t at_k,
                          int64_t kc, int32_t dtype)
{
    const int64_t stride = job->p->spec.k, first = row * stride + at_k;
    const int64_t whole = kc / 8 * 8 - (kc % 8 == 0 ? 8 : 0);
    for (int64_t from = 0; from < TILE_ROWS; from += 8) {
        const int64_t base = from + 8 <= TILE_ROWS || from == 0 ? from : TILE_ROWS - 8;
        for (int64_t k = 0; k < whole; k += 8) {
            __m256 x[8];
            for (int64_t i = 0; i < 8; i++) {
                const int64_t r = base + i < rows ? base + i : rows - 1;
                x[i] = v8_load_as(job->a, first + r * stride + k, dtype);
            }
            v8_transpose(x);
            for (int64_t i = 0; i < 8; i++)
                _mm256_storeu_ps(to + (k + i) * TILE_ROWS + base, x[i]);
        }
    }
    for (int64_t k = whole; k < kc; k++)
        for (int64_t i = 0; i < TILE_ROWS; i++)
            to[k * TILE_ROWS + i] =
                ld(job->a, first + (i < rows ? i : rows - 1) * stride + k, dtype);
}

/* Packs rows [first, first+n) of op(a), elements [at_k, at_k+kc) of the sum. The last row is
 * repeated for rows past the end. */
CPU_INLINE void pack_a(const packed_job *job, float *to, int64_t first, int64_t n, int64_t at_k,
                       int64_t kc, int32_t dtype)
{
    for (int64_t i = 0; i < n; i += TILE_ROWS) {
        const int64_t rows = n - i < TILE_ROWS ? n - i : TILE_ROWS;
        if (job->p->spec.trans_a)
            pack_tile_transposed(job, to + i * KC, first + i, rows, at_k, kc, dtype);
        else
            pack_tile(job, to + i * KC, first + i, rows, at_k, kc, dtype);
    }
}

/* ---- the tile ---- */

/* Where the sums of a tile go after a part of the products was added. */
typedef struct tile_place {
    float *waiting;        /* [TILE_ROWS][TILE_COLUMNS]: sums of the parts so far */
    int64_t row, column;   /* position of the tile in c */
    int64_t rows, columns; /* size of the tile inside c */
} tile_place;

/* Scales, adds the bias, and stores row i of a finished tile. */
CPU_INLINE void store_row(const packed_job *job, const tile_place *at_c, int64_t i,
                          const vf sums[2], const vf bias[2], int32_t dtype)
{
    const matmul_spec *s = &job->p->spec;
    const vf alpha = v_set((float)s->alpha);
    void *const to = at_mut(job->c, (at_c->row + i) * matmul_c_stride(s) + at_c->column, dtype);
    float line[TILE_COLUMNS];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        vf y = v_add(v_mul(alpha, sums[h]), bias[h]);
        if (at_c->columns < TILE_COLUMNS) {
            v_store(line + h * VL, y);
            continue;
        }
        if (job->accumulate)
            y = v_add(y, v_load_as(to, h * VL, dtype));
        v_store_as(to, h * VL, dtype, y);
    }
    for (int64_t j = 0; at_c->columns < TILE_COLUMNS && j < at_c->columns; j++)
        st(to, j, dtype, job->accumulate, line[j]);
}

/* Adds `kc` products to every sum of a tile. is_first: the sums start at 0; is_last: they are
 * stored to c. */
CPU_INLINE void multiply(const packed_job *job, const tile_place *at_c, const float *a,
                         const float *b, int64_t kc, int is_first, int is_last, int32_t dtype)
{
    vf c[TILE_ROWS][2], bias[2] = {v_zero(), v_zero()};
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++)
        c[i][0] = c[i][1] = v_zero();
    for (int64_t k = 0; k < kc; k++) {
        const vf b0 = v_load(b + k * TILE_COLUMNS), b1 = v_load(b + k * TILE_COLUMNS + VL);
#pragma GCC unroll 16
        for (int i = 0; i < TILE_ROWS; i++) {
            const vf x = v_set(a[k * TILE_ROWS + i]);
            c[i][0] = v_fma(x, b0, c[i][0]);
            c[i][1] = v_fma(x, b1, c[i][1]);
        }
    }
    if (is_last && job->bias != NULL) {
        float line[TILE_COLUMNS] = {0};
        memcpy(line, job->bias + at_c->column, (size_t)at_c->columns * sizeof *line);
        bias[0] = v_load(line);
        bias[1] = v_load(line + VL);
    }
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++) {
        float *const waiting = at_c->waiting + i * TILE_COLUMNS;
        if (!is_first) {
            c[i][0] = v_add(v_load(waiting), c[i][0]);
            c[i][1] = v_add(v_load(waiting + VL), c[i][1]);
        }
        if (!is_last) {
            v_store(waiting, c[i][0]);
            v_store(waiting + VL, c[i][1]);
        } else if (i < at_c->rows) {
            store_row(job, at_c, i, c[i], bias, dtype);
        }
    }
}

typedef void (*multiply_fn)(const packed_job *job, const tile_place *at_c, const float *a,
                            const float *b, int64_t kc);

#define MULTIPLY(name, is_first, is_last, dtype)                                                   \
    static void name(const packed_job *job, const tile_place *at_c, const float *a,                \
                     const float *b, int64_t kc)                                                   \
    {                                                                                              \
        multiply(job, at_c, a, b, kc, is_first, is_last, dtype);                                   \
    }
MULTIPLY(multiply_first, 1, 0, LATHE_F32)
MULTIPLY(multiply_middle, 0, 0, LATHE_F32)
MULTIPLY(multiply_last_f32, 0, 1, LATHE_F32)
MULTIPLY(multiply_last_bf16, 0, 1, LATHE_BF16)
MULTIPLY(multiply_last_f16, 0, 1, LATHE_F16)
MULTIPLY(multiply_only_f32, 1, 1, LATHE_F32)
MULTIPLY(multiply_only_bf16, 1, 1, LATHE_BF16)
MULTIPLY(multiply_only_f16, 1, 1, LATHE_F16)

/* The function for part `part` of n. */
static multiply_fn choose_multiply(int64_t part, int64_t n, int32_t c_dtype)
{
    if (part + 1 < n)
        return part == 0 ? multiply_first : multiply_middle;
    if (c_dtype == LATHE_F32)
        return n == 1 ? multiply_only_f32 : multiply_last_f32;
    if (c_dtype == LATHE_BF16)
        return n == 1 ? multiply_only_bf16 : multiply_last_bf16;
    return n == 1 ? multiply_only_f16 : multiply_last_f16;
}

/* ---- tasks ---- */

/* The rows [row, row+rows) and columns [column, column+columns) of c that a task computes. */
typedef struct place {
    int64_t row, rows, column, columns;
} place;

/* Prefetches a share of the next panel of b, which the hardware prefetcher does not predict. */
CPU_INLINE void ask_for_share(const float *panel, int64_t bytes, int64_t i, int64_t n)
{
    const char *const p = (const char *)panel;
    const int64_t share = cpu_round_up((bytes + n - 1) / n, 64);
    for (int64_t at_byte = i * share; at_byte < (i + 1) * share && at_byte < bytes; at_byte += 64)
        __builtin_prefetch(p + at_byte, 0, 2);
}

/* Computes one part of the sum of a task whose a is packed. */
static void task_part(const packed_job *job, const place *w, const float *a, float *waiting,
                      int64_t part)
{
    const cpu_packed_gemm *p = job->p;
    const int64_t k = p->spec.k, at_k = part * p->kc, kc = part_size(p, part);
    const multiply_fn multiply_tile = choose_multiply(part, p->n_k, p->spec.c_dtype);
    const int64_t tiles = parts_of(w->rows, TILE_ROWS);
    tile_place t = {.waiting = waiting};
    for (int64_t j = 0; j < w->columns; j += TILE_COLUMNS) {
        const int64_t panel = (w->column - job->from + j) / TILE_COLUMNS;
        const float *const b = job->packed_b + (panel * k + at_k) * TILE_COLUMNS;
        t.column = w->column + j;
        t.columns = w->columns - j < TILE_COLUMNS ? w->columns - j : TILE_COLUMNS;
        for (int64_t i = 0; i < w->rows; i += TILE_ROWS) {
            t.row = w->row + i;
            t.rows = w->rows - i < TILE_ROWS ? w->rows - i : TILE_ROWS;
            if (j + TILE_COLUMNS < w->columns)
                ask_for_share(b + k * TILE_COLUMNS, kc * TILE_COLUMNS * (int64_t)sizeof *b,
                              i / TILE_ROWS, tiles);
            multiply_tile(job, &t, a + i * KC, b, kc);
            t.waiting += p->n_k > 1 ? TILE : 0;
        }
    }
}

static void task_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const packed_job *job = arg;
    const cpu_packed_gemm *p = job->p;
    char *const own = job->workers + worker * p->worker_bytes;
    float *const a = (float *)(void *)own, *const waiting = (float *)(void *)(own + p->part_at);
    for (int64_t t = begin; t < end; t++) {
        place w = {.row = t / job->n_slices * p->mc, .column = t % job->n_slices * p->slice};
        w.rows = p->spec.m - w.row < p->mc ? p->spec.m - w.row : p->mc;
        w.columns = job->columns - w.column < p->slice ? job->columns - w.column : p->slice;
        w.column += job->from;
        for (int64_t part = 0; part < p->n_k; part++) {
            CPU_BY_DTYPE(p->spec.a_dtype, pack_a, job, a, w.row, w.rows, part * p->kc,
                         part_size(p, part));
            task_part(job, &w, a, waiting, part);
        }
    }
}

/* ---- a packed whole ---- */

static float *tile_of_a(const packed_job *job, int64_t part, int64_t tile)
{
    return job->packed_a + (part * tiles_of(job->p->spec.m) + tile) * TILE_ROWS * KC;
}

static void pack_a_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const packed_job *job = arg;
    const cpu_packed_gemm *p = job->p;
    const int64_t tiles = tiles_of(p->spec.m);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t part = i / tiles, first = i % tiles * TILE_ROWS;
        const int64_t rows = p->spec.m - first < TILE_ROWS ? p->spec.m - first : TILE_ROWS;
        CPU_BY_DTYPE(p->spec.a_dtype, pack_a, job, tile_of_a(job, part, i % tiles), first, rows,
                     part * p->kc, part_size(p, part));
    }
}

/* Computes one part of the sum of a task, panel by panel. */
static void panel_part(const packed_job *job, const place *w, float *panel, float *waiting,
                       int64_t part)
{
    const cpu_packed_gemm *p = job->p;
    const int64_t kc = part_size(p, part);
    const multiply_fn multiply_tile = choose_multiply(part, p->n_k, p->spec.c_dtype);
    tile_place t = {.waiting = waiting};
    for (int64_t j = 0; j < w->columns; j += TILE_COLUMNS) {
        t.column = w->column + j;
        t.columns = w->columns - j < TILE_COLUMNS ? w->columns - j : TILE_COLUMNS;
        CPU_BY_DTYPE(p->spec.b_dtype, pack_panel, job, panel, t.column, part * p->kc, kc);
        for (int64_t i = 0; i < w->rows; i += TILE_ROWS) {
            t.row = w->row + i;
            t.rows = w->rows - i < TILE_ROWS ? w->rows - i : TILE_ROWS;
            multiply_tile(job, &t, tile_of_a(job, part, t.row / TILE_ROWS), panel, kc);
            t.waiting += p->n_k > 1 ? TILE : 0;
        }
    }
}

static void panels_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const packed_job *job = arg;
    const cpu_packed_gemm *p = job->p;
    char *const own = job->workers + worker * p->worker_bytes;
    for (int64_t t = begin; t < end; t++) {
        place w = {.row = 0, .rows = p->spec.m, .column = t * p->slice};
        w.columns = p->spec.n - w.column < p->slice ? p->spec.n - w.column : p->slice;
        for (int64_t part = 0; part < p->n_k; part++)
            panel_part(job, &w, (float *)(void *)own, (float *)(void *)(own + p->part_at), part);
    }
}

static void run_a_whole(const lathe_host *host, packed_job *job)
{
    const cpu_packed_gemm *p = job->p;
    const int64_t n = p->n_k * tiles_of(p->spec.m);
    host->parallel_for(n, p->spec.m * p->spec.k <= ALONE ? n : 4, pack_a_range, job);
    host->parallel_for(parts_of(p->spec.n, p->slice), 1, panels_range, job);
}

static void run_b_whole(const lathe_host *host, packed_job *job)
{
    const cpu_packed_gemm *p = job->p;
    for (int64_t i = 0; i < p->n_n; i++) {
        job->from = i * p->nc;
        job->columns = p->spec.n - job->from < p->nc ? p->spec.n - job->from : p->nc;
        job->n_slices = parts_of(job->columns, p->slice);
        host->parallel_for(parts_of(job->columns, TILE_COLUMNS), 2, pack_b_range, job);
        host->parallel_for(p->n_m * job->n_slices, 1, task_range, job);
    }
}

lathe_status cpu_packed_gemm_run(const lathe_host *host, const cpu_packed_gemm *p, const void *a,
                                 const void *b, const float *bias, void *c, void *scratch,
                                 int accumulate)
{
    packed_job job = {.p = p,
                      .a = a,
                      .b = b,
                      .bias = bias,
                      .c = c,
                      .accumulate = accumulate,
                      .packed_a = scratch,
                      .packed_b = scratch,
                      .workers = (char *)scratch + p->worker_at};
    if (host->n_threads() > p->n_workers)
        return lathe_fail(host, LATHE_E_STATE, "a product made for %d workers runs with %d",
                          (int)p->n_workers, (int)host->n_threads());
    if (p->a_whole)
        run_a_whole(host, &job);
    else
        run_b_whole(host, &job);
    return LATHE_OK;
}
