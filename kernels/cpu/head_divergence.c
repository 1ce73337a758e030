/* HEAD_DIVERGENCE and its derivative. The logits of all rows are never in memory at once.
 *
 * Rows with a target are processed in chunks of `rows` (the last chunk is padded with zero rows);
 * rows without a target cost nothing. Two products give the logits of both models for a chunk; one
 * pass over each row gives the sums of exp, a second the divergence, a third turns the first
 * model's logits into their gradient, in place. Elements are computed in f32, 512 at a time, and
 * their sums added in double.
 *
 *   s = l/T or cap*tanh(l/cap)/T     p = softmax(s)  q = softmax of the other model's s
 *   beta 0   KL(q || p)              ds = p - q
 *   else     m = beta q + (1-beta) p, or q for beta 1
 *            beta KL(q || m) + (1-beta) KL(p || m), or KL(p || q)
 *            ds = (1-beta, or 1) p (log p - log m - KL(p || m))
 *
 *   scratch: | product | logits | other logits | x rows | other rows | dx rows f32 | row list |
 *            targets |
 */
#include <math.h>

#include "element.h"
#include "product.h"
#include "vecmath.h"

#define LOGITS_BYTES ((int64_t)128 << 20) /* of both models' logits, about */
#define MOST_ROWS 512                     /* of a chunk */
#define LEAST_ROWS 64
#define TILE 512 /* elements in f32 at a time */

/* One of the two models. */
typedef struct side {
    int64_t c;
    int32_t dtype;
    float cap;
    cpu_product *logits;
    int64_t logits_at, x_at; /* offsets in scratch */
} side;

typedef struct divergence {
    int64_t n, v, rows;
    int32_t backward;
    side own, other;
    cpu_product *dx, *dw;
    int64_t dx_at, list_at;
} divergence;

typedef struct divergence_run {
    lathe_kernel *k;
    divergence *s;
    const lathe_kernel_args *a;
    char *scratch;
    int32_t *list; /* rows that have a target, in order */
    int64_t n_listed;
    int64_t from, count; /* the chunk's part of the list */
} divergence_run;

static void release(lathe_kernel *k)
{
    divergence *s = k->state;
    cpu_product_destroy(k->device, s->own.logits);
    cpu_product_destroy(k->device, s->other.logits);
    cpu_product_destroy(k->device, s->dx);
    cpu_product_destroy(k->device, s->dw);
    k->host->free(s);
}

