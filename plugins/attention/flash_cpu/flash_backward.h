/* Attention backward: recomputes the probabilities from lse, one tile of keys after another.
 *
 * For a tile of keys and each tile of queries that sees it, with p = 2^(s - lse) in base-2
 * exponents:
 *
 *   dp = do v^T      ds = p (dp - delta), delta = sum(do * o)
 *   dv += p^T do     dk += ds^T q     dq += ds k
 *
 * `scale` is applied when dq and dk are written.
 *
 * A work item is one (batch row, key head); its query heads are processed one after another. If
 * there are few items, the tiles of keys are divided into UNITS_WANTED pieces, each with its own
 * dq, and these are added in order at the end. The order of every sum is the same for any number of
 * threads.
 */
#ifndef LATHE_ATTENTION_FLASH_BACKWARD_H
#define LATHE_ATTENTION_FLASH_BACKWARD_H

#include "flash_tiles.h"

/* Memory of one worker. In f32 the cols forms share the memory of the rows forms. */
typedef struct backward_work {
    unit *k_rows, *v_rows;     /* [BK][row]; row and wide are x's or, of v and do, y's */
    unit *k_turned, *v_turned; /* [row][BK] */
    unit *k_cols;              /* [BK units][wide] */
    unit *q, *d_o;             /* [q tiles][BQ][row] */
    unit *q_cols, *d_o_cols;   /* [q tiles][BQ units][wide] */
    float *s, *dp;             /* [BQ][BK] */
    /* [BQ units][BK]: left factors over queries; in f32 the memory of s, dp */
    unit *p_turned, *ds_turned;
    unit *ds;           /* [BQ][BK units]: left factor over keys; in f32 the memory of dp */
    float *lse, *delta; /* [q tiles][BQ], lse in base 2 */
    span *ranges;       /* [q tiles][BQ] */
    span *tiles;        /* [q tiles]: keys that some query of the tile sees */
    float *dq;          /* [q tiles][BQ][wide]; only if not split */
    float *dk, *dv;     /* [k tiles of this item][BK][wide] */
} backward_work;

typedef struct backward_job {
    const flash_call *c;
    extent x, y; /* of q and k; of v and o */
    int64_t k_tiles, q_tiles, split, group;
    float *dq; /* split: [batch][kv heads][split][group][q tiles][BQ][wide] */
    char *workers;
    int64_t worker_bytes;
} backward_job;

static int64_t backward_work_init(backward_work *w, const backward_job *j, char *base)
{
    pieces m = {base, 0};
    const int64_t u = (int64_t)sizeof(unit), f = (int64_t)sizeof(float);
    const int64_t row = j->x.row, wide = j->x.wide, queries = j->q_tiles * BQ;
    const int64_t v_row = j->y.row, v_wide = j->y.wide;
    const int64_t keys = tiles_of(j->k_tiles, j->split) * BK;
    w->k_rows = take(&m, BK * row * u);
    w->v_rows = take(&m, BK * v_row * u);
    w->k_turned = take(&m, row * BK * u);
    w->v_turned = take(&m, v_row * BK * u);
    w->q = take(&m, queries * row * u);
    w->d_o = take(&m, queries * v_row * u);
    w->s = take(&m, BQ * BK * f);
    w->dp = take(&m, BQ * BK * f);
#if FLASH_BF16
    w->k_cols = take(&m, BK_UNITS * wide * u);
    w->q_cols = take(&m, queries / UNIT_VALUES * wide * u);
    w->d_o_cols = take(&m, queries / UNIT_VALUES * v_wide * u);
    w->p_turned = take(&m, BQ_UNITS * BK * u);
    w->ds_turned = take(&m, BQ_UNITS * BK * u);
    w->ds = take(&m, BQ * BK_UNITS * u);
#else
    w->k_cols = w->k_rows;
    w->q_cols = w->q;
    w->d_o_cols = w->d_o;
    w->p_turned = w->s;
    w->ds_turned = w->dp;
    w->ds = w->dp;
#endif
    w->lse = take(&m, queries * f);
    w->delta = take(&m, queries * f);
    w->ranges = take(&m, queries * (int64_t)sizeof(span));
    w->tiles = take(&m, j->q_tiles * (int64_t)sizeof(span));
    w->dq = j->split == 1 ? take(&m, queries * wide * f) : NULL;
    w->dk = take(&m, keys * wide * f);
    w->dv = take(&m, keys * v_wide * f);
    return m.at;
}

