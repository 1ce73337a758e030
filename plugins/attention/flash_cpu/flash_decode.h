/* The forward for few queries and many keys: each key and value is read once, directly from the
 * tensor, for all query heads that share it.
 *
 * A work item is (batch row, run of DECODE_RUN keys, key head). If there are enough runs for all
 * workers, a worker takes all heads of a run, so that memory is read in order. Each item writes m,
 * l and o of its keys for every query; a second pass merges them in order.
 */
#ifndef LATHE_ATTENTION_FLASH_DECODE_H
#define LATHE_ATTENTION_FLASH_DECODE_H

#include "flash_tiles.h"

#define DECODE_QUERIES 4 /* up to this number, packing keys costs as much as using them */
#define DECODE_RUN 128

/* Memory of one worker; R = query heads per key head * t_q. */
typedef struct decode_work {
    float *q;   /* [kv heads][R][wide] */
    float *k;   /* [VL][wide]  k of VL keys, then v */
    float *dot; /* [VL][VL]   partial dot products */
} decode_work;

typedef struct decode_job {
    const flash_call *c;
    extent x, y;  /* of q and k; of v and o */
    int64_t wide; /* floats from one row to the next: the wider one's */
    int64_t runs, queries, n_parts;
    int64_t all_queries; /* queries of all heads of a batch row */
    float *o;            /* [batch][kv heads][runs][R][wide] */
    float *sum;          /* [batch][kv heads][runs][R][2]: m, l; l = 0: saw no key */
    char *workers;
    int64_t worker_bytes;
} decode_job;

INLINE int decodes(const lathe_attention_problem *p)
{
    return p->t_q <= DECODE_QUERIES && !p->need_backward;
}

static int64_t decode_work_init(decode_work *w, const decode_job *j, char *base)
{
    pieces m = {base, 0};
    const int64_t f = (int64_t)sizeof(float);
    w->q = take(&m, j->all_queries * j->wide * f);
    w->k = take(&m, VL * j->wide * f);
    w->dot = take(&m, VL * VL * f);
    return m.at;
}

static int64_t decode_job_init(decode_job *j, const lathe_attention_problem *p, int32_t workers,
                               char *base)
{
    decode_work w;
    pieces m = {base, 0};
    j->x = extent_of(p->head_dim);
    j->y = extent_of(lathe_attention_value_dim(p));
    j->wide = j->x.wide > j->y.wide ? j->x.wide : j->y.wide;
    j->runs = tiles_of(p->t_k, DECODE_RUN);
    j->queries = p->n_heads / p->n_kv_heads * p->t_q;
    j->all_queries = p->n_heads * p->t_q;
    j->n_parts = p->batch * p->n_kv_heads * j->runs;
    j->o = take(&m, j->n_parts * j->queries * j->wide * (int64_t)sizeof(float));
    j->sum = take(&m, j->n_parts * j->queries * 2 * (int64_t)sizeof(float));
    j->worker_bytes = decode_work_init(&w, j, NULL);
    j->workers = take(&m, j->worker_bytes * workers);
    return m.at;
}

static int64_t decode_scratch(const lathe_attention_problem *p, int32_t workers)
{
    decode_job j;
    return decode_job_init(&j, p, workers, NULL);
}

/* Index of the first part of a key head; the parts of its runs follow. */
INLINE int64_t part_of(const decode_job *j, int64_t b, int64_t hk)
{
    return (b * j->c->p->n_kv_heads + hk) * j->runs;
}

/* Loads rows of a head of size x as f32; zeros after D and after `count`. */
static void load_rows(float *dst, const decode_job *j, const extent *x, const void *src, int64_t at,
                      int64_t stride, int64_t count, int64_t rows)
{
    for (int64_t t = 0; t < count; t++) {
        load_values(dst + t * j->wide, src, at + t * stride, x->d, j->c->p->dtype);
        for (int64_t d = x->d; d < j->wide; d++)
            dst[t * j->wide + d] = 0.0f;
    }
    memset(dst + count * j->wide, 0, (size_t)((rows - count) * j->wide) * sizeof(float));
}

/* Loads keys (or values) first .. first+count-1 of head hk of row b, with zeros up to VL rows. */
static void load_keys(float *dst, const decode_job *j, const extent *x, const void *src,
                      int64_t stride, int64_t b, int64_t hk, int64_t first, int64_t count)
{
    for (int64_t t = 0; t < count; t++) {
        const int64_t at = lathe_attention_key(j->c->p, j->c->a->kv_len, b, first + t);
        load_rows(dst + t * j->wide, j, x, src, at * stride + hk * x->d, stride, 1, 1);
    }
    memset(dst + count * j->wide, 0, (size_t)((VL - count) * j->wide) * sizeof(float));
}

