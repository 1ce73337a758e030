/* HEAD_DIVERGENCE and its derivative. The logits of all rows are never in memory at once.
 *
 * Rows with a target are processed in chunks of `rows` (the last chunk is padded with zero rows);
 * rows without a target cost nothing. Products give the logits of both models for a chunk
 * (head_logits.h); one pass over each row gives the sums of exp, a second the divergence, a third
 * turns the first model's logits into their gradient, in place. Elements are computed in f32, 512
 * at a time, and their sums added in double.
 *
 *   l = (x W^T + u v^T) * s, with factors s
 *   s = l/T or cap*tanh(l/cap)/T     p = softmax(s)  q = softmax of the other model's s
 *   beta 0   KL(q || p)              ds = p - q
 *   else     m = beta q + (1-beta) p, or q for beta 1
 *            beta KL(q || m) + (1-beta) KL(p || m), or KL(p || q)
 *            ds = (1-beta, or 1) p (log p - log m - KL(p || m))
 *
 * p and q are over the tokens that both models have: the first min(V, V') of the vocabularies,
 * whose further rows fill up an embedding and are no tokens. Their ds is 0.
 *
 *   scratch: | product | head_logits | those of the other model | row list |
 */
#include <math.h>

#include "base/element.h"
#include "base/vecmath.h"
#include "head/head_logits.h"

#define LOGITS_BYTES ((int64_t)128 << 20) /* of both models' logits, about */
#define MOST_ROWS 512                     /* of a chunk */
#define LEAST_ROWS 64
#define TILE 512 /* elements in f32 at a time */

/* One of the two models. */
typedef struct side {
    head_logits head;
    float cap;
} side;

typedef struct divergence {
    int64_t n, v, rows; /* v: tokens that both models have */
    int32_t backward;
    side own, other;
    int64_t list_at;
} divergence;

/* The logits of a model, [rows,stride]. */
typedef struct side_logits {
    void *data;
    int64_t stride;
    int32_t dtype;
    float cap;
} side_logits;

typedef struct divergence_run {
    lathe_kernel *k;
    divergence *s;
    const lathe_kernel_args *a;
    char *scratch;
    int32_t *list; /* rows that have a target, in order */
    int64_t n_listed;
    head_chunk chunk;
    side_logits own, other; /* of the chunk */
} divergence_run;

static void release(lathe_kernel *k)
{
    divergence *s = k->state;
    cpu_head_logits_fini(k->device, &s->own.head);
    cpu_head_logits_fini(k->device, &s->other.head);
    k->host->free(s);
}

static int64_t choose_rows(const lathe_kernel *k, const divergence *s)
{
    int64_t rows = k->attrs.chunk_rows;
    if (rows < 1) {
        const int64_t each =
            cpu_head_logits_row_bytes(&s->own.head) + cpu_head_logits_row_bytes(&s->other.head);
        rows = each > 0 ? LOGITS_BYTES / each / 64 * 64 : MOST_ROWS;
        rows = rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
    }
    if (rows > s->n)
        rows = s->n;
    const int64_t chunks = (s->n + rows - 1) / rows;
    return (s->n + chunks - 1) / chunks; /* chunks of equal size need little padding */
}

/* Number of tokens that both models have. */
static int64_t common_tokens(const lathe_kernel *k)
{
    const int64_t own = k->in[1].dims[0], other = k->in[3].dims[0];
    return own < other ? own : other;
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    divergence *s = k->host->alloc((int64_t)sizeof *s);
    if (s == NULL)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    *s = (divergence){.n = lathe_desc_count(&k->in[4]),
                      .v = common_tokens(k),
                      .backward = k->op_id == LATHE_OP_HEAD_DIVERGENCE_BWD,
                      .own.cap = k->attrs.softcap,
                      .other.cap = k->attrs.scale};
    const int32_t in_u = s->backward ? 6 : 5;
    cpu_head_logits_find(k, &s->own.head, 0, in_u, s->backward);
    cpu_head_logits_find(k, &s->other.head, 2, in_u + 3, 0);
    s->rows = s->own.head.rows = s->other.head.rows = choose_rows(k, s);
    int64_t end = 0;
    LATHE_TRY(cpu_head_logits_products(k, &s->own.head, &end));
    LATHE_TRY(cpu_head_logits_products(k, &s->other.head, &end));
    cpu_head_logits_lay_out(&s->own.head, &end);
    cpu_head_logits_lay_out(&s->other.head, &end);
    s->list_at = cpu_round_up(end, 64);
    *out_scratch = s->list_at + s->n * 4;
    return LATHE_OK;
}