static int64_t backward_job_init(backward_job *j, const lathe_attention_problem *p, int32_t workers,
                                 char *base)
{
    backward_work w;
    pieces m = {base, 0};
    j->x = extent_of(p->head_dim);
    j->y = extent_of(lathe_attention_value_dim(p));
    j->k_tiles = tiles_of(p->t_k, BK);
    j->q_tiles = tiles_of(p->t_q, BQ);
    j->group = p->n_heads / p->n_kv_heads;
    j->split = split_of(p, j->k_tiles);
    const int64_t parts = j->split > 1 ? p->batch * p->n_heads * j->split : 0;
    j->dq = take(&m, parts * j->q_tiles * BQ * j->x.wide * (int64_t)sizeof(float));
    j->worker_bytes = backward_work_init(&w, j, NULL);
    j->workers = take(&m, j->worker_bytes * workers);
    return m.at;
}

static int64_t backward_scratch(const lathe_attention_problem *p, int32_t workers)
{
    backward_job j;
    return backward_job_init(&j, p, workers, NULL);
}

static void backward_pack_keys(const backward_job *j, const backward_work *w, int64_t b, int64_t hk,
                               int64_t tile)
{
    const lathe_attention_problem *p = j->c->p;
    const int64_t start = tile * BK, count = least(BK, p->t_k - start);
    const int64_t token = b * p->t_k + start;
    pack_rows(w->k_rows, &j->x, j->c->a->k, token * p->k_stride + hk * j->x.d, p->k_stride, count,
              BK, p->dtype);
    pack_rows(w->v_rows, &j->y, j->c->a->v, token * p->v_stride + hk * j->y.d, p->v_stride, count,
              BK, p->dtype);
    pack_turned(w->k_turned, &j->x, w->k_rows, BK);
    pack_turned(w->v_turned, &j->y, w->v_rows, BK);
#if FLASH_BF16
    pack_cols(w->k_cols, &j->x, w->k_rows, BK);
#endif
}

/* delta of one row; both rows are padded with zeros to a multiple of 64 values. */
static float delta_of(const backward_job *j, int64_t at)
{
    const int32_t dtype = j->c->p->dtype;
    float a[64], g[64];
    vf sum = vset(0.0f);
    for (int64_t first = 0; first < j->y.d; first += 64) {
        const int64_t n = least(64, j->y.d - first);
        load_values(a, j->c->a->o, at + first, n, dtype);
        load_values(g, j->c->a->d_o, at + first, n, dtype);
        for (int64_t i = n; i < 64; i++)
            a[i] = g[i] = 0.0f;
        for (int i = 0; i < 64; i += VL)
            sum = vfma(vload(a + i), vload(g + i), sum);
    }
    return vsum(sum);
}

/* Prepares everything of query head h that does not depend on the keys. */
static void backward_pack_queries(const backward_job *j, const backward_work *w, int64_t b,
                                  int64_t h)
{
    const lathe_attention_problem *p = j->c->p;
    const lathe_attention_args *a = j->c->a;
    const float *lse = a->lse + (b * p->n_heads + h) * p->t_q;
    for (int64_t t = 0; t < j->q_tiles; t++) {
        const int64_t start = t * BQ, count = least(BQ, p->t_q - start), token = b * p->t_q + start;
        const int64_t at = token * p->o_stride + h * j->y.d;
        unit *q = w->q + start * j->x.row, *d_o = w->d_o + start * j->y.row;
        pack_rows(q, &j->x, a->q, token * p->q_stride + h * j->x.d, p->q_stride, count, BQ,
                  p->dtype);
        pack_rows(d_o, &j->y, a->d_o, at, p->o_stride, count, BQ, p->dtype);
#if FLASH_BF16
        pack_cols(w->q_cols + t * BQ_UNITS * j->x.wide, &j->x, q, BQ);
        pack_cols(w->d_o_cols + t * BQ_UNITS * j->y.wide, &j->y, d_o, BQ);
#endif
        for (int64_t r = 0; r < count; r++) {
            w->lse[start + r] = lse[start + r] * LOG2E;
            w->delta[start + r] = delta_of(j, at + r * p->o_stride);
        }
    }
}

static void backward_ranges(const backward_job *j, const backward_work *w, int64_t b)
{
    const int64_t t_q = j->c->p->t_q;
    for (int64_t t = 0; t < j->q_tiles; t++) {
        w->tiles[t] = (span){0, 0};
        for (int64_t i = t * BQ; i < least(t_q, (t + 1) * BQ); i++) {
            w->ranges[i] = range_of(j->c, b, i);
            w->tiles[t] = join(w->tiles[t], w->ranges[i]);
        }
    }
}

