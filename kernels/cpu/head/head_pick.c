/* HEAD_PICK and its derivative. The logits of all rows are never in memory at once.
 *
 * Rows that pick a token are processed in chunks of `rows` (the last chunk is padded with zero
 * rows); other rows cost nothing. Products give the logits of a chunk (head_logits.h); passes over
 * each row give the maximum, the sums of exp, and the gradient in place of the logits. Elements are
 * computed in f32, 512 at a time, and their sums added in double. A row's ids are sorted first, so
 * that a tile finds its own, and the sum over the other tokens has no subtraction.
 *
 *   l = (x W^T + u v^T) * s
 *   s = l/T or cap*tanh(l/cap)/T     P: the tokens that the row picks; R: the others
 *   y[j] = s[id j] - lse, lse over P and R (beta 1: over P)     y[K] = log sum over R - lse
 *   ds[v] = sum of dy[j] with id j = v - (sum of dy) p[v] + (v in R: dy[K] p[v] / sum of p over R)
 *
 *   scratch: | product | head_logits | row list | sorted ids of each row |
 */
#include <float.h>
#include <math.h>

#include "base/element.h"
#include "base/vecmath.h"
#include "head/head_logits.h"

#define LOGITS_BYTES ((int64_t)128 << 20) /* about */
#define MOST_ROWS 512                     /* of a chunk */
#define LEAST_ROWS 64
#define TILE 512 /* elements in f32 at a time */

typedef struct pick {
    int64_t n, v, k, columns;
    int32_t backward, has_rest;
    head_logits head;
    int64_t list_at, order_at; /* offsets in scratch */
} pick;

typedef struct pick_run {
    lathe_kernel *k;
    pick *s;
    const lathe_kernel_args *a;
    char *scratch;
    int32_t *list; /* rows that pick a token, in order */
    int64_t n_listed;
    head_chunk chunk;
    void *logits; /* of the chunk */
    int32_t dtype;
} pick_run;

static void release(lathe_kernel *k)
{
    pick *s = k->state;
    cpu_head_logits_fini(k->device, &s->head);
    k->host->free(s);
}

static int64_t choose_rows(const lathe_kernel *k, const pick *s)
{
    int64_t rows = k->attrs.chunk_rows;
    if (rows < 1) {
        /* dtype was checked. NOLINTNEXTLINE(clang-analyzer-core.DivideZero) */
        rows = LOGITS_BYTES / cpu_head_logits_row_bytes(&s->head) / 64 * 64;
        rows = rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
    }
    if (rows > s->n)
        rows = s->n;
    const int64_t chunks = (s->n + rows - 1) / rows;
    return (s->n + chunks - 1) / chunks; /* chunks of equal size need little padding */
}

static int64_t carve(int64_t *io_at, int64_t bytes)
{
    const int64_t at_byte = cpu_round_up(*io_at, 64);
    *io_at = at_byte + bytes;
    return at_byte;
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    pick *s = k->host->alloc((int64_t)sizeof *s);
    if (s == NULL)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    *s = (pick){.n = k->in[2].dims[0],
                .v = k->in[1].dims[0],
                .k = k->in[2].dims[1],
                .backward = k->op_id == LATHE_OP_HEAD_PICK_BWD,
                .has_rest = k->attrs.beta <= 0.0};
    s->columns = s->k + s->has_rest;
    cpu_head_logits_find(k, &s->head, 0, s->backward ? 4 : 3, s->backward);
    s->head.rows = choose_rows(k, s);
    int64_t end = 0;
    LATHE_TRY(cpu_head_logits_products(k, &s->head, &end));
    cpu_head_logits_lay_out(&s->head, &end);
    s->list_at = carve(&end, s->n * 4);
    s->order_at = carve(&end, s->head.rows * s->k * 4);
    *out_scratch = end;
    return LATHE_OK;
}

/* Whether row i picks a token; LATHE_E_ARG: an id is outside the vocabulary. */
static lathe_status check_row(const pick_run *r, int64_t i, int *out_picks)
{
    const pick *s = r->s;
    const int32_t *ids = (const int32_t *)r->a->in[2] + i * s->k;
    *out_picks = 0;
    for (int64_t j = 0; j < s->k; j++) {
        if (ids[j] < -1 || ids[j] >= s->v)
            return lathe_fail(r->k->host, LATHE_E_ARG,
                              "%s: id %d of row %lld is outside the vocabulary of %lld",
                              kernel_op_name(r->k), (int)ids[j], (long long)i, (long long)s->v);
        *out_picks |= ids[j] >= 0;
    }
    return LATHE_OK;
}

/* Lists the rows that pick a token. The others get 0, and gradients of 0 unless these are added to.
 */
static lathe_status list_rows(pick_run *r)
{
    const pick *s = r->s;
    for (int64_t i = 0; i < s->n; i++) {
        int picks = 0;
        LATHE_TRY(check_row(r, i, &picks));
        if (picks) {
            r->list[r->n_listed++] = (int32_t)i;
            continue;
        }
        if (!(r->a->accumulate & 1u))
            memset((float *)r->a->out[0] + i * s->columns, 0, (size_t)s->columns * sizeof(float));
        cpu_head_logits_skip_row(&s->head, r->a, i);
    }
    return LATHE_OK;
}

