/* The forward for few f32 queries, with the bits that flash_forward.h gives the same queries among
 * many: the same tiles of keys in the same order. So the log-probabilities of a generated text are
 * those of a forward over the whole text.
 *
 * A work item is a (batch row, group of query heads that share a key head), or a single query head
 * where groups are too few for the workers. Each item packs the keys and values that it reads, one
 * tile at a time.
 */
#ifndef LATHE_ATTENTION_FLASH_ALONE_H
#define LATHE_ATTENTION_FLASH_ALONE_H

#include "flash_forward.h"

typedef struct alone_job {
    forward_job forward; /* its split is 2: the tiles of a worker have no memory there */
    int64_t heads;       /* query heads of an item */
    char *tiles;         /* [workers][tile_bytes]: k, then v */
    int64_t tile_bytes;
} alone_job;

INLINE int is_alone(const lathe_attention_problem *p)
{
    return p->dtype == LATHE_F32 && decodes(p);
}

static int64_t alone_job_init(alone_job *j, const lathe_attention_problem *p, int32_t workers,
                              char *base)
{
    forward_job *f = &j->forward;
    forward_work w;
    pieces m = {base, 0};
    const int64_t group = p->n_heads / p->n_kv_heads;
    f->x = extent_of(p->head_dim);
    f->y = extent_of(lathe_attention_value_dim(p));
    f->split = 2;
    f->k_tile = f->x.row * BK;
    f->v_tile = BK_UNITS * f->y.wide;
    f->worker_bytes = forward_work_init(&w, f, NULL);
    f->workers = take(&m, f->worker_bytes * workers);
    j->tile_bytes = round_up((f->k_tile + f->v_tile) * (int64_t)sizeof(unit), 64);
    j->tiles = take(&m, j->tile_bytes * workers);
    j->heads = group * p->t_q <= BQ && p->batch * p->n_kv_heads >= 4 * workers ? group : 1;
    return m.at;
}

static int64_t alone_scratch(const lathe_attention_problem *p, int32_t workers)
{
    alone_job j;
    return alone_job_init(&j, p, workers, NULL);
}

/* Loads the queries of `heads` heads from `h` on, one head after the other, and clears their sums.
 * Returns the keys that they see together. */
static span alone_begin(const alone_job *j, const forward_work *w, int64_t b, int64_t h)
{
    const forward_job *f = &j->forward;
    const lathe_attention_problem *p = f->c->p;
    const int64_t rows = j->heads * p->t_q, padded = round_up(rows, MR_LEAST);
    span whole = {0, 0};
    for (int64_t i = 0; i < j->heads; i++)
        pack_rows(w->q + i * p->t_q * f->x.row, &f->x, f->c->a->q,
                  b * p->t_q * p->q_stride + (h + i) * f->x.d, p->q_stride, p->t_q, p->t_q,
                  p->dtype);
    memset(w->q + rows * f->x.row, 0, (size_t)((padded - rows) * f->x.row) * sizeof(unit));
    memset(w->o, 0, (size_t)(padded * f->y.wide) * sizeof(float));
    memset(w->l, 0, (size_t)padded * VL * sizeof(float));
    for (int64_t r = 0; r < padded; r++)
        w->m[r] = -1e30f;
    for (int64_t r = 0; r < rows; r++) {
        w->ranges[r] = range_of(f->c, b, r % p->t_q);
        whole = join(whole, w->ranges[r]);
    }
    return whole;
}

static void alone_item(const alone_job *j, const forward_work *w, unit *k, unit *v, int64_t b,
                       int64_t h)
{
    const forward_job *f = &j->forward;
    const lathe_attention_problem *p = f->c->p;
    const extent *x = &f->x, *y = &f->y;
    const scoring how = scoring_of(p);
    const int64_t rows = j->heads * p->t_q, padded = round_up(rows, MR_LEAST);
    const span whole = alone_begin(j, w, b, h);
    for (int64_t t = whole.lo / BK; t * BK < whole.hi; t++) {
        sight s;
        look(&s, w->ranges, rows, padded, t * BK);
        if (!s.any)
            continue;
        pack_keys(f, w->rows, k, v, b, h / (p->n_heads / p->n_kv_heads), t);
        multiply_columns(w->q, x->row, k, w->s, padded, BK, x->units, s.columns);
        soften(w, y, &s, padded, &how, f->c, (tile_place){b, h, 0, t * BK});
        multiply_add_units(w->p, BK_UNITS, 1, v, w->o, padded, y->wide, s.keys);
    }
    for (int64_t i = 0; i < j->heads; i++) {
        forward_work head = *w;
        head.l += i * p->t_q * VL;
        head.o += i * p->t_q * y->wide;
        head.m += i * p->t_q;
        head.ranges += i * p->t_q;
        forward_finish(f, &head, b, h + i, 0, p->t_q);
    }
}

static void alone_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const alone_job *j = arg;
    const forward_job *f = &j->forward;
    const int64_t per_row = f->c->p->n_heads / j->heads;
    unit *const k = (unit *)(void *)(j->tiles + worker * j->tile_bytes);
    forward_work w;
    (void)forward_work_init(&w, f, f->workers + worker * f->worker_bytes);
    for (int64_t i = begin; i < end; i++)
        alone_item(j, &w, k, k + f->k_tile, i / per_row, i % per_row * j->heads);
}

static void attend_alone(const flash_call *c)
{
    alone_job j;
    (void)alone_job_init(&j, c->p, c->workers, c->a->scratch);
    j.forward.c = c;
    c->host->parallel_for(c->p->batch * c->p->n_heads / j.heads, 1, alone_items, &j);
}

#endif
