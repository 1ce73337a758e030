/* BLOCK_MATMUL: y[g] (= or +=) alpha op(a[g]) op(b[g]) for each block g of columns.
 *
 * Blocks are small (32 columns are usual), so a library's product would be called hundreds of times
 * on few columns. A task computes a tile of a block: TILE_ROWS by TILE_COLS results, TERMS terms at
 * a time, from copies of op(a) and op(b) in f32. Each result is summed in f32 in the order of k.
 */
#include "base/cpu.h"
#include "base/element.h"

#define TILE_ROWS 64
#define TILE_COLS 64
#define TERMS 64
#define STEP_ROWS 4 /* results that are in registers at a time */
#define STEP_COLS 16

typedef struct operand {
    const void *data;
    int64_t stride; /* elements from one row to the next */
    int64_t width;  /* columns of a block */
    int32_t trans, dtype;
} operand;

typedef struct block_job {
    operand a, b;
    void *y;
    int64_t m, n, k, y_stride;
    int64_t tiles_m, tiles_n; /* of a block */
    int32_t y_dtype, accumulate;
    float alpha;
} block_job;

/* Copies rows i.. and columns j.. of op(x) of block g into `to` [rows, TILE]; the columns after
 * `cols` are zero. TILE_COLS == TERMS, so both operands have rows of this length. */
CPU_INLINE void copy_dtype(const operand *x, int64_t g, int64_t i, int64_t j, int64_t rows,
                           int64_t cols, float *to, int32_t dtype)
{
    const int64_t first = g * x->width;
    for (int64_t r = 0; r < rows; r++) {
        float *row = to + r * TERMS;
        if (x->trans)
            for (int64_t c = 0; c < cols; c++)
                row[c] = ld(x->data, (j + c) * x->stride + first + i + r, dtype);
        else
            for (int64_t c = 0; c < cols; c++)
                row[c] = ld(x->data, (i + r) * x->stride + first + j + c, dtype);
        for (int64_t c = cols; c < TERMS; c++)
            row[c] = 0.0f;
    }
}

static void copy(const operand *x, int64_t g, int64_t i, int64_t j, int64_t rows, int64_t cols,
                 float *to)
{
    CPU_BY_DTYPE(x->dtype, copy_dtype, x, g, i, j, rows, cols, to);
}

/* sums[STEP_ROWS, STEP_COLS] += a[STEP_ROWS, terms] b[terms, STEP_COLS] */
static void add_step(float *sums, const float *a, const float *b, int64_t terms)
{
    float s[STEP_ROWS][STEP_COLS];
    for (int r = 0; r < STEP_ROWS; r++)
        memcpy(s[r], sums + r * TILE_COLS, sizeof s[r]);
    for (int64_t k = 0; k < terms; k++)
        for (int r = 0; r < STEP_ROWS; r++) {
            const float x = a[r * TERMS + k];
#pragma omp simd
            for (int c = 0; c < STEP_COLS; c++)
                s[r][c] += x * b[k * TILE_COLS + c];
        }
    for (int r = 0; r < STEP_ROWS; r++)
        memcpy(sums + r * TILE_COLS, s[r], sizeof s[r]);
}

CPU_INLINE void store(const block_job *job, int64_t at, int64_t cols, const float *sums,
                      int32_t dtype)
{
    for (int64_t c = 0; c < cols; c++)
        st(job->y, at + c, dtype, job->accumulate, job->alpha * sums[c]);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void tile(const block_job *job, int64_t g, int64_t i, int64_t j)
{
    float sums[TILE_ROWS * TILE_COLS] = {0}, a[TILE_ROWS * TERMS], b[TERMS * TILE_COLS];
    const int64_t rows = least(TILE_ROWS, job->m - i), cols = least(TILE_COLS, job->n - j);
    memset(a, 0, sizeof a); /* rows after the last one are computed with it */
    for (int64_t k = 0; k < job->k; k += TERMS) {
        const int64_t terms = least(TERMS, job->k - k);
        copy(&job->a, g, i, k, rows, terms, a);
        copy(&job->b, g, k, j, terms, cols, b);
        for (int64_t r = 0; r < rows; r += STEP_ROWS)
            for (int64_t c = 0; c < cols; c += STEP_COLS)
                add_step(sums + r * TILE_COLS + c, a + r * TERMS, b + c, terms);
    }
    for (int64_t r = 0; r < rows; r++)
        CPU_BY_DTYPE(job->y_dtype, store, job, (i + r) * job->y_stride + g * job->n + j, cols,
                     sums + r * TILE_COLS);
}

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const block_job *job = arg;
    const int64_t tiles = job->tiles_m * job->tiles_n;
    (void)worker;
    for (int64_t t = begin; t < end; t++)
        tile(job, t / tiles, t % tiles / job->tiles_n * TILE_ROWS,
             t % tiles % job->tiles_n * TILE_COLS);
}

static operand side(const lathe_desc *d, const void *data, int64_t blocks, int32_t trans)
{
    return (operand){data, d->dims[1], d->dims[1] / blocks, trans != 0, d->dtype};
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *args)
{
    const int64_t g = k->attrs.count;
    const operand a = side(&k->in[0], args->in[0], g, k->attrs.trans_a);
    const operand b = side(&k->in[1], args->in[1], g, k->attrs.trans_b);
    const lathe_desc *y = &k->out[0];
    block_job job = {.a = a,
                     .b = b,
                     .y = args->out[0],
                     .m = y->dims[0],
                     .n = y->dims[1] / g,
                     .k = a.trans ? k->in[0].dims[0] : a.width,
                     .y_stride = y->dims[1],
                     .y_dtype = y->dtype,
                     .accumulate = (args->accumulate & 1u) != 0,
                     .alpha = (float)k->attrs.alpha};
    job.tiles_m = (job.m + TILE_ROWS - 1) / TILE_ROWS;
    job.tiles_n = (job.n + TILE_COLS - 1) / TILE_COLS;
    const int64_t work = least(TILE_ROWS, job.m) * least(TILE_COLS, job.n) * job.k;
    k->host->parallel_for(g * job.tiles_m * job.tiles_n, 1 + (1 << 16) / work, range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(BLOCK_MATMUL) = {NULL, run, NULL, 1};
