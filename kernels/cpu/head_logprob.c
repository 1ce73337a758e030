/* HEAD_LOGPROB, its derivative and HEAD_EVAL: log softmax(softcap(x W^T))[target]; HEAD_ENTROPY and
 * its derivative; HEAD_SAMPLE, which draws a token from that softmax. The logits of all rows are
 * never in memory at once.
 *
 * Rows with a target are processed in chunks of `rows` (the last chunk is padded with zero rows);
 * rows without a target cost nothing. The vocabulary is processed in blocks, so every product reads
 * and writes dense matrices, and a block is still in the cache when the softmax reads it. The
 * forward keeps one block of logits; the backward and the draw keep all blocks of a chunk, because
 * they need the sums over the whole vocabulary first.
 *
 *   scratch: | product | logits | x rows | dx rows f32 | row list | per row: state, lse, dlogp,
 *            target, uniform, token, parts |
 */
#include <math.h>

#include "element.h"
#include "head_softmax.h"
#include "lathe/rng.h"
#include "product.h"

#define LOGITS_BYTES ((int64_t)128 << 20) /* of logits kept by the backward, about */
#define MOST_ROWS 512                     /* of a chunk; more gains nothing at GPT-2's shapes */
#define LEAST_ROWS 128

typedef struct head {
    int64_t n, c, v;
    int64_t rows;            /* of a chunk */
    int64_t width, n_blocks; /* of the blocks of the vocabulary; the last may be narrower */
    int32_t dtype, backward, evaluates, samples, entropy;
    cpu_product *logits[2], *dx[2], *dw[2]; /* [1]: for the last block, if it is narrower */
    /* offsets in scratch */
    int64_t logits_at, x_at, dx_at, list_at, state_at, lse_at, dlogp_at, target_at;
    int64_t u_at, token_at, parts_at; /* for a draw */
    int64_t entropy_at, spread_at;    /* for HEAD_ENTROPY */
} head;

/* The op's arguments by name. HEAD_LOGPROB and HEAD_LOGPROB_BWD share the first numbers. */
typedef struct head_run {
    lathe_kernel *k;
    head *s;
    char *scratch;
    const void *x, *w;
    const int32_t *targets;
    const float *dlogp; /* NULL: forward */
    float *logp;
    float *top_logp; /* NULL: neither this nor top is wanted */
    int32_t *top;
    const int64_t *rng; /* of a draw, which writes `sampled` and no logp */
    int32_t *sampled;
    void *dx;  /* may be NULL */
    float *dw; /* may be NULL */
    uint32_t accumulate;
    int32_t *list; /* rows that have a target, in order */
    int64_t n_listed;
} head_run;

static void release(lathe_kernel *k)
{
    head *s = k->state;
    for (int i = 0; i < 2; i++) {
        cpu_product_destroy(k->device, s->logits[i]);
        cpu_product_destroy(k->device, s->dx[i]);
        cpu_product_destroy(k->device, s->dw[i]);
    }
    k->host->free(s);
}

static int64_t block_width(const head *s, int64_t b)
{
    return b + 1 < s->n_blocks ? s->width : s->v - b * s->width;
}

static void choose_sizes(const lathe_kernel *k, head *s)
{
    s->width = cpu_head_width(s->v);
    s->n_blocks = (s->v + s->width - 1) / s->width;
    int64_t rows = k->attrs.chunk_rows;
    if (rows < 1) {
        /* dtype was checked. NOLINTNEXTLINE(clang-analyzer-core.DivideZero) */
        rows = LOGITS_BYTES / (s->v * lathe_dtype_bytes(s->dtype)) / 64 * 64;
        rows = rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
    }
    if (rows > s->n)
        rows = s->n;
    const int64_t chunks = (s->n + rows - 1) / rows;
    s->rows = (s->n + chunks - 1) / chunks; /* chunks of equal size need little padding */
}