/* Lists the rows with a target. The others get 0, and gradients of 0 unless these are added to. */
static lathe_status list_rows(divergence_run *r)
{
    const divergence *s = r->s;
    const int32_t *targets = r->a->in[4];
    float *out = r->a->out[0];
    for (int64_t i = 0; i < s->n; i++) {
        if (targets[i] < -1 || targets[i] >= s->own.head.v)
            return lathe_fail(r->k->host, LATHE_E_ARG,
                              "%s: target %d of row %lld is outside the vocabulary of %lld",
                              kernel_op_name(r->k), (int)targets[i], (long long)i,
                              (long long)s->own.head.v);
        if (targets[i] >= 0) {
            r->list[r->n_listed++] = (int32_t)i;
            continue;
        }
        if (!(r->a->accumulate & 1u))
            out[i] = 0.0f;
        cpu_head_logits_skip_row(&s->own.head, r->a, i);
    }
    return LATHE_OK;
}

/* ---- one row ---- */

CPU_INLINE void load_scaled(const void *l, int64_t n, float cap, float scale, float *out,
                            int32_t dtype)
{
    if (cap > 0.0f)
        for (int64_t i = 0; i < n; i++)
            out[i] = scale * (cap * cpu_tanh(ld(l, i, dtype) / cap));
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = scale * ld(l, i, dtype);
}

/* Scaled logits first .. first + n - 1 of row r of a model. */
static void load(const divergence_run *r, const side_logits *of, int64_t row, int64_t first,
                 int64_t n, float *out)
{
    const void *l = at(of->data, row * of->stride + first, of->dtype);
    const float scale = (float)(1.0 / r->k->attrs.alpha);
    CPU_BY_DTYPE(of->dtype, load_scaled, l, n, of->cap, scale, out);
}

static int64_t tile_of(const divergence_run *r, int64_t first)
{
    return r->s->v - first < TILE ? r->s->v - first : TILE;
}

/* Log of the sum of exp(s) over the vocabulary. */
static double log_sum(const divergence_run *r, const side_logits *of, int64_t row)
{
    float s[TILE], top = -INFINITY;
    double sum = 0.0;
    for (int64_t first = 0; first < r->s->v; first += TILE) {
        const int64_t n = tile_of(r, first);
        load(r, of, row, first, n, s);
        for (int64_t i = 0; i < n; i++)
            top = s[i] > top ? s[i] : top;
    }
    const float shift = top > -INFINITY ? top : 0.0f;
    for (int64_t first = 0; first < r->s->v; first += TILE) {
        const int64_t n = tile_of(r, first);
        float part = 0.0f;
        load(r, of, row, first, n, s);
#pragma omp simd reduction(+ : part)
        for (int64_t i = 0; i < n; i++)
            part += cpu_exp(s[i] - shift);
        sum += (double)part;
    }
    return (double)shift + log(sum);
}

/* s[i] becomes a log-probability. */
static void to_log(float *s, int64_t n, float lse)
{
    for (int64_t i = 0; i < n; i++)
        s[i] -= lse;
}

/* logm of the mixture beta q + (1 - beta) p; -inf only where both are. */
static void mix(const float *logp, const float *logq, int64_t n, float beta, float *logm)
{
    const float of_q = logf(beta), of_p = log1pf(-beta);
    for (int64_t i = 0; i < n; i++) {
        const float a = logp[i] + of_p, b = logq[i] + of_q;
        const float high = a > b ? a : b, low = a > b ? b : a;
        logm[i] = high > -INFINITY ? high + log1pf(expf(low - high)) : high;
    }
}

/* Sum of exp(a) (a - b), the divergence of a from b. */
static double part_of_kl(const float *a, const float *b, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        const float e = cpu_exp(a[i]);
        sum += e > 0.0f ? e * (a[i] - b[i]) : 0.0f;
    }
    return (double)sum;
}

/* A row's sums. */
typedef struct sums {
    float lse, other_lse;
    double of_p, of_q; /* KL(p || m), KL(q || m); with beta 0: m = p */
} sums;

/* Log-probabilities of both models in a tile, and of what they are compared with. */
static const float *tile(const divergence_run *r, const sums *u, int64_t row, int64_t first,
                         int64_t n, float *logp, float *logq, float *logm)
{
    const float beta = (float)r->k->attrs.beta;
    load(r, &r->own, row, first, n, logp);
    load(r, &r->other, row, first, n, logq);
    to_log(logp, n, u->lse);
    to_log(logq, n, u->other_lse);
    if (beta <= 0.0f)
        return logp;
    if (beta >= 1.0f)
        return logq;
    mix(logp, logq, n, beta, logm);
    return logm;
}

