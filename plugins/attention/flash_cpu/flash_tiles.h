/* The keys that a tile of queries sees, the scores of a tile, and the layout of scratch. */
#ifndef LATHE_ATTENTION_FLASH_TILES_H
#define LATHE_ATTENTION_FLASH_TILES_H

#include "flash_pack.h"

#include "lathe/kit/attention_kit.h"

#define BLOCKS ((BQ > BK ? BQ : BK) / MR + 1) /* maximum number of blocks of MR rows in a tile */
#define LOG2E 1.44269504f
#define LN2 0.693147181f
#define UNITS_WANTED 16 /* pieces of work into which a problem with few heads is cut */

/* Assigns 64-byte aligned pieces of memory; with base NULL it only measures. */
typedef struct pieces {
    char *base;
    int64_t at;
} pieces;

INLINE void *take(pieces *m, int64_t bytes)
{
    char *here = m->base ? m->base + m->at : NULL;
    m->at += round_up(bytes, 64);
    return here;
}

INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

INLINE int64_t tiles_of(int64_t tokens, int64_t size)
{
    return (tokens + size - 1) / size;
}

/* Pieces into which each (batch row, key head) is split; depends on the problem only. */
INLINE int64_t split_of(const lathe_attention_problem *p, int64_t tiles)
{
    const int64_t heads = p->batch * p->n_kv_heads;
    if (heads >= UNITS_WANTED || heads < 1)
        return 1;
    const int64_t n = least(tiles_of(UNITS_WANTED, heads), tiles);
    return n < 1 ? 1 : n;
}

INLINE int64_t length_of(const flash_call *c, int64_t b)
{
    return lathe_attention_length(c->p, c->a->kv_len, b);
}

/* Packs `count` keys (or values: src, stride) of head hk of row b, from key `first` on, into the
 * rows form, with zeros up to `rows` rows. */
static void pack_keys_of(unit *dst, const extent *x, const flash_call *c, const void *src,
                         int64_t stride, int64_t b, int64_t hk, int64_t first, int64_t count,
                         int64_t rows)
{
    const int64_t block = c->p->block_tokens;
    for (int64_t t = 0; t < count;) {
        const int64_t rest = block > 0 ? block - (first + t) % block : count - t;
        const int64_t n = least(rest, count - t);
        const int64_t at = lathe_attention_key(c->p, c->a->kv_len, b, first + t);
        pack_rows(dst + t * x->row, x, src, at * stride + hk * x->d, stride, n,
                  t + n < count ? n : rows - t, c->p->dtype);
        t += n;
    }
}

/* Query i of row b sees keys [lo, hi); an empty range is {0, 0}. */
INLINE span range_of(const flash_call *c, int64_t b, int64_t i)
{
    const lathe_attention_problem *p = c->p;
    const int64_t len = length_of(c, b), at = i + len - p->t_q;
    int64_t lo = 0, hi = len;
    if (p->causal && at + 1 < hi)
        hi = at + 1;
    if (c->a->key_end && c->a->key_end[b * p->t_q + i] < hi)
        hi = c->a->key_end[b * p->t_q + i];
    if (p->window > 0 && at - p->window + 1 > lo)
        lo = at - p->window + 1;
    if (c->a->doc_start && c->a->doc_start[b * p->t_q + i] > lo)
        lo = c->a->doc_start[b * p->t_q + i];
    return lo < hi ? (span){(int32_t)lo, (int32_t)hi} : (span){0, 0};
}