/* Prepares the three products for one block width. */
static lathe_status make_products(lathe_kernel *k, head *s, int i, int64_t width,
                                  int64_t *io_scratch)
{
    int64_t bytes[3] = {0, 0, 0};
    const matmul_spec logits = {.m = s->rows,
                                .n = width,
                                .k = s->c,
                                .a_dtype = s->dtype,
                                .b_dtype = s->dtype,
                                .c_dtype = s->dtype,
                                .trans_b = 1,
                                .may_overwrite = 1,
                                .invariant = k->attrs.invariant,
                                .alpha = 1.0};
    LATHE_TRY(cpu_product_create(k->device, &logits, &s->logits[i], &bytes[0]));
    const matmul_spec dx = {.m = s->rows,
                            .n = s->c,
                            .k = width,
                            .a_dtype = s->dtype,
                            .b_dtype = s->dtype,
                            .c_dtype = LATHE_F32,
                            .may_overwrite = 1,
                            .may_accumulate = 1,
                            .alpha = 1.0};
    if (s->backward && kernel_has_out(k, 1))
        LATHE_TRY(cpu_product_create(k->device, &dx, &s->dx[i], &bytes[1]));
    const matmul_spec dw = {.m = width,
                            .n = s->c,
                            .k = s->rows,
                            .a_dtype = s->dtype,
                            .b_dtype = s->dtype,
                            .c_dtype = LATHE_F32,
                            .trans_a = 1,
                            .may_overwrite = 1,
                            .may_accumulate = 1,
                            .alpha = 1.0};
    if (s->backward && kernel_has_out(k, 2))
        LATHE_TRY(cpu_product_create(k->device, &dw, &s->dw[i], &bytes[2]));
    for (int j = 0; j < 3; j++)
        if (bytes[j] > *io_scratch)
            *io_scratch = bytes[j];
    return LATHE_OK;
}

static int64_t carve(int64_t *io_at, int64_t bytes)
{
    const int64_t at_byte = cpu_round_up(*io_at, 64);
    *io_at = at_byte + bytes;
    return at_byte;
}

static void lay_out_scratch(head *s, int64_t product_bytes, int64_t *out_scratch)
{
    const int64_t element = lathe_dtype_bytes(s->dtype);
    int64_t end = product_bytes;
    const int64_t kept = s->backward || s->samples ? s->v : s->width;
    s->logits_at = carve(&end, s->rows * kept * element);
    s->x_at = carve(&end, s->rows * s->c * element);
    s->dx_at = carve(&end, s->backward ? s->rows * s->c * 4 : 0);
    s->list_at = carve(&end, s->n * 4);
    s->state_at = carve(&end, s->rows * (int64_t)sizeof(head_row));
    s->lse_at = carve(&end, s->rows * 4);
    s->dlogp_at = carve(&end, s->rows * 4);
    s->target_at = carve(&end, s->rows * 4);
    if (s->entropy) {
        s->entropy_at = carve(&end, s->rows * 4);
        s->spread_at = carve(&end, s->rows * (int64_t)sizeof(double));
    }
    if (s->samples) {
        s->u_at = carve(&end, s->rows * (int64_t)sizeof(double));
        s->token_at = carve(&end, s->rows * 4);
        s->parts_at = carve(&end, s->rows * s->n_blocks * (int64_t)sizeof(head_part));
    }
    *out_scratch = end;
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    head *s = k->host->alloc((int64_t)sizeof *s);
    if (s == NULL)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    s->n = lathe_desc_count(&k->in[2]);
    s->v = k->in[1].dims[0];
    s->c = k->in[1].dims[1];
    s->dtype = k->in[0].dtype;
    s->entropy = k->op_id == LATHE_OP_HEAD_ENTROPY || k->op_id == LATHE_OP_HEAD_ENTROPY_BWD;
    s->backward = k->op_id == LATHE_OP_HEAD_LOGPROB_BWD || k->op_id == LATHE_OP_HEAD_ENTROPY_BWD;
    s->evaluates = k->op_id == LATHE_OP_HEAD_EVAL;
    s->samples = k->op_id == LATHE_OP_HEAD_SAMPLE;
    choose_sizes(k, s);
    int64_t product_bytes = 0;
    LATHE_TRY(make_products(k, s, 0, s->width < s->v ? s->width : s->v, &product_bytes));
    const int64_t last = block_width(s, s->n_blocks - 1);
    if (s->n_blocks > 1 && last != s->width)
        LATHE_TRY(make_products(k, s, 1, last, &product_bytes));
    lay_out_scratch(s, product_bytes, out_scratch);
    return LATHE_OK;
}