static int64_t choose_rows(const lathe_kernel *k, const divergence *s)
{
    int64_t rows = k->attrs.chunk_rows;
    if (rows < 1) {
        const int64_t each =
            s->v * (lathe_dtype_bytes(s->own.dtype) + lathe_dtype_bytes(s->other.dtype));
        rows = each > 0 ? LOGITS_BYTES / each / 64 * 64 : MOST_ROWS;
        rows = rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
    }
    if (rows > s->n)
        rows = s->n;
    const int64_t chunks = (s->n + rows - 1) / rows;
    return (s->n + chunks - 1) / chunks; /* chunks of equal size need little padding */
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static lathe_status make_logits(lathe_kernel *k, const divergence *s, side *of, int64_t *io_scratch)
{
    int64_t bytes = 0;
    const matmul_spec logits = {.m = s->rows,
                                .n = s->v,
                                .k = of->c,
                                .a_dtype = of->dtype,
                                .b_dtype = of->dtype,
                                .c_dtype = of->dtype,
                                .trans_b = 1,
                                .may_overwrite = 1,
                                .alpha = 1.0};
    LATHE_TRY(cpu_product_create(k->device, &logits, &of->logits, &bytes));
    *io_scratch = most(*io_scratch, bytes);
    return LATHE_OK;
}

static lathe_status make_gradients(lathe_kernel *k, divergence *s, int64_t *io_scratch)
{
    int64_t bytes[2] = {0, 0};
    const matmul_spec dx = {.m = s->rows,
                            .n = s->own.c,
                            .k = s->v,
                            .a_dtype = s->own.dtype,
                            .b_dtype = s->own.dtype,
                            .c_dtype = LATHE_F32,
                            .may_overwrite = 1,
                            .alpha = 1.0};
    const matmul_spec dw = {.m = s->v,
                            .n = s->own.c,
                            .k = s->rows,
                            .a_dtype = s->own.dtype,
                            .b_dtype = s->own.dtype,
                            .c_dtype = LATHE_F32,
                            .trans_a = 1,
                            .may_overwrite = 1,
                            .may_accumulate = 1,
                            .alpha = 1.0};
    if (s->backward && kernel_has_out(k, 1))
        LATHE_TRY(cpu_product_create(k->device, &dx, &s->dx, &bytes[0]));
    if (s->backward && kernel_has_out(k, 2))
        LATHE_TRY(cpu_product_create(k->device, &dw, &s->dw, &bytes[1]));
    *io_scratch = most(*io_scratch, most(bytes[0], bytes[1]));
    return LATHE_OK;
}

static int64_t carve(int64_t *io_at, int64_t bytes)
{
    const int64_t at_byte = cpu_round_up(*io_at, 64);
    *io_at = at_byte + bytes;
    return at_byte;
}

static void lay_out(divergence *s, side *of, int64_t *io_at)
{
    const int64_t element = lathe_dtype_bytes(of->dtype);
    of->logits_at = carve(io_at, s->rows * s->v * element);
    of->x_at = carve(io_at, s->rows * of->c * element);
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    divergence *s = k->host->alloc((int64_t)sizeof *s);
    if (s == NULL)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    *s = (divergence){.n = lathe_desc_count(&k->in[4]),
                      .v = k->in[1].dims[0],
                      .backward = k->op_id == LATHE_OP_HEAD_DIVERGENCE_BWD,
                      .own = {k->in[1].dims[1], k->in[0].dtype, k->attrs.softcap, NULL, 0, 0},
                      .other = {k->in[3].dims[1], k->in[2].dtype, k->attrs.scale, NULL, 0, 0}};
    s->rows = choose_rows(k, s);
    int64_t end = 0;
    LATHE_TRY(make_logits(k, s, &s->own, &end));
    LATHE_TRY(make_logits(k, s, &s->other, &end));
    LATHE_TRY(make_gradients(k, s, &end));
    lay_out(s, &s->own, &end);
    lay_out(s, &s->other, &end);
    s->dx_at = carve(&end, s->dx != NULL ? s->rows * s->own.c * 4 : 0);
    s->list_at = carve(&end, s->n * 4);
    *out_scratch = end;
    return LATHE_OK;
}

/* Lists the rows with a target. The others get 0 and, unless dx is added to, dx 0. */
static lathe_status list_rows(divergence_run *r)
{
    const divergence *s = r->s;
    const int32_t *targets = r->a->in[4];
    float *out = r->a->out[0];
    const size_t row_bytes = (size_t)(s->own.c * lathe_dtype_bytes(s->own.dtype));
    for (int64_t i = 0; i < s->n; i++) {
        if (targets[i] < -1 || targets[i] >= s->v)
            return lathe_fail(r->k->host, LATHE_E_ARG,
                              "%s: target %d of row %lld is outside the vocabulary of %lld",
                              kernel_op_name(r->k), (int)targets[i], (long long)i, (long long)s->v);
        if (targets[i] >= 0) {
            r->list[r->n_listed++] = (int32_t)i;
            continue;
        }
        if (!(r->a->accumulate & 1u))
            out[i] = 0.0f;
        if (s->dx != NULL && !(r->a->accumulate & 2u))
            memset(at_mut(r->a->out[1], i * s->own.c, s->own.dtype), 0, row_bytes);
    }
    return LATHE_OK;
}

/* The chunk's rows of x, gathered and padded. */
static const void *gather(const divergence_run *r, const side *of, const void *x)
{
    const int64_t row_bytes = of->c * lathe_dtype_bytes(of->dtype);
    char *to = r->scratch + of->x_at;
    for (int64_t i = 0; i < r->count; i++)
        memcpy(to + i * row_bytes, (const char *)x + r->list[r->from + i] * row_bytes,
               (size_t)row_bytes);
    memset(to + r->count * row_bytes, 0, (size_t)((r->s->rows - r->count) * row_bytes));
    return to;
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
static void load(const divergence_run *r, const side *of, int64_t row, int64_t first, int64_t n,
                 float *out)
{
    const void *l = at(r->scratch + of->logits_at, row * r->s->v + first, of->dtype);
    const float scale = (float)(1.0 / r->k->attrs.alpha);
    CPU_BY_DTYPE(of->dtype, load_scaled, l, n, of->cap, scale, out);
}

static int64_t tile_of(const divergence_run *r, int64_t first)
{
    return r->s->v - first < TILE ? r->s->v - first : TILE;
}

/* Log of the sum of exp(s) over the vocabulary. */
static double log_sum(const divergence_run *r, const side *of, int64_t row)
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
    load(r, &r->s->own, row, first, n, logp);
    load(r, &r->s->other, row, first, n, logq);
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
    *u = (sums){.lse = (float)log_sum(r, &r->s->own, row),
                .other_lse = (float)log_sum(r, &r->s->other, row)};
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

/* Turns the row's logits into their gradient, times dy. */
static void gradient(const divergence_run *r, int64_t row, const sums *u, float dy)
{
    const double beta = r->k->attrs.beta, share = beta >= 1.0 ? 1.0 : 1.0 - beta;
    const float scale = (float)((double)dy / r->k->attrs.alpha * (beta <= 0.0 ? 1.0 : share));
    const float of_p = (float)u->of_p;
    const side *own = &r->s->own;
    float logp[TILE], logq[TILE], logm[TILE];
    for (int64_t first = 0; first < r->s->v; first += TILE) {
        const int64_t n = tile_of(r, first);
        const float *m = tile(r, u, row, first, n, logp, logq, logm);
        void *l = at_mut(r->scratch + own->logits_at, row * r->s->v + first, own->dtype);
        for (int64_t i = 0; i < n; i++) {
            const float p = cpu_exp(logp[i]);
            logq[i] = beta <= 0.0 ? scale * (p - cpu_exp(logq[i]))
                      : p > 0.0f  ? scale * p * (logp[i] - m[i] - of_p)
                                  : 0.0f;
        }
        CPU_BY_DTYPE(own->dtype, put_gradient, l, n, logq, own->cap);
    }
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
        if (i >= r->count) { /* padding */
            memset(at_mut(r->scratch + s->own.logits_at, i * s->v, s->own.dtype), 0,
                   (size_t)(s->v * lathe_dtype_bytes(s->own.dtype)));
            continue;
        }
        const int64_t row = r->list[r->from + i];
        const float y = observe(r, i, &u);
        st(out, row, LATHE_F32, (r->a->accumulate & 1u) != 0, y);
        if (dy != NULL)
            gradient(r, i, &u, dy[row]);
    }
}

static lathe_status run_chunk(divergence_run *r)
{
    divergence *s = r->s;
    const lathe_kernel_args *a = r->a;
    cpu_device *device = r->k->device;
    void *logits = r->scratch + s->own.logits_at;
    float *dx = (float *)(void *)(r->scratch + s->dx_at);
    const void *x = gather(r, &s->own, a->in[0]), *y = gather(r, &s->other, a->in[2]);
    LATHE_TRY(cpu_product_run(device, s->own.logits, x, a->in[1], NULL, logits, r->scratch, 0));
    LATHE_TRY(cpu_product_run(device, s->other.logits, y, a->in[3], NULL,
                              r->scratch + s->other.logits_at, r->scratch, 0));
    device->host->parallel_for(s->rows, 1, compute_rows, r);
    if (s->dx != NULL)
        LATHE_TRY(cpu_product_run(device, s->dx, logits, a->in[1], NULL, dx, r->scratch, 0));
    for (int64_t i = 0; s->dx != NULL && i < r->count; i++)
        cpu_convert(device->host, at_mut(a->out[1], r->list[r->from + i] * s->own.c, s->own.dtype),
                    s->own.dtype, dx + i * s->own.c, LATHE_F32, s->own.c,
                    (a->accumulate & 2u) != 0);
    if (s->dw != NULL)
        LATHE_TRY(cpu_product_run(device, s->dw, logits, x, NULL, a->out[2], r->scratch,
                                  r->from > 0 || (a->accumulate & 4u) != 0));
    return LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    divergence *s = k->state;
    divergence_run r = {.k = k, .s = s, .a = a, .scratch = a->scratch};
    r.list = (int32_t *)(void *)(r.scratch + s->list_at);
    LATHE_TRY(list_rows(&r));
    for (r.from = 0; r.from < r.n_listed; r.from += s->rows) {
        r.count = r.n_listed - r.from < s->rows ? r.n_listed - r.from : s->rows;
        LATHE_TRY(run_chunk(&r));
    }
    if (r.n_listed == 0 && s->dw != NULL && !(a->accumulate & 4u))
        memset(a->out[2], 0, (size_t)(s->v * s->own.c) * sizeof(float));
    return LATHE_OK;
}

const kernel_op CPU_OP(HEAD_DIVERGENCE) = {prepare, run, release, 0};
const kernel_op CPU_OP(HEAD_DIVERGENCE_BWD) = {prepare, run, release, 7};