/* ---- one row ---- */

/* A row of the chunk: its ids, and the places of those that are not -1, sorted by id. */
typedef struct picked_row {
    int64_t row; /* in the chunk */
    const int32_t *ids;
    int32_t *order;
    int64_t n;
    float shift, lse; /* the largest s; log of the sum of exp(s) */
    float rest;       /* y[K] */
    int is_low;       /* y[K] is at its lowest value and has no gradient */
} picked_row;

static int is_after(const picked_row *p, int32_t a, int32_t b)
{
    return p->ids[a] != p->ids[b] ? p->ids[a] > p->ids[b] : a > b;
}

/* Restores the heap of order[0, n) below place i. */
static void sift(const picked_row *p, int64_t i, int64_t n)
{
    for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        child += child + 1 < n && is_after(p, p->order[child + 1], p->order[child]);
        if (!is_after(p, p->order[child], p->order[i]))
            return;
        const int32_t at_i = p->order[i];
        p->order[i] = p->order[child];
        p->order[child] = at_i;
        i = child;
    }
}

/* Sorts the ids by heapsort, because K may be the whole vocabulary. */
static void sort_ids(picked_row *p, int64_t k)
{
    p->n = 0;
    for (int64_t j = 0; j < k; j++)
        if (p->ids[j] >= 0)
            p->order[p->n++] = (int32_t)j;
    for (int64_t i = p->n / 2; i-- > 0;)
        sift(p, i, p->n);
    for (int64_t end = p->n; end-- > 1;) {
        const int32_t last = p->order[end];
        p->order[end] = p->order[0];
        p->order[0] = last;
        sift(p, 0, end);
    }
}

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

/* Scaled logits first .. first + n - 1 of a row. */
static void load(const pick_run *r, int64_t row, int64_t first, int64_t n, float *out)
{
    const pick *s = r->s;
    const void *l = at(r->logits, row * s->v + first, r->dtype);
    const float scale = (float)(1.0 / r->k->attrs.alpha);
    CPU_BY_DTYPE(r->dtype, load_scaled, l, n, r->k->attrs.softcap, scale, out);
}

static float load_one(const pick_run *r, const picked_row *p, int64_t j)
{
    float s;
    load(r, p->row, p->ids[p->order[j]], 1, &s);
    return s;
}

static int64_t tile_of(const pick_run *r, int64_t first)
{
    return r->s->v - first < TILE ? r->s->v - first : TILE;
}

/* Largest s of the row; of its picked tokens, if only these count. */
static float largest(const pick_run *r, const picked_row *p)
{
    float s[TILE], top = -INFINITY;
    for (int64_t j = 0; !r->s->has_rest && j < p->n; j++) {
        const float x = load_one(r, p, j);
        top = x > top ? x : top;
    }
    for (int64_t first = 0; r->s->has_rest && first < r->s->v; first += TILE) {
        const int64_t n = tile_of(r, first);
        load(r, p->row, first, n, s);
        for (int64_t i = 0; i < n; i++)
            top = s[i] > top ? s[i] : top;
    }
    return top > -INFINITY ? top : 0.0f;
}

/* Sum of exp(s - shift) over the tokens that the row does not pick. */
static double sum_rest(const pick_run *r, const picked_row *p)
{
    float s[TILE];
    double sum = 0.0;
    int64_t j = 0; /* the next of the sorted ids */
    for (int64_t first = 0; first < r->s->v; first += TILE) {
        const int64_t n = tile_of(r, first);
        float part = 0.0f;
        load(r, p->row, first, n, s);
        for (; j < p->n && p->ids[p->order[j]] < first + n; j++)
            s[p->ids[p->order[j]] - first] = -INFINITY;
#pragma omp simd reduction(+ : part)
        for (int64_t i = 0; i < n; i++)
            part += cpu_exp(s[i] - p->shift);
        sum += (double)part;
    }
    return sum;
}

/* Sum of exp(s - shift) over the picked tokens, each once. */
static double sum_picked(const pick_run *r, const picked_row *p)
{
    double sum = 0.0;
    for (int64_t j = 0; j < p->n; j++)
        if (j == 0 || p->ids[p->order[j]] != p->ids[p->order[j - 1]])
            sum += (double)cpu_exp(load_one(r, p, j) - p->shift);
    return sum;
}

