/* Attention forward: computes o and lse of one tile of queries after another, over the tiles of
 * keys that it sees.
 *
 * Each row keeps a running reference m (a base-2 exponent), sums l of 2^(s - m) per lane, and o. m
 * follows the maximum of the row only when that exceeds it by more than SLACK: f32 has room for the
 * factor 2^SLACK, and most tiles then need no rescaling.
 *
 * A work item is a (batch row, key head), if there are enough of them. Otherwise the query tiles
 * are divided into UNITS_WANTED pieces, and keys and values are packed in advance for all of them.
 */
#ifndef LATHE_ATTENTION_FLASH_FORWARD_H
#define LATHE_ATTENTION_FLASH_FORWARD_H

#include "flash_decode.h"

#define SLACK 8.0f

/* Memory of one worker. */
typedef struct forward_work {
    unit *rows;   /* [BK][the wider row]   a tile of k or v, rows form */
    unit *q;      /* [BQ][row] */
    float *s;     /* [BQ][BK]    scores */
    unit *p;      /* [BQ][BK]    probabilities in units; in f32 the memory of s */
    float *o;     /* [BQ][wide] */
    float *m;     /* [BQ] */
    float *l;     /* [BQ][VL] */
    span *ranges; /* [BQ] */
    unit *k;      /* [tiles][row][BK]    turned; unless packed in advance */
    unit *v;      /* [tiles][BK units][wide]  cols; the same */
} forward_work;

typedef struct forward_job {
    const flash_call *c;
    extent x, y; /* of q and k; of v and o */
    int64_t k_tiles, q_tiles, split;
    int64_t k_tile, v_tile; /* units of one packed tile */
    unit *k, *v;            /* packed in advance, [batch * kv heads][tiles]; NULL with split 1 */
    char *workers;
    int64_t worker_bytes;
} forward_job;

static int64_t forward_work_init(forward_work *w, const forward_job *j, char *base)
{
    pieces m = {base, 0};
    const int64_t u = (int64_t)sizeof(unit), f = (int64_t)sizeof(float);
    w->rows = take(&m, BK * (j->x.row > j->y.row ? j->x.row : j->y.row) * u);
    w->q = take(&m, BQ * j->x.row * u);
    w->s = take(&m, BQ * BK * f);
    w->p = FLASH_BF16 ? take(&m, BQ * BK_UNITS * u) : (unit *)(void *)w->s;
    w->o = take(&m, BQ * j->y.wide * f);
    w->m = take(&m, BQ * f);
    w->l = take(&m, BQ * VL * f);
    w->ranges = take(&m, BQ * (int64_t)sizeof(span));
    w->k = j->split == 1 ? take(&m, j->k_tiles * j->k_tile * u) : NULL;
    w->v = j->split == 1 ? take(&m, j->k_tiles * j->v_tile * u) : NULL;
    return m.at;
}

/* Returns the bytes of scratch. */
static int64_t forward_job_init(forward_job *j, const lathe_attention_problem *p, int32_t workers,
                                char *base)
{
    forward_work w;
    pieces m = {base, 0};
    j->x = extent_of(p->head_dim);
    j->y = extent_of(lathe_attention_value_dim(p));
    j->k_tiles = tiles_of(p->t_k, BK);
    j->q_tiles = tiles_of(p->t_q, BQ);
    j->split = split_of(p, j->q_tiles);
    j->k_tile = j->x.row * BK;
    j->v_tile = BK_UNITS * j->y.wide;
    const int64_t tiles = j->split > 1 ? p->batch * p->n_kv_heads * j->k_tiles : 0;
    j->k = take(&m, tiles * j->k_tile * (int64_t)sizeof(unit));
    j->v = take(&m, tiles * j->v_tile * (int64_t)sizeof(unit));
    j->worker_bytes = forward_work_init(&w, j, NULL);
    j->workers = take(&m, j->worker_bytes * workers);
    return m.at;
}

static int64_t forward_scratch(const lathe_attention_problem *p, int32_t workers)
{
    forward_job j;
    return decodes(p) ? decode_scratch(p, workers) : forward_job_init(&j, p, workers, NULL);
}