static float observe(const divergence_run *r, int64_t row, sums *u)
{
    const double beta = r->k->attrs.beta;
    float logp[TILE], logq[TILE], logm[TILE];
    *u = (sums){.lse = (float)log_sum(r, &r->own, row),
                .other_lse = (float)log_sum(r, &r->other, row)};
    for (int64_t first = 0; first < r->s->v; first += TILE) {
        const int64_t n = tile_of(r, first);
        const float *m = tile(r, u, row, first, n, logp, logq, logm);
        if (beta > 0.0)
            u->of_p += part_of_kl(logp, m, n);
        if (beta < 1.0)
            u->of_q += part_of_kl(logq, m, n);
    }
    return (float)(beta <= 0.0   ? u->of_q
                   : beta >= 1.0 ? u->of_p
                                 : beta * u->of_q + (1.0 - beta) * u->of_p);
}

CPU_INLINE void put_gradient(void *l, int64_t n, const float *g, float cap, int32_t dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float s = cap > 0.0f ? cpu_tanh(ld(l, i, dtype) / cap) : 0.0f;
        st(l, i, dtype, 0, g[i] * (1.0f - s * s));
    }
}

/* Sets the logits of a row from column `first` on to 0. */
static void clear_logits(const side_logits *of, int64_t row, int64_t first)
{
    memset(at_mut(of->data, row * of->stride + first, of->dtype), 0,
           (size_t)((of->stride - first) * lathe_dtype_bytes(of->dtype)));
}

/* Turns the row's logits into their gradient, times dy. */
static void gradient(const divergence_run *r, int64_t row, const sums *u, float dy)
{
    const double beta = r->k->attrs.beta, share = beta >= 1.0 ? 1.0 : 1.0 - beta;
    const float scale = (float)((double)dy / r->k->attrs.alpha * (beta <= 0.0 ? 1.0 : share));
    const float of_p = (float)u->of_p;
    const side_logits *own = &r->own;
    float logp[TILE], logq[TILE], logm[TILE];
    for (int64_t first = 0; first < r->s->v; first += TILE) {
        const int64_t n = tile_of(r, first);
        const float *m = tile(r, u, row, first, n, logp, logq, logm);
        void *l = at_mut(own->data, row * own->stride + first, own->dtype);
        for (int64_t i = 0; i < n; i++) {
            const float p = cpu_exp(logp[i]);
            logq[i] = beta <= 0.0 ? scale * (p - cpu_exp(logq[i]))
                      : p > 0.0f  ? scale * p * (logp[i] - m[i] - of_p)
                                  : 0.0f;
        }
        CPU_BY_DTYPE(own->dtype, put_gradient, l, n, logq, own->cap);
    }
    clear_logits(own, row, r->s->v);
}

/* ---- chunks ---- */

static void compute_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const divergence_run *r = arg;
    const divergence *s = r->s;
    float *out = r->a->out[0];
    const float *dy = s->backward ? r->a->in[5] : NULL;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        sums u;
        if (i >= r->chunk.count) { /* padding */
            clear_logits(&r->own, i, 0);
            continue;
        }
        const int64_t row = r->list[r->chunk.from + i];
        const float y = observe(r, i, &u);
        st(out, row, LATHE_F32, (r->a->accumulate & 1u) != 0, y);
        if (dy != NULL)
            gradient(r, i, &u, dy[row]);
    }
}

static lathe_status run_chunk(divergence_run *r)
{
    const divergence *s = r->s;
    LATHE_TRY(cpu_head_logits_forward(&s->own.head, &r->chunk));
    LATHE_TRY(cpu_head_logits_forward(&s->other.head, &r->chunk));
    r->k->host->parallel_for(s->rows, 1, compute_rows, r);
    return s->backward ? cpu_head_logits_backward(&s->own.head, &r->chunk) : LATHE_OK;
}

static side_logits logits_of(const side *of, char *scratch)
{
    side_logits out = {.cap = of->cap, .stride = of->head.v};
    out.data = cpu_head_logits_logits(&of->head, scratch, &out.dtype);
    return out;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    divergence *s = k->state;
    divergence_run r = {.k = k, .s = s, .a = a, .scratch = a->scratch};
    r.list = (int32_t *)(void *)(r.scratch + s->list_at);
    r.own = logits_of(&s->own, r.scratch);
    r.other = logits_of(&s->other, r.scratch);
    LATHE_TRY(list_rows(&r));
    for (int64_t from = 0; from < r.n_listed; from += s->rows) {
        const int64_t count = r.n_listed - from < s->rows ? r.n_listed - from : s->rows;
        r.chunk = (head_chunk){k, a, r.scratch, r.list, from, count};
        LATHE_TRY(run_chunk(&r));
    }
    if (r.n_listed == 0)
        cpu_head_logits_skip_all(&s->own.head, a);
    return LATHE_OK;
}

const kernel_op CPU_OP(HEAD_DIVERGENCE) = {prepare, run, release, 0};
const kernel_op CPU_OP(HEAD_DIVERGENCE_BWD) = {prepare, run, release, 63};