/* Turns vector v of a row's scores and dp into p and ds. */
INLINE void gradient(const float *s, const float *dp, vf lse, vf delta, const scoring *how,
                     const int capped, const int alibi, int32_t column, vf *out_p, vf *out_ds)
{
    const vf raw = vload(s);
    if (alibi)
        lse -= bias_of(how, column);
    if (capped) {
        const vf t = vtanh(raw * how->inner);
        *out_p = vexp2(how->cap * t - lse);
        *out_ds = *out_p * (vload(dp) - delta) * (vset(1.0f) - t * t);
    } else {
        *out_p = vexp2(vfma(raw, how->factor, -lse));
        *out_ds = *out_p * (vload(dp) - delta);
    }
}

/* Turns two rows of scores and dp into p and ds in units. all: both rows see the whole tile. */
INLINE void gradient_rows(const backward_work *w, int64_t r, int64_t first, const sight *g,
                          const scoring *how, const int capped, const int alibi, const int all)
{
    vf p[2][2], ds[2][2];
    scoring own[2] = {*how, *how};
    if (alibi) /* how->first is that of query 0 */
        for (int i = 0; i < 2; i++)
            own[i].first = how->first - vset((float)(first + r + i));
    for (int v = 0; v < BK / VL; v += 2) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const vf lse = vset(w->lse[first + r + i]), delta = vset(w->delta[first + r + i]);
            const span seen = g->row[r + i];
#pragma GCC unroll 2
            for (int n = 0; n < 2; n++) {
                const int64_t at = (r + i) * BK + (v + n) * VL;
                gradient(w->s + at, w->dp + at, lse, delta, &own[i], capped, alibi, (v + n) * VL,
                         &p[i][n], &ds[i][n]);
                if (!all) {
                    const vi in = vinside((v + n) * VL, seen.lo, seen.hi);
                    p[i][n] = vselect(in, p[i][n], vset(0.0f));
                    ds[i][n] = vselect(in, ds[i][n], vset(0.0f));
                }
            }
        }
#if FLASH_BF16
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            const int64_t at = r / 2 * BK + (v + n) * VL;
            _mm512_storeu_si512(w->p_turned + at, pair_lanes(narrow(p[0][n], p[1][n])));
            _mm512_storeu_si512(w->ds_turned + at, pair_lanes(narrow(ds[0][n], ds[1][n])));
            _mm512_storeu_si512(w->ds + (r + n) * BK_UNITS + v * VL / 2,
                                narrow(ds[n][0], ds[n][1]));
        }
#else
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
            for (int n = 0; n < 2; n++) {
                vstore(w->p_turned + (r + i) * BK + (v + n) * VL, p[i][n]);
                vstore(w->ds + (r + i) * BK + (v + n) * VL, ds[i][n]);
            }
#endif
    }
}

static void gradients(const backward_work *w, int64_t first, int64_t padded, const sight *g,
                      const scoring *how)
{
    for (int64_t r = 0; r < padded; r += 2) {
        const span a = g->row[r], b = g->row[r + 1];
        const int all = a.lo == 0 && a.hi == BK && b.lo == 0 && b.hi == BK;
        if (a.lo >= a.hi && b.lo >= b.hi) {
            memset(w->p_turned + r * BK_UNITS, 0, 2 * BK_UNITS * sizeof(unit));
            memset(w->ds_turned + r * BK_UNITS, 0, 2 * BK_UNITS * sizeof(unit));
            memset(w->ds + r * BK_UNITS, 0, 2 * BK_UNITS * sizeof(unit));
        } else if (how->alibi) {
            gradient_rows(w, r, first, g, how, how->capped, 1, 0);
        } else if (how->capped) {
            gradient_rows(w, r, first, g, how, 1, 0, 0);
        } else if (all) {
            gradient_rows(w, r, first, g, how, 0, 0, 1);
        } else {
            gradient_rows(w, r, first, g, how, 0, 0, 0);
        }
    }
}

/* Processes one tile of queries against the tile of keys in w. */
static void backward_tile(const backward_job *j, const backward_work *w, int64_t q_tile,
                          int64_t k_start, float *dq, float *dk, float *dv, const scoring *how)
{
    const extent *x = &j->x, *y = &j->y;
    const int64_t first = q_tile * BQ, rows = least(BQ, j->c->p->t_q - first);
    const int64_t padded = round_up(rows, MR_LEAST), units = q_tile * BQ_UNITS;
    sight g;
    look(&g, w->ranges + first, rows, padded, k_start);
    if (!g.any)
        return;
    look_back(&g, padded);
    multiply_columns(w->q + first * x->row, x->row, w->k_turned, w->s, padded, BK, x->units,
                     g.columns);
    multiply_columns(w->d_o + first * y->row, y->row, w->v_turned, w->dp, padded, BK, y->units,
                     g.columns);
    gradients(w, first, padded, &g, how);
    multiply_add_units(w->p_turned, 1, BK, w->d_o_cols + units * y->wide, dv, BK, y->wide,
                       g.queries);
    multiply_add_units(w->ds_turned, 1, BK, w->q_cols + units * x->wide, dk, BK, x->wide,
                       g.queries);
    multiply_add_units(w->ds, BK_UNITS, 1, w->k_cols, dq + first * x->wide, padded, x->wide,
                       g.keys);
}

