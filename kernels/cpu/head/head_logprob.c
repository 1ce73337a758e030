/* Above 500 lines because all ops of the head share the chunks and blocks that are laid out here.
 *
 * HEAD_LOGPROB, its derivative and HEAD_EVAL: log softmax(softcap(s * (x W^T + u v^T)))[target];
 * HEAD_ENTROPY and its derivative; HEAD_SAMPLE, which draws a token from that softmax. The logits
 * of all rows are never in memory at once.
 *
 * Rows with a target are processed in chunks of `rows` (the last chunk is padded with zero rows);
 * rows without a target cost nothing. The vocabulary is processed in blocks, so every product reads
 * and writes dense matrices, and a block is still in the cache when the softmax reads it. The
 * forward keeps one block of logits; the backward and the draw keep all blocks of a chunk, because
 * they need the sums over the whole vocabulary first. The terms x W^T and u v^T are pairs of
 * operands that are treated alike; without u and v there is one pair. With s, the logits are the
 * products alone, and s times them are f32 numbers beside them: of a block, or of all for a draw.
 * In the backward the gradient of a block then takes the place of its products.
 *
 *   scratch: | product | logits | scaled | per pair: x rows, dx rows f32 | row list | per row:
 * state, lse, dlogp, target, uniform, token, parts |
 */
#include <math.h>

#include "base/cast.h"
#include "base/element.h"
#include "head/head_pair.h"
#include "head/head_scale.h"
#include "head/head_softmax.h"
#include "lathe/rng.h"

#define LOGITS_BYTES ((int64_t)128 << 20) /* of logits kept by the backward, about */
#define MOST_ROWS 512                     /* of a chunk; more gains nothing at GPT-2's shapes */
#define LEAST_ROWS 128

enum { MOST_PAIRS = 2 };

typedef struct head {
    int64_t n, v;
    int64_t rows;            /* of a chunk */
    int64_t width, n_blocks; /* of the blocks of the vocabulary; the last may be narrower */
    int32_t dtype, backward, evaluates, samples, entropy, n_pairs;
    int32_t in_s, out_ds; /* numbers of s and its gradient; -1: none */
    head_pair pairs[MOST_PAIRS];
    /* offsets in scratch */
    int64_t logits_at, scaled_at, list_at, state_at, lse_at, dlogp_at, target_at;
    int64_t u_at, token_at, parts_at; /* for a draw */
    int64_t entropy_at, spread_at;    /* for HEAD_ENTROPY */
} head;

/* The op's arguments by name. HEAD_LOGPROB and HEAD_LOGPROB_BWD share the first numbers. */
typedef struct head_run {
    lathe_kernel *k;
    head *s;
    const lathe_kernel_args *args;
    char *scratch;
    const int32_t *targets;
    const float *dlogp; /* NULL: forward */
    float *logp;
    float *top_logp; /* NULL: neither this nor top is wanted */
    int32_t *top;
    const int64_t *rng; /* of a draw, which writes `sampled` and no logp */
    int32_t *sampled;
    const void *x[MOST_PAIRS]; /* the chunk's rows of each pair */
    uint32_t accumulate;
    int32_t *list; /* rows that have a target, in order */
    int64_t n_listed;
} head_run;