INLINE span join(span a, span b)
{
    if (a.lo >= a.hi)
        return b;
    if (b.lo >= b.hi)
        return a;
    return (span){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

/* A tile of scores: the keys that each row sees, and the spans of the products that follow from
 * it. */
typedef struct sight {
    span row[BQ];         /* keys of the tile, relative to it; {0,0}: none */
    span columns[BLOCKS]; /* per MR rows: the keys seen, which are columns of the scores */
    span keys[BLOCKS];    /* per MR rows: the same in units, for products over keys */
    span queries[BLOCKS]; /* per MR keys: units of queries, for products over queries */
    int32_t any, all;     /* any: some key is seen; all: every row sees every key */
} sight;

INLINE span in_units(span s)
{
    return (span){s.lo / UNIT_VALUES, (s.hi + UNIT_VALUES - 1) / UNIT_VALUES};
}

/* ranges [rows]: keys that each query sees in total; the tile has keys start .. start+BK-1. padded:
 * rows rounded up to MR_LEAST. */
static void look(sight *s, const span *ranges, int64_t rows, int64_t padded, int64_t start)
{
    const int32_t first = (int32_t)start;
    s->any = 0;
    s->all = 1;
    for (int64_t r = 0; r < padded; r++) {
        span t = {0, 0};
        if (r < rows && ranges[r].lo < first + BK && ranges[r].hi > first) {
            t.lo = ranges[r].lo > first ? ranges[r].lo - first : 0;
            t.hi = ranges[r].hi < first + BK ? ranges[r].hi - first : BK;
        }
        s->any |= t.lo < t.hi;
        s->all &= (t.lo == 0 && t.hi == BK) || r >= rows;
        s->row[r] = t;
    }
    for (int64_t r = 0; r < padded; r += MR) {
        span t = {0, 0};
        for (int64_t i = r; i < least(r + MR, padded); i++)
            t = join(t, s->row[i]);
        s->columns[r / MR] = t;
        s->keys[r / MR] = in_units(t);
    }
}

/* Fills s->queries, which only the backward needs. */
static void look_back(sight *s, int64_t padded)
{
    for (int32_t k = 0; k < BK; k += MR) {
        span t = {0, 0};
        for (int32_t r = 0; !s->all && r < padded; r++)
            if (s->row[r].lo < k + MR && s->row[r].hi > k)
                t = join(t, (span){r, r + 1});
        s->queries[k / MR] = in_units(s->all ? (span){0, (int32_t)padded} : t);
    }
}

/* How scores are computed from q k^T: base-2 exponents s * log2 = factor * q k^T, or with a soft
 * cap cap * tanh(inner * q k^T). With slopes, slope * (first + column) is added: `first` is the
 * distance from a query to the first key of the tile. */
typedef struct scoring {
    vf factor, inner, cap, slope, first;
    int32_t capped, alibi;
} scoring;

/* The query row's part of the scoring: `at` is its index among the keys. */
INLINE void aim_row(scoring *how, const flash_call *c, int64_t h, int64_t at, int64_t start)
{
    how->slope = vset(c->a->slopes[h] * LOG2E);
    how->first = vset((float)(start - at));
}

INLINE int64_t place_of(const flash_call *c, int64_t b, int64_t i)
{
    return i + length_of(c, b) - c->p->t_q;
}

/* The bias that the slope adds to the VL columns from `column` on, as base-2 exponents. */
INLINE vf bias_of(const scoring *how, int32_t column)
{
    vf index;
    for (int i = 0; i < VL; i++)
        index[i] = (float)(column + i);
    return how->slope * (how->first + index);
}

INLINE scoring scoring_of(const lathe_attention_problem *p)
{
    scoring s;
    s.capped = p->softcap > 0.0f;
    s.factor = vset(p->scale * LOG2E);
    s.inner = vset(s.capped ? p->scale / p->softcap : 0.0f);
    s.cap = vset(p->softcap * LOG2E);
    s.alibi = p->alibi;
    s.slope = s.first = vset(0.0f);
    return s;
}

/* The end of a row: lse, and the factor on its o. */
typedef struct row_end {
    float lse, factor;
} row_end;

/* m: reference of the row of head h as a base-2 exponent; sum: of 2^(s - m), in range. A sink above
 * m becomes the reference, so that its own term cannot overflow. */
INLINE row_end end_of(const flash_call *c, int64_t h, int sees_keys, float m, float sum)
{
    if (c->a->sinks == NULL)
        return sees_keys ? (row_end){m * LN2 + logf(sum), 1.0f / sum} : (row_end){-INFINITY, 0.0f};
    if (!sees_keys)
        return (row_end){c->a->sinks[h], 0.0f};
    const float sink = c->a->sinks[h] * LOG2E;
    const float shrink = sink > m ? exp2f(m - sink) : 1.0f;
    const float total = sum * shrink + (sink > m ? 1.0f : exp2f(sink - m));
    return (row_end){(sink > m ? sink : m) * LN2 + logf(total), shrink / total};
}

#if FLASH_BF16
/* Rounds to 32 bf16, with `low` in the lower lanes. */
INLINE __m512i narrow(vf low, vf high)
{
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

/* Reorders the lanes of narrow(a, b) to pairs a0 b0 a1 b1 ... */
INLINE __m512i pair_lanes(__m512i x)
{
    int16_t order[32];
    for (int i = 0; i < 32; i++)
        order[i] = (int16_t)(i / 2 + (i % 2) * 16);
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), x);
}
#endif

#endif