/* Computes the row's sums and its y. */
static void observe(const pick_run *r, picked_row *p, float *y)
{
    const pick *s = r->s;
    const int adds = (r->a->accumulate & 1u) != 0;
    p->shift = largest(r, p);
    const double rest = s->has_rest ? sum_rest(r, p) : 0.0, sum = rest + sum_picked(r, p);
    const double lse = (double)p->shift + log(sum);
    p->lse = (float)lse;
    for (int64_t j = 0; !adds && j < s->k; j++)
        y[j] = 0.0f; /* of the ids -1 */
    for (int64_t j = 0; j < p->n; j++)
        st(y, p->order[j], LATHE_F32, adds, (float)((double)load_one(r, p, j) - lse));
    if (!s->has_rest)
        return;
    p->is_low = rest < sum * (double)FLT_MIN; /* false if the sums are NaN */
    p->rest = p->is_low ? logf(FLT_MIN) : (float)log(rest / sum);
    st(y, s->k, LATHE_F32, adds, p->rest);
}

CPU_INLINE void put_gradient(void *l, int64_t n, const float *g, float cap, int32_t dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float s = cap > 0.0f ? cpu_tanh(ld(l, i, dtype) / cap) : 0.0f;
        st(l, i, dtype, 0, g[i] * (1.0f - s * s));
    }
}

/* Turns the row's logits into their gradient. */
static void gradient(const pick_run *r, const picked_row *p, const float *dy)
{
    const pick *s = r->s;
    const float scale = (float)(1.0 / r->k->attrs.alpha);
    float g[TILE], logits[TILE];
    double sum = 0.0;
    for (int64_t j = 0; j < p->n; j++)
        sum += (double)dy[p->order[j]];
    const float of_rest = s->has_rest && !p->is_low ? dy[s->k] : 0.0f;
    const float all = (float)(sum + (double)of_rest);
    /* of a token that is not picked: p[v] times this, unless that is beyond f32 */
    const float other =
        scale * (s->has_rest ? (p->is_low ? 0.0f : of_rest / cpu_exp(p->rest)) - all : 0.0f);
    const int is_small = fabsf(other) <= FLT_MAX;
    int64_t j = 0;
    for (int64_t first = 0; first < s->v; first += TILE) {
        const int64_t n = tile_of(r, first);
        load(r, p->row, first, n, logits);
        for (int64_t i = 0; i < n && is_small; i++)
            g[i] = other * cpu_exp(logits[i] - p->lse);
        for (int64_t i = 0; i < n && !is_small; i++)
            g[i] = scale * (of_rest * cpu_exp(logits[i] - p->lse - p->rest) -
                            all * cpu_exp(logits[i] - p->lse));
        for (; j < p->n && p->ids[p->order[j]] < first + n; j++) {
            const int64_t i = p->ids[p->order[j]] - first;
            if (j == 0 || p->ids[p->order[j]] != p->ids[p->order[j - 1]])
                g[i] = -scale * all * cpu_exp(logits[i] - p->lse);
            g[i] += scale * dy[p->order[j]];
        }
        void *l = at_mut(r->logits, p->row * s->v + first, r->dtype);
        CPU_BY_DTYPE(r->dtype, put_gradient, l, n, g, r->k->attrs.softcap);
    }
}

/* ---- chunks ---- */

static void compute_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const pick_run *r = arg;
    const pick *s = r->s;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        if (i >= r->chunk.count) { /* padding */
            memset(at_mut(r->logits, i * s->v, r->dtype), 0,
                   (size_t)(s->v * lathe_dtype_bytes(r->dtype)));
            continue;
        }
        const int64_t row = r->list[r->chunk.from + i];
        picked_row p = {.row = i,
                        .ids = (const int32_t *)r->a->in[2] + row * s->k,
                        .order = (int32_t *)(void *)(r->scratch + s->order_at) + i * s->k};
        sort_ids(&p, s->k);
        observe(r, &p, (float *)r->a->out[0] + row * s->columns);
        if (s->backward)
            gradient(r, &p, (const float *)r->a->in[3] + row * s->columns);
    }
}

static lathe_status run_chunk(pick_run *r)
{
    const head_logits *head = &r->s->head;
    LATHE_TRY(cpu_head_logits_forward(head, &r->chunk));
    r->k->host->parallel_for(head->rows, 1, compute_rows, r);
    return r->s->backward ? cpu_head_logits_backward(head, &r->chunk) : LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    pick *s = k->state;
    const int64_t rows = s->head.rows;
    pick_run r = {.k = k, .s = s, .a = a, .scratch = a->scratch};
    r.list = (int32_t *)(void *)(r.scratch + s->list_at);
    r.logits = cpu_head_logits_logits(&s->head, r.scratch, &r.dtype);
    LATHE_TRY(list_rows(&r));
    for (int64_t from = 0; from < r.n_listed; from += rows) {
        const int64_t count = r.n_listed - from < rows ? r.n_listed - from : rows;
        r.chunk = (head_chunk){k, a, r.scratch, r.list, from, count};
        LATHE_TRY(run_chunk(&r));
    }
    if (r.n_listed == 0)
        cpu_head_logits_skip_all(&s->head, a);
    return LATHE_OK;
}

const kernel_op CPU_OP(HEAD_PICK) = {prepare, run, release, 0};
const kernel_op CPU_OP(HEAD_PICK_BWD) = {prepare, run, release, 63};