static void release(lathe_kernel *k)
{
    head *s = k->state;
    for (int p = 0; p < MOST_PAIRS; p++)
        cpu_head_pair_fini(k->device, &s->pairs[p]);
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
    const int scales = s->in_s >= 0;
    const int64_t kept = s->backward || (s->samples && !scales) ? s->v : s->width;
    s->logits_at = carve(&end, s->rows * kept * element);
    s->scaled_at = carve(&end, scales ? s->rows * (s->samples ? s->v : s->width) * 4 : 0);
    for (int p = 0; p < s->n_pairs; p++) {
        head_pair *pair = &s->pairs[p];
        pair->x_at = carve(&end, s->rows * pair->c * element);
        pair->dx_at = carve(&end, s->backward ? s->rows * pair->c * 4 : 0);
    }
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

/* Finds the terms of the logits, and where their gradients go. */
static void find_pairs(const lathe_kernel *k, head *s)
{
    const int32_t u = s->backward || s->samples ? 4 : 3;
    const int has_more = kernel_has_in(k, u);
    const int32_t dx = s->backward && kernel_has_out(k, 1) ? 1 : -1;
    const int32_t dw = s->backward && kernel_has_out(k, 2) ? 2 : -1;
    const int32_t dv = has_more && s->backward && kernel_has_out(k, 5) ? 5 : -1;
    const int32_t du = has_more && s->backward && kernel_has_out(k, 3) ? 3 : -1;
    s->n_pairs = has_more ? 2 : 1;
    s->in_s = kernel_has_in(k, u + 2) ? u + 2 : -1;
    s->out_ds = s->in_s >= 0 && s->backward && kernel_has_out(k, 4) ? 4 : -1;
    s->pairs[0] = (head_pair){
        .c = k->in[1].dims[1], .by_blocks = 1, .in_x = 0, .in_w = 1, .out_dx = dx, .out_dw = dw};
    if (has_more)
        s->pairs[1] = (head_pair){.c = k->in[u + 1].dims[1],
                                  .adds = 1,
                                  .by_blocks = 1,
                                  .in_x = u,
                                  .in_w = u + 1,
                                  .out_dx = du,
                                  .out_dw = dv};
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    head *s = k->host->alloc((int64_t)sizeof *s);
    if (s == NULL)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    s->n = lathe_desc_count(&k->in[2]);
    s->v = k->in[1].dims[0];
    s->dtype = k->in[0].dtype;
    s->entropy = k->op_id == LATHE_OP_HEAD_ENTROPY || k->op_id == LATHE_OP_HEAD_ENTROPY_BWD;
    s->backward = k->op_id == LATHE_OP_HEAD_LOGPROB_BWD || k->op_id == LATHE_OP_HEAD_ENTROPY_BWD;
    s->evaluates = k->op_id == LATHE_OP_HEAD_EVAL;
    s->samples = k->op_id == LATHE_OP_HEAD_SAMPLE;
    choose_sizes(k, s);
    find_pairs(k, s);
    int64_t product_bytes = 0;
    const int64_t first = s->width < s->v ? s->width : s->v;
    const int64_t last = block_width(s, s->n_blocks - 1);
    for (int p = 0; p < s->n_pairs; p++) {
        LATHE_TRY(cpu_head_pair_products(k, &s->pairs[p], 0, s->rows, first, &product_bytes));
        if (s->n_blocks > 1 && last != s->width)
            LATHE_TRY(cpu_head_pair_products(k, &s->pairs[p], 1, s->rows, last, &product_bytes));
    }
    lay_out_scratch(s, product_bytes, out_scratch);
    return LATHE_OK;
}

/* Output k of the op; NULL: not wanted. */
static void *output(const head_run *r, int32_t k)
{
    return k < 0 ? NULL : r->args->out[k];
}

static int adds(const head_run *r, int32_t k)
{
    return k >= 0 && (r->accumulate >> k & 1u) != 0;
}

/* The gradients of a row of x and of u become 0, unless they are added to. */
static void clear_row(const head_run *r, int64_t i)
{
    const head *s = r->s;
    for (int p = 0; p < s->n_pairs; p++) {
        const head_pair *pair = &s->pairs[p];
        void *dx = output(r, pair->out_dx);
        if (dx != NULL && !adds(r, pair->out_dx))
            memset(at_mut(dx, i * pair->c, s->dtype), 0,
                   (size_t)(pair->c * lathe_dtype_bytes(s->dtype)));
    }
}

/* Lists the rows with a target. The others get logp 0 and, unless dx is added to, dx 0. */
static lathe_status list_rows(head_run *r)
{
    const head *s = r->s;
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
        clear_row(r, i);
    }
    return LATHE_OK;
}

/* The chunk's rows of a pair's x: x itself if they are consecutive, else gathered into scratch and
 * padded. */