/* Packs one tile of keys and values of head hk of row b. */
static void pack_keys(const forward_job *j, unit *rows, unit *k, unit *v, int64_t b, int64_t hk,
                      int64_t tile)
{
    const lathe_attention_problem *p = j->c->p;
    const int64_t start = tile * BK, count = least(BK, length_of(j->c, b) - start);
    if (count < 1)
        return;
    pack_keys_of(rows, &j->x, j->c, j->c->a->k, p->k_stride, b, hk, start, count, BK);
    pack_turned(k, &j->x, rows, BK);
#if FLASH_BF16
    pack_keys_of(rows, &j->y, j->c, j->c->a->v, p->v_stride, b, hk, start, count, BK);
    pack_cols(v, &j->y, rows, BK);
#else
    pack_keys_of(v, &j->y, j->c, j->c->a->v, p->v_stride, b, hk, start, count, BK);
#endif
}

static void forward_pack_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const forward_job *j = arg;
    forward_work w;
    (void)forward_work_init(&w, j, j->workers + worker * j->worker_bytes);
    for (int64_t i = begin; i < end; i++) {
        const int64_t head = i / j->k_tiles, n_kv = j->c->p->n_kv_heads;
        pack_keys(j, w.rows, j->k + i * j->k_tile, j->v + i * j->v_tile, head / n_kv, head % n_kv,
                  i % j->k_tiles);
    }
}

/* Makes `peak` the row's reference and rescales the sums accordingly. */
static void rescale(const forward_work *w, const extent *y, int64_t r, float peak)
{
    const vf shrink = vexp2(vset(w->m[r] - peak));
    w->m[r] = peak;
    vstore(w->l + r * VL, vload(w->l + r * VL) * shrink);
    for (int64_t d = 0; d < y->wide; d += VL)
        vstore(w->o + r * y->wide + d, vload(w->o + r * y->wide + d) * shrink);
}

/* Vector v of the row as base-2 exponents; those outside `seen` become far lower than all
 * others. */
INLINE vf exponents(const float *s, int v, span seen, const scoring *how, const int all)
{
    vf t = vload(s + v * VL);
    t = how->capped ? how->cap * vtanh(t * how->inner) : t * how->factor;
    if (how->alibi)
        t += bias_of(how, v * VL);
    return all ? t : vselect(vinside(v * VL, seen.lo, seen.hi), t, vset(-1e30f));
}

/* Turns a row of scores into probabilities relative to 2^m, in units. `all`: the row sees the whole
 * tile. */
INLINE void soften_row(const forward_work *w, const extent *y, int64_t r, span seen,
                       const scoring *how, const int all)
{
    const float *s = w->s + r * BK;
    vf t[BK / VL], most = vset(-1e30f), sum = vset(0.0f);
#pragma GCC unroll 16
    for (int v = 0; v < BK / VL; v++) {
        t[v] = exponents(s, v, seen, how, all);
        most = vmax(most, t[v]);
    }
    if (vany_greater(most, vset(w->m[r] + SLACK)))
        rescale(w, y, r, vmost(most));
    const vf m = vset(w->m[r]);
#pragma GCC unroll 16
    for (int v = 0; v < BK / VL; v++) {
        t[v] = vexp2(t[v] - m);
        if (!all)
            t[v] = vselect(vinside(v * VL, seen.lo, seen.hi), t[v], vset(0.0f));
        sum += t[v];
    }
    vstore(w->l + r * VL, vload(w->l + r * VL) + sum);
#pragma GCC unroll 16
    for (int v = 0; v < BK / VL; v++) {
#if FLASH_BF16
        if (v % 2 == 0)
            _mm512_storeu_si512(w->p + r * BK_UNITS + v * VL / 2, narrow(t[v], t[v + 1]));
#else
        vstore(w->p + r * BK + v * VL, t[v]);
#endif
    }
}

/* Rows r of a tile are queries r % t_q of the heads from h on, where the tile has several heads. */
typedef struct tile_place {
    int64_t b, h, query, start; /* the first row's query; the first key */
} tile_place;

static void soften(const forward_work *w, const extent *y, const sight *s, int64_t padded,
                   const scoring *how, const flash_call *c, tile_place at)
{
    const int64_t t_q = c->p->t_q;
    for (int64_t r = 0; r < padded; r++) {
        const span seen = s->row[r];
        if (seen.lo == 0 && seen.hi == BK && !how->capped && !how->alibi) {
            scoring plain = *how;
            plain.capped = plain.alibi = 0;
            soften_row(w, y, r, seen, &plain, 1);
        } else if (seen.lo < seen.hi) {
            scoring own = *how;
            const int64_t i = at.query + r;
            if (own.alibi)
                aim_row(&own, c, at.h + i / t_q, place_of(c, at.b, i % t_q), at.start);
            soften_row(w, y, r, seen, &own, 0);
        } else {
            memset(w->p + r * BK_UNITS, 0, BK_UNITS * sizeof(unit));
        }
    }
}