/* Lists the rows with a target. The others get logp 0 and, unless dx is added to, dx 0. */
static lathe_status list_rows(head_run *r)
{
    const head *s = r->s;
    const size_t row_bytes = (size_t)(s->c * lathe_dtype_bytes(s->dtype));
    r->n_listed = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (r->targets[i] < -1 || r->targets[i] >= s->v)
            return lathe_fail(r->k->host, LATHE_E_ARG,
                              "%s: target %d of row %lld is outside the vocabulary of %lld",
                              kernel_op_name(r->k), (int)r->targets[i], (long long)i,
                              (long long)s->v);
        if (r->targets[i] >= 0) {
            r->list[r->n_listed++] = (int32_t)i;
            continue;
        }
        if (r->sampled != NULL)
            r->sampled[i] = -1;
        else if (r->logp != NULL && !(r->accumulate & 1u))
            r->logp[i] = 0.0f;
        if (r->top != NULL) {
            r->top_logp[i] = 0.0f;
            r->top[i] = -1;
        }
        if (r->dx != NULL && !(r->accumulate & 2u))
            memset(at_mut(r->dx, i * s->c, s->dtype), 0, row_bytes);
    }
    return LATHE_OK;
}

/* The chunk's rows of x: x itself if they are consecutive, else gathered into scratch and
 * padded. */
static const void *chunk_x(const head_run *r, int64_t from, int64_t n)
{
    const head *s = r->s;
    const int64_t row_bytes = s->c * lathe_dtype_bytes(s->dtype);
    if (n == s->rows && r->list[from + n - 1] - r->list[from] == n - 1)
        return (const char *)r->x + r->list[from] * row_bytes;
    char *x = r->scratch + s->x_at;
    for (int64_t i = 0; i < n; i++)
        memcpy(x + i * row_bytes, (const char *)r->x + r->list[from + i] * row_bytes,
               (size_t)row_bytes);
    memset(x + n * row_bytes, 0, (size_t)((s->rows - n) * row_bytes));
    return x;
}

/* The per-row arrays of a chunk; padding rows have no target. */
static head_block chunk_block(const head_run *r, int64_t from, int64_t n)
{
    const head *s = r->s;
    head_row *state = (head_row *)(void *)(r->scratch + s->state_at);
    int32_t *targets = (int32_t *)(void *)(r->scratch + s->target_at);
    float *dlogp = (float *)(void *)(r->scratch + s->dlogp_at);
    double *spreads = s->entropy ? (double *)(void *)(r->scratch + s->spread_at) : NULL;
    for (int64_t i = 0; i < s->rows; i++) {
        const int64_t row = i < n ? r->list[from + i] : -1;
        state[i] = (head_row){-INFINITY, 0.0f, 0.0, -INFINITY, -1};
        targets[i] = row < 0 ? -1 : r->targets[row];
        dlogp[i] = row < 0 || r->dlogp == NULL ? 0.0f : r->dlogp[row];
        if (spreads != NULL)
            spreads[i] = 0.0;
    }
    const head_block block = {.rows = s->rows,
                              .dtype = s->dtype,
                              .softcap = r->k->attrs.softcap,
                              .targets = targets,
                              .find_top = s->evaluates,
                              .spreads = spreads,
                              .entropies =
                                  (const float *)(const void *)(r->scratch + s->entropy_at),
                              .state = state,
                              .dlogp = dlogp,
                              .lse = (const float *)(const void *)(r->scratch + s->lse_at)};
    return block;
}