/* Prefetches `count` rows of a head: rows of one head are too far apart for the hardware
 * prefetcher. */
static void ask_for_keys(const decode_job *j, const extent *x, const void *src, int64_t stride,
                         int64_t b, int64_t hk, int64_t first, int64_t count)
{
    const int64_t bytes = lathe_dtype_bytes(j->c->p->dtype);
    for (int64_t t = 0; t < count; t++) {
        const int64_t at = lathe_attention_key(j->c->p, j->c->a->kv_len, b, first + t);
        for (int64_t i = 0; i < x->d * bytes; i += 64)
            __builtin_prefetch((const char *)src + (at * stride + hk * x->d) * bytes + i);
    }
}

/* Computes q . k for VL keys; n: D rounded up. */
INLINE vf dots(const decode_work *w, const float *q, int64_t n, int64_t wide)
{
    vu block[VL];
    for (int i = 0; i < VL; i++) {
        vf acc = vset(0.0f);
        for (int64_t d = 0; d < n; d += VL)
            acc = vfma(vload(q + d), vload(w->k + i * wide + d), acc);
        block[i] = (vu)acc;
    }
    vtranspose(block);
    vf sum = (vf)block[0];
    for (int i = 1; i < VL; i++)
        sum += (vf)block[i];
    return sum;
}

/* Scores the VL keys in w->k against every query r: writes the probabilities to w->dot from row 0
 * on, and updates m and l. */
INLINE void decode_scores(const decode_job *j, const decode_work *w, const float *q, float *o,
                          float *sum, float *prob, span seen, const scoring *how)
{
    const vi inside = vinside(0, seen.lo, seen.hi);
    vf t = dots(w, q, j->x.wide, j->wide);
    t = how->capped ? how->cap * vtanh(t * how->inner) : t * how->factor;
    if (how->alibi)
        t += bias_of(how, 0);
    t = vselect(inside, t, vset(-1e30f));
    const float peak = vmost(t);
    if (peak > sum[0]) {
        const vf shrink = vexp2(vset(sum[0] - peak));
        sum[0] = peak;
        sum[1] *= shrink[0];
        for (int64_t d = 0; d < j->y.wide; d += VL)
            vstore(o + d, vload(o + d) * shrink);
    }
    t = vselect(inside, vexp2(t - vset(sum[0])), vset(0.0f));
    sum[1] += vsum(t);
    vstore(prob, t);
}

/* Processes keys first .. first+count-1 (at most VL) of head hk of row b, for all queries that
 * share it. */
static void decode_keys(const decode_job *j, const decode_work *w, const float *q, float *o,
                        float *sum, int64_t b, int64_t hk, int64_t first, int64_t count)
{
    const lathe_attention_problem *p = j->c->p;
    const int64_t head = hk * (p->n_heads / p->n_kv_heads);
    scoring how = scoring_of(p);
    const int64_t after = least(VL, length_of(j->c, b) - first - VL);
    ask_for_keys(j, &j->y, j->c->a->v, p->v_stride, b, hk, first, count);
    ask_for_keys(j, &j->x, j->c->a->k, p->k_stride, b, hk, first + VL, after);
    /* only VL queries at a time have their probabilities in w->dot */
    for (int64_t base = 0; base < j->queries; base += VL) {
        const int64_t n = least(VL, j->queries - base);
        load_keys(w->k, j, &j->x, j->c->a->k, p->k_stride, b, hk, first, count);
        for (int64_t r = base; r < base + n; r++) {
            span seen = range_of(j->c, b, r % p->t_q);
            seen.lo = seen.lo > first ? seen.lo - (int32_t)first : 0;
            seen.hi = (int32_t)least(seen.hi - first, count);
            if (how.alibi)
                aim_row(&how, j->c, head + r / p->t_q, place_of(j->c, b, r % p->t_q), first);
            decode_scores(j, w, q + r * j->wide, o + r * j->wide, sum + 2 * r,
                          w->dot + (r - base) * VL, seen, &how);
        }
        load_keys(w->k, j, &j->y, j->c->a->v, p->v_stride, b, hk, first, count);
        for (int64_t r = base; r < base + n; r++)
            for (int64_t d = 0; d < j->y.wide; d += VL) {
                vf acc = vload(o + r * j->wide + d);
                for (int i = 0; i < VL; i++)
                    acc =
                        vfma(vset(w->dot[(r - base) * VL + i]), vload(w->k + i * j->wide + d), acc);
                vstore(o + r * j->wide + d, acc);
            }
    }
}