static const void *chunk_x(const head_run *r, const head_pair *pair, int64_t from, int64_t n)
{
    const head *s = r->s;
    const int64_t row_bytes = pair->c * lathe_dtype_bytes(s->dtype);
    const char *all = r->args->in[pair->in_x];
    if (n == s->rows && r->list[from + n - 1] - r->list[from] == n - 1)
        return all + r->list[from] * row_bytes;
    char *x = r->scratch + pair->x_at;
    for (int64_t i = 0; i < n; i++)
        memcpy(x + i * row_bytes, all + r->list[from + i] * row_bytes, (size_t)row_bytes);
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

/* The logits of block b of the vocabulary. */
static lathe_status run_logits(const head_run *r, int64_t b, void *logits)
{
    const head *s = r->s;
    for (int p = 0; p < s->n_pairs; p++) {
        const head_pair *pair = &s->pairs[p];
        const void *w = at(r->args->in[pair->in_w], b * s->width * pair->c, s->dtype);
        LATHE_TRY(cpu_product_run(r->k->device, pair->logits[narrow(s, b)], r->x[p], w, NULL,
                                  logits, r->scratch, p > 0));
    }
    return LATHE_OK;
}

/* ---- s ---- */

static const lathe_host *host_of(const head_run *r)
{
    const cpu_device *device = r->k->device;
    return device->host;
}

static cpu_head_scaling scaling_of(const head_run *r, int64_t b, void *products, void *scaled)
{
    const head *s = r->s;
    const cpu_head_scaling out = {.products = products,
                                  .scaled = scaled,
                                  .s = (const float *)r->args->in[s->in_s] + b * s->width,
                                  .rows = s->rows,
                                  .width = block_width(s, b),
                                  .dtype = s->dtype};
    return out;
}

/* Replaces the block's products by s times them, in f32, in another place. */
static void scale_block(const head_run *r, head_block *block, int64_t b)
{
    if (r->s->in_s < 0)
        return;
    cpu_head_scaling c = scaling_of(r, b, block->logits, r->scratch + r->s->scaled_at);
    cpu_head_scale(host_of(r), &c);
    block->logits = c.scaled;
    block->dtype = LATHE_F32;
}

/* The gradient of the products from that of s times them, and that of s. */
static void unscale_block(const head_run *r, head_block *block, int64_t b, int64_t from)
{
    const head *s = r->s;
    float *ds = output(r, s->out_ds), *gradient = block->logits;
    if (s->in_s < 0)
        return;
    block->dtype = s->dtype;
    aim(r, block, b);
    cpu_head_scaling c = scaling_of(r, b, block->logits, gradient);
    c.ds = ds != NULL ? ds + block->first : NULL;
    c.adds = from > 0 || adds(r, s->out_ds);
    cpu_head_unscale(host_of(r), &c);
}

static lathe_status chunk_forward(const head_run *r, head_block *block, int64_t from, int64_t n)
{
    const head *s = r->s;
    cpu_device *device = r->k->device;
    float *lse = (float *)(void *)(r->scratch + s->lse_at);
    float *entropies = (float *)(void *)(r->scratch + s->entropy_at);
    for (int64_t b = 0; b < s->n_blocks; b++) {
        aim(r, block, b);
        LATHE_TRY(run_logits(r, b, block->logits));
        scale_block(r, block, b);
        cpu_head_observe(device->host, block);
        block->dtype = s->dtype;
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

static float *rows_of_dx(const head_run *r, const head_pair *pair)
{
    return (float *)(void *)(r->scratch + pair->dx_at);
}

/* Adds what a block of gradients of logits gives to dx and dW of a pair. */
static lathe_status pair_backward(const head_run *r, int p, const head_block *block, int64_t b,
                                  int64_t from)
{
    const head *s = r->s;
    const head_pair *pair = &s->pairs[p];
    const void *w = at(r->args->in[pair->in_w], block->first * pair->c, s->dtype);
    float *dw = output(r, pair->out_dw);
    if (pair->out_dx >= 0)
        LATHE_TRY(cpu_product_run(r->k->device, pair->dx[narrow(s, b)], block->logits, w, NULL,
                                  rows_of_dx(r, pair), r->scratch, b > 0));
    if (dw == NULL)
        return LATHE_OK;
    return cpu_product_run(r->k->device, pair->dw[narrow(s, b)], block->logits, r->x[p], NULL,
                           dw + block->first * pair->c, r->scratch,
                           from > 0 || adds(r, pair->out_dw));
}

static lathe_status chunk_backward(const head_run *r, head_block *block, int64_t from, int64_t n)
{
    const head *s = r->s;
    const cpu_device *device = r->k->device;
    const lathe_host *host = device->host;
    for (int64_t b = 0; b < s->n_blocks; b++) {
        aim(r, block, b);
        scale_block(r, block, b);
        cpu_head_gradient(host, block);
        unscale_block(r, block, b, from);
        for (int p = 0; p < s->n_pairs; p++)
            LATHE_TRY(pair_backward(r, p, block, b, from));
    }
    for (int p = 0; p < s->n_pairs; p++) {
        const head_pair *pair = &s->pairs[p];
        for (int64_t i = 0; pair->out_dx >= 0 && i < n; i++)
            cpu_cast(host, at_mut(output(r, pair->out_dx), r->list[from + i] * pair->c, s->dtype),
                     s->dtype, rows_of_dx(r, pair) + i * pair->c, LATHE_F32, pair->c,
                     adds(r, pair->out_dx));
    }
    return LATHE_OK;
}

/* Computes the chunk's logits, then draws a token for each row. */
static lathe_status chunk_sample(const head_run *r, const head_block *block, int64_t from,
                                 int64_t n)
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
    const int scales = s->in_s >= 0;
    void *products = r->scratch + s->logits_at;
    head_draw draw = {.logits = r->scratch + (scales ? s->scaled_at : s->logits_at),
                      .rows = s->rows,
                      .width = s->width,
                      .vocabulary = s->v,
                      .n_blocks = s->n_blocks,
                      .dtype = scales ? LATHE_F32 : s->dtype,
                      .softcap = r->k->attrs.softcap,
                      .targets = block->targets,
                      .parts = (head_part *)(void *)(r->scratch + s->parts_at),
                      .u = u,
                      .token = (int32_t *)(void *)(r->scratch + s->token_at)};
    for (int64_t b = 0; b < s->n_blocks; b++) {
        int64_t width;
        void *logits = cpu_head_kept(&draw, b, &width);
        LATHE_TRY(run_logits(r, b, scales ? products : logits));
        if (scales) {
            cpu_head_scaling c = scaling_of(r, b, products, logits);
            cpu_head_scale(device->host, &c);
        }
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
        for (int p = 0; p < s->n_pairs; p++)
            r->x[p] = chunk_x(r, &s->pairs[p], from, n);
        head_block block = chunk_block(r, from, n);
        if (s->samples)
            LATHE_TRY(chunk_sample(r, &block, from, n));
        else
            LATHE_TRY(chunk_forward(r, &block, from, n));
        if (s->backward)
            LATHE_TRY(chunk_backward(r, &block, from, n));
    }
    if (r->n_listed == 0 && s->out_ds >= 0 && !adds(r, s->out_ds))
        memset(output(r, s->out_ds), 0, (size_t)s->v * sizeof(float));
    for (int p = 0; p < s->n_pairs && r->n_listed == 0; p++) {
        const head_pair *pair = &s->pairs[p];
        if (pair->out_dw >= 0 && !adds(r, pair->out_dw))
            memset(output(r, pair->out_dw), 0, (size_t)(s->v * pair->c) * sizeof(float));
    }
    return LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    head_run r = {.k = k,
                  .s = k->state,
                  .args = a,
                  .scratch = a->scratch,
                  .targets = a->in[2],
                  .logp = a->out[0],
                  .accumulate = a->accumulate};
    if (r.s->backward)
        r.dlogp = a->in[3];
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
const kernel_op CPU_OP(HEAD_LOGPROB_BWD) = {prepare, run, release, 63};
const kernel_op CPU_OP(HEAD_ENTROPY) = {prepare, run, release, 0};
const kernel_op CPU_OP(HEAD_ENTROPY_BWD) = {prepare, run, release, 63};