/* Computes o and lse of the tile's rows from the sums. */
static void forward_finish(const forward_job *j, const forward_work *w, int64_t b, int64_t h,
                           int64_t start, int64_t rows)
{
    const lathe_attention_problem *p = j->c->p;
    for (int64_t r = 0; r < rows; r++) {
        const float sum = vsum(vload(w->l + r * VL));
        const row_end end = end_of(j->c, h, w->ranges[r].lo < w->ranges[r].hi, w->m[r], sum);
        for (int64_t d = 0; d < j->y.wide; d += VL)
            vstore(w->o + r * j->y.wide + d, vload(w->o + r * j->y.wide + d) * vset(end.factor));
        j->c->a->lse[(b * p->n_heads + h) * p->t_q + start + r] = end.lse;
    }
    unpack(j->c->a->o, (b * p->t_q + start) * p->o_stride + h * j->y.d, p->o_stride, w->o, &j->y,
           rows, 1.0f, p->dtype, 0);
}

/* Processes one tile of queries of head h; k, v: the packed tiles of its key head. */
static void forward_tile(const forward_job *j, const forward_work *w, const unit *k, const unit *v,
                         int64_t b, int64_t h, int64_t tile)
{
    const lathe_attention_problem *p = j->c->p;
    const extent *x = &j->x, *y = &j->y;
    const scoring how = scoring_of(p);
    const int64_t start = tile * BQ, rows = least(BQ, p->t_q - start);
    const int64_t padded = round_up(rows, MR_LEAST);
    span whole = {0, 0};
    for (int64_t r = 0; r < rows; r++) {
        w->ranges[r] = range_of(j->c, b, start + r);
        whole = join(whole, w->ranges[r]);
    }
    pack_rows(w->q, x, j->c->a->q, (b * p->t_q + start) * p->q_stride + h * x->d, p->q_stride, rows,
              padded, p->dtype);
    memset(w->o, 0, (size_t)(padded * y->wide) * sizeof(float));
    memset(w->l, 0, (size_t)padded * VL * sizeof(float));
    for (int64_t r = 0; r < padded; r++)
        w->m[r] = -1e30f;
    for (int64_t t = whole.lo / BK; t * BK < whole.hi; t++) {
        sight s;
        look(&s, w->ranges, rows, padded, t * BK);
        if (!s.any)
            continue;
        multiply_columns(w->q, x->row, k + t * j->k_tile, w->s, padded, BK, x->units, s.columns);
        soften(w, y, &s, padded, &how, j->c, (tile_place){b, h, start, t * BK});
        multiply_add_units(w->p, BK_UNITS, 1, v + t * j->v_tile, w->o, padded, y->wide, s.keys);
    }
    forward_finish(j, w, b, h, start, rows);
}

static void forward_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const forward_job *j = arg;
    const lathe_attention_problem *p = j->c->p;
    const int64_t group = p->n_heads / p->n_kv_heads;
    forward_work w;
    (void)forward_work_init(&w, j, j->workers + worker * j->worker_bytes);
    for (int64_t i = begin; i < end; i++) {
        const int64_t head = i / j->split, b = head / p->n_kv_heads, hk = head % p->n_kv_heads;
        const unit *k = w.k, *v = w.v;
        if (j->split > 1) {
            k = j->k + head * j->k_tiles * j->k_tile;
            v = j->v + head * j->k_tiles * j->v_tile;
        }
        for (int64_t t = 0; j->split == 1 && t < j->k_tiles; t++)
            pack_keys(j, w.rows, w.k + t * j->k_tile, w.v + t * j->v_tile, b, hk, t);
        for (int64_t h = hk * group; h < (hk + 1) * group; h++)
            for (int64_t t = i % j->split; t < j->q_tiles; t += j->split)
                forward_tile(j, &w, k, v, b, h, t);
    }
}

static void forward(const flash_call *c)
{
    if (decodes(c->p)) {
        decode(c);
        return;
    }
    forward_job j;
    (void)forward_job_init(&j, c->p, c->workers, c->a->scratch);
    j.c = c;
    const int64_t heads = c->p->batch * c->p->n_kv_heads;
    if (j.split > 1)
        c->host->parallel_for(heads * j.k_tiles, 1, forward_pack_items, &j);
    c->host->parallel_for(heads * j.split, 1, forward_items, &j);
}

#endif