/* Processes heads [from, to) of a run of keys: run i, counted over all batch rows. */
static void decode_heads(const decode_job *j, const decode_work *w, int64_t i, int64_t from,
                         int64_t to)
{
    const lathe_attention_problem *p = j->c->p;
    const int64_t b = i / j->runs, first = i % j->runs * DECODE_RUN;
    const int64_t head = j->queries * j->wide; /* floats of one key head's queries */
    const int64_t group = p->n_heads / p->n_kv_heads;
    span whole = {0, 0};
    for (int64_t t = 0; t < p->t_q; t++)
        whole = join(whole, range_of(j->c, b, t));
    const int64_t lo = first > whole.lo ? first : whole.lo;
    const int64_t hi = least(whole.hi, first + DECODE_RUN);
    for (int64_t h = from * group; lo < hi && h < to * group; h++)
        load_rows(w->q + h * p->t_q * j->wide, j, &j->x, j->c->a->q,
                  b * p->t_q * p->q_stride + h * j->x.d, p->q_stride, p->t_q, p->t_q);
    for (int64_t hk = from; hk < to; hk++) {
        const int64_t part = part_of(j, b, hk) + i % j->runs;
        memset(j->o + part * head, 0, (size_t)head * sizeof(float));
        for (int64_t r = 0; r < j->queries; r++) {
            j->sum[2 * (part * j->queries + r)] = -1e30f;
            j->sum[2 * (part * j->queries + r) + 1] = 0.0f;
        }
    }
    for (int64_t k = lo; k < hi; k += VL)
        for (int64_t hk = from; hk < to; hk++) {
            const int64_t part = part_of(j, b, hk) + i % j->runs;
            decode_keys(j, w, w->q + hk * head, j->o + part * head, j->sum + part * j->queries * 2,
                        b, hk, k, least(VL, hi - k));
        }
}

static void decode_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const decode_job *j = arg;
    const int64_t heads = j->c->p->n_kv_heads;
    decode_work w;
    (void)decode_work_init(&w, j, j->workers + worker * j->worker_bytes);
    for (int64_t i = begin; i < end;) {
        const int64_t run = i / heads, from = i % heads;
        const int64_t to = least(heads, from + end - i);
        decode_heads(j, &w, run, from, to);
        i += to - from;
    }
}

/* Merges the runs of each (batch row, query head, query) into the memory of the first part. */
static void merge_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const decode_job *j = arg;
    const lathe_attention_problem *p = j->c->p;
    const int64_t group = p->n_heads / p->n_kv_heads;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / (p->n_heads * p->t_q), h = i / p->t_q % p->n_heads, t = i % p->t_q;
        const int64_t part = part_of(j, b, h / group);
        const int64_t row = part * j->queries + h % group * p->t_q + t;
        float m = -1e30f, l = 0.0f;
        for (int64_t k = 0; k < j->runs; k++)
            m = fmaxf(m, j->sum[2 * (row + k * j->queries)]);
        float *o = j->o + row * j->wide;
        for (int64_t k = 0; k < j->runs; k++) {
            const float *s = j->sum + 2 * (row + k * j->queries);
            const vf factor = s[1] > 0.0f ? vexp2(vset(s[0] - m)) : vset(0.0f);
            const float *from = o + k * j->queries * j->wide;
            l += s[1] * factor[0];
            for (int64_t d = 0; d < j->y.wide; d += VL)
                vstore(o + d, vfma(vload(from + d), factor, k ? vload(o + d) : vset(0.0f)));
        }
        const row_end last = end_of(j->c, h, l > 0.0f, m, l);
        j->c->a->lse[i] = last.lse;
        if (j->runs > 0)
            unpack(j->c->a->o, (b * p->t_q + t) * p->o_stride + h * j->y.d, p->o_stride, o, &j->y,
                   1, last.factor, p->dtype, 0);
    }
}

static void decode(const flash_call *c)
{
    decode_job j;
    const int64_t heads = c->p->n_kv_heads;
    (void)decode_job_init(&j, c->p, c->workers, c->a->scratch);
    j.c = c;
    int64_t seen = 0; /* number of runs in which the query sees keys */
    for (int64_t b = 0; b < c->p->batch; b++)
        seen += tiles_of(length_of(c, b), DECODE_RUN);
    c->host->parallel_for(c->p->batch * j.runs * heads, seen >= 2 * c->workers ? heads : 1,
                          decode_items, &j);
    c->host->parallel_for(c->p->batch * c->p->n_heads * c->p->t_q, 8, merge_items, &j);
}

#endif