static void backward_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const backward_job *j = arg;
    const lathe_attention_problem *p = j->c->p;
    const lathe_attention_args *a = j->c->a;
    scoring how = scoring_of(p);
    const int64_t wide = j->x.wide, d = j->x.d, dq_floats = j->q_tiles * BQ * wide;
    const int64_t v_wide = j->y.wide, keys = tiles_of(j->k_tiles, j->split) * BK;
    backward_work w;
    (void)backward_work_init(&w, j, j->workers + worker * j->worker_bytes);
    for (int64_t i = begin; i < end; i++) {
        const int64_t head = i / j->split, b = head / p->n_kv_heads, hk = head % p->n_kv_heads;
        backward_ranges(j, &w, b);
        memset(w.dk, 0, (size_t)(keys * wide) * sizeof(float));
        memset(w.dv, 0, (size_t)(keys * v_wide) * sizeof(float));
        for (int64_t g = 0; g < j->group; g++) {
            const int64_t h = hk * j->group + g;
            float *dq = j->split > 1 ? j->dq + (i * j->group + g) * dq_floats : w.dq;
            memset(dq, 0, (size_t)dq_floats * sizeof(float));
            backward_pack_queries(j, &w, b, h);
            for (int64_t t = i % j->split, own = 0; t < j->k_tiles; t += j->split, own++) {
                backward_pack_keys(j, &w, b, hk, t);
                if (how.alibi)
                    aim_row(&how, j->c, h, p->t_k - p->t_q, t * BK);
                for (int64_t q = 0; q < j->q_tiles; q++)
                    if (w.tiles[q].lo < (t + 1) * BK && w.tiles[q].hi > t * BK)
                        backward_tile(j, &w, q, t * BK, dq, w.dk + own * BK * wide,
                                      w.dv + own * BK * v_wide, &how);
            }
            if (j->split == 1 && a->dq)
                unpack(a->dq, b * p->t_q * p->dq_stride + h * d, p->dq_stride, dq, &j->x, p->t_q,
                       p->scale, p->dtype, a->accumulate & 1u);
        }
        for (int64_t t = i % j->split, own = 0; t < j->k_tiles; t += j->split, own++) {
            const int64_t token = b * p->t_k + t * BK, n = least(BK, p->t_k - t * BK);
            if (a->dk)
                unpack(a->dk, token * p->dk_stride + hk * d, p->dk_stride, w.dk + own * BK * wide,
                       &j->x, n, p->scale, p->dtype, a->accumulate & 2u);
            if (a->dv)
                unpack(a->dv, token * p->dv_stride + hk * j->y.d, p->dv_stride,
                       w.dv + own * BK * v_wide, &j->y, n, 1.0f, p->dtype, a->accumulate & 4u);
        }
    }
}

/* Adds the pieces' dq in order, for one (batch row, query head, query tile) at a time. */
static void backward_sum_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const backward_job *j = arg;
    const lathe_attention_problem *p = j->c->p;
    const int64_t wide = j->x.wide, tile = BQ * wide, part = j->group * j->q_tiles * tile;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t t = i % j->q_tiles, h = i / j->q_tiles % p->n_heads;
        const int64_t b = i / j->q_tiles / p->n_heads;
        const int64_t piece = (b * p->n_kv_heads + h / j->group) * j->split;
        float *sum = j->dq + (piece * j->group + h % j->group) * j->q_tiles * tile + t * tile;
        for (int64_t k = 1; k < j->split; k++)
            for (int64_t e = 0; e < tile; e += VL)
                vstore(sum + e, vload(sum + e) + vload(sum + k * part + e));
        unpack(j->c->a->dq, (b * p->t_q + t * BQ) * p->dq_stride + h * j->x.d, p->dq_stride, sum,
               &j->x, least(BQ, p->t_q - t * BQ), p->scale, p->dtype, j->c->a->accumulate & 1u);
    }
}

static void backward(const flash_call *c)
{
    backward_job j;
    (void)backward_job_init(&j, c->p, c->workers, c->a->scratch);
    j.c = c;
    c->host->parallel_for(c->p->batch * c->p->n_kv_heads * j.split, 1, backward_items, &j);
    if (j.split > 1 && c->a->dq)
        c->host->parallel_for(c->p->batch * c->p->n_heads * j.q_tiles, 1, backward_sum_items, &j);
}

#endif