/* Moves `block` to block b of the vocabulary. */
static void aim(const head_run *r, head_block *block, int64_t b)
{
    const head *s = r->s;
    const int64_t kept = s->backward ? s->rows * b * s->width : 0;
    block->first = b * s->width;
    block->width = block_width(s, b);
    block->logits = at_mut(r->scratch + s->logits_at, kept, s->dtype);
}

static int narrow(const head *s, int64_t b)
{
    return s->n_blocks > 1 && block_width(s, b) != s->width;
}

static lathe_status chunk_forward(const head_run *r, head_block *block, const void *x, int64_t from,
                                  int64_t n)
{
    const head *s = r->s;
    cpu_device *device = r->k->device;
    float *lse = (float *)(void *)(r->scratch + s->lse_at);
    float *entropies = (float *)(void *)(r->scratch + s->entropy_at);
    for (int64_t b = 0; b < s->n_blocks; b++) {
        aim(r, block, b);
        const void *w = at(r->w, block->first * s->c, s->dtype);
        LATHE_TRY(cpu_product_run(device, s->logits[narrow(s, b)], x, w, NULL, block->logits,
                                  r->scratch, 0));
        cpu_head_observe(device->host, block);
    }
    for (int64_t i = 0; i < n; i++) {
        const head_row *row = &block->state[i];
        const double log_sum = (double)row->max + log(row->sum);
        lse[i] = (float)log_sum;
        float result = (float)((double)row->target - log_sum);
        if (block->spreads != NULL) { /* HEAD_ENTROPY */
            result = (float)(log(row->sum) - block->spreads[i] / row->sum);
            entropies[i] = result;
        }
        st(r->logp, r->list[from + i], LATHE_F32, (r->accumulate & 1u) != 0, result);
        if (r->top != NULL) {
            r->top_logp[r->list[from + i]] = (float)((double)row->max - log_sum);
            r->top[r->list[from + i]] = row->top_id;
        }
    }
    return LATHE_OK;
}

static lathe_status chunk_backward(const head_run *r, head_block *block, const void *x,
                                   int64_t from, int64_t n)
{
    const head *s = r->s;
    cpu_device *device = r->k->device;
    float *dx = (float *)(void *)(r->scratch + s->dx_at);
    for (int64_t b = 0; b < s->n_blocks; b++) {
        aim(r, block, b);
        cpu_head_gradient(device->host, block);
        const void *w = at(r->w, block->first * s->c, s->dtype);
        if (r->dx != NULL)
            LATHE_TRY(cpu_product_run(device, s->dx[narrow(s, b)], block->logits, w, NULL, dx,
                                      r->scratch, b > 0));
        if (r->dw != NULL)
            LATHE_TRY(cpu_product_run(device, s->dw[narrow(s, b)], block->logits, x, NULL,
                                      r->dw + block->first * s->c, r->scratch,
                                      from > 0 || (r->accumulate & 4u) != 0));
    }
    for (int64_t i = 0; r->dx != NULL && i < n; i++)
        cpu_convert(device->host, at_mut(r->dx, r->list[from + i] * s->c, s->dtype), s->dtype,
                    dx + i * s->c, LATHE_F32, s->c, (r->accumulate & 2u) != 0);
    return LATHE_OK;
}

/* Computes the chunk's logits, then draws a token for each row. */
static lathe_status chunk_sample(const head_run *r, const head_block *block, const void *x,
                                 int64_t from, int64_t n)
{
    const head *s = r->s;
    cpu_device *device = r->k->device;
    if (r->rng == NULL || r->sampled == NULL) /* both are set for HEAD_SAMPLE */
        return LATHE_E_ARG;
    double *u = (double *)(void *)(r->scratch + s->u_at);
    for (int64_t i = 0; i < s->rows; i++) {
        const int64_t row =
            i < n ? lathe_rng_index(r->rng, lathe_desc_count(&r->k->in[2]), r->list[from + i]) : 0;
        const lathe_u32x4 word = lathe_rng_block((uint64_t)r->rng[0], (uint64_t)r->rng[1],
                                                 r->k->attrs.rng_stream, (uint64_t)row);
        u[i] = lathe_uniform_f64(word.v[0], word.v[1]);
    }
    head_draw draw = {.logits = r->scratch + s->logits_at,
                      .rows = s->rows,
                      .width = s->width,
                      .vocabulary = s->v,
                      .n_blocks = s->n_blocks,
                      .dtype = s->dtype,
                      .softcap = r->k->attrs.softcap,
                      .targets = block->targets,
                      .parts = (head_part *)(void *)(r->scratch + s->parts_at),
                      .u = u,
                      .token = (int32_t *)(void *)(r->scratch + s->token_at)};
    for (int64_t b = 0; b < s->n_blocks; b++) {
        int64_t width;
        void *logits = cpu_head_kept(&draw, b, &width);
        LATHE_TRY(cpu_product_run(device, s->logits[narrow(s, b)], x,
                                  at(r->w, b * s->width * s->c, s->dtype), NULL, logits, r->scratch,
                                  0));
        cpu_head_weigh(device->host, &draw, b);
    }
    cpu_head_draw(device->host, &draw);
    for (int64_t i = 0; i < n; i++)
        r->sampled[r->list[from + i]] = draw.token[i];
    return LATHE_OK;
}

static lathe_status run_chunks(head_run *r)
{
    const head *s = r->s;
    r->list = (int32_t *)(void *)(r->scratch + s->list_at);
    LATHE_TRY(list_rows(r));
    for (int64_t from = 0; from < r->n_listed; from += s->rows) {
        const int64_t n = r->n_listed - from < s->rows ? r->n_listed - from : s->rows;
        const void *x = chunk_x(r, from, n);
        head_block block = chunk_block(r, from, n);
        if (s->samples)
            LATHE_TRY(chunk_sample(r, &block, x, from, n));
        else
            LATHE_TRY(chunk_forward(r, &block, x, from, n));
        if (s->backward)
            LATHE_TRY(chunk_backward(r, &block, x, from, n));
    }
    if (r->n_listed == 0 && r->dw != NULL && !(r->accumulate & 4u))
        memset(r->dw, 0, (size_t)(s->v * s->c) * sizeof(float));
    return LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    head_run r = {.k = k,
                  .s = k->state,
                  .scratch = a->scratch,
                  .x = a->in[0],
                  .w = a->in[1],
                  .targets = a->in[2],
                  .logp = a->out[0],
                  .accumulate = a->accumulate};
    if (r.s->backward) {
        r.dlogp = a->in[3];
        r.dx = kernel_has_out(k, 1) ? a->out[1] : NULL;
        r.dw = kernel_has_out(k, 2) ? a->out[2] : NULL;
    }
    if (r.s->evaluates) {
        r.top_logp = a->out[1];
        r.top = a->out[2];
    }
    if (r.s->samples) {
        r.rng = a->in[3];
        r.sampled = a->out[0];
        r.logp = NULL;
    }
    return run_chunks(&r);
}

const kernel_op CPU_OP(HEAD_LOGPROB) = {prepare, run, release, 0};
const kernel_op CPU_OP(HEAD_EVAL) = {prepare, run, release, 0};
const kernel_op CPU_OP(HEAD_SAMPLE) = {prepare, run, release, 0};
const kernel_op CPU_OP(HEAD_LOGPROB_BWD) = {prepare, run, release, 7};
const kernel_op CPU_OP(HEAD_ENTROPY) = {prepare, run, release, 0};
const kernel_op CPU_OP(HEAD_ENTROPY_BWD) = {prepare, run, release, 7};
