/* The softmax of the vocabulary head: online statistics, the gradient of a block, and draws. */
#include "head/head_softmax.h"

#include <math.h>

#include "base/vecmath.h"

#define LANES 32

CPU_INLINE float capped(float l, float cap, int has_cap)
{
    return has_cap ? cap * cpu_tanh(l / cap) : l;
}

CPU_INLINE float row_max(const void *l, int64_t n, float cap, int has_cap, int32_t dtype)
{
    float lanes[LANES];
    for (int64_t j = 0; j < LANES; j++)
        lanes[j] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int64_t j = 0; j < LANES; j++) {
            const float v = ld(l, i + j, dtype);
            lanes[j] = v > lanes[j] ? v : lanes[j];
        }
    for (; i < n; i++) {
        const float v = ld(l, i, dtype);
        lanes[0] = v > lanes[0] ? v : lanes[0];
    }
    float m = lanes[0];
    for (int64_t j = 1; j < LANES; j++)
        m = lanes[j] > m ? lanes[j] : m;
    return capped(m, cap, has_cap); /* the cap is an increasing function */
}

CPU_INLINE void observe_row(const void *l, int64_t n, float cap, int has_cap, int64_t target,
                            head_row *row, int32_t dtype)
{
    const float block_max = row_max(l, n, cap, has_cap, dtype);
    const float m = block_max > row->max ? block_max : row->max;
    const float shift = m > -INFINITY ? m : 0.0f; /* only -inf so far: exp gives 0, not NaN */
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += cpu_exp(capped(ld(l, i, dtype), cap, has_cap) - shift);
    row->sum = row->sum * exp((double)row->max - (double)shift) + (double)sum;
    row->max = m;
    if (target >= 0 && target < n)
        row->target = capped(ld(l, target, dtype), cap, has_cap);
}

/* Adds a block to *spread_of, after observe_row; `before` is the state of the row before this
 * block. */
CPU_INLINE void observe_spread(const void *l, int64_t n, float cap, int has_cap,
                               const head_row *before, const head_row *row, double *spread_of,
                               int32_t dtype)
{
    const float shift = row->max > -INFINITY ? row->max : 0.0f;
    const double less = (double)before->max - (double)shift;
    float spread = 0.0f;
#pragma omp simd reduction(+ : spread)
    for (int64_t i = 0; i < n; i++) {
        const float s = capped(ld(l, i, dtype), cap, has_cap) - shift, e = cpu_exp(s);
        spread += e > 0.0f ? e * s : 0.0f;
    }
    const double kept = before->sum > 0.0 ? exp(less) * (*spread_of + less * before->sum) : 0.0;
    *spread_of = kept + (double)spread;
}

/* The cap is an increasing function, so the largest logit is also the largest capped logit. */
CPU_INLINE void top_of_row(const void *l, int64_t n, int64_t first, head_row *row, int32_t dtype)
{
    const float most = row_max(l, n, 0.0f, 0, dtype);
    if (!(most > row->top))
        return;
    row->top = most;
    for (int64_t i = 0; i < n; i++)
        if (ld(l, i, dtype) == most) {
            row->top_id = (int32_t)(first + i);
            return;
        }
}

CPU_INLINE void gradient_row(void *l, int64_t n, float cap, int has_cap, int64_t target, float lse,
                             float dlogp, int32_t dtype)
{
    float onto_target = 0.0f;
    if (target >= 0 && target < n) {
        const float s = capped(ld(l, target, dtype), cap, has_cap);
        const float slope = has_cap ? 1.0f - (s / cap) * (s / cap) : 1.0f;
        onto_target = dlogp * (1.0f - cpu_exp(s - lse)) * slope;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        const float s = capped(ld(l, i, dtype), cap, has_cap);
        const float slope = has_cap ? 1.0f - (s / cap) * (s / cap) : 1.0f;
        st(l, i, dtype, 0, -dlogp * cpu_exp(s - lse) * slope);
    }
    if (target >= 0 && target < n)
        st(l, target, dtype, 0, onto_target);
}

/* The gradient of the entropy h: -dh * p * (log p + h). */
CPU_INLINE void entropy_gradient_row(void *l, int64_t n, float cap, int has_cap, float lse, float h,
                                     float dh, int32_t dtype)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        const float s = capped(ld(l, i, dtype), cap, has_cap), p = cpu_exp(s - lse);
        const float slope = has_cap ? 1.0f - (s / cap) * (s / cap) : 1.0f;
        st(l, i, dtype, 0, p > 0.0f ? -dh * p * (s - lse + h) * slope : 0.0f);
    }
}

static void observe_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const head_block *b = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const void *l = at(b->logits, r * b->width, b->dtype);
        if (b->targets[r] < 0)
            continue;
        const int64_t target = b->targets[r] - b->first;
        if (b->find_top)
            CPU_BY_DTYPE(b->dtype, top_of_row, l, b->width, b->first, b->state + r);
        const head_row before = b->state[r];
        if (b->softcap > 0.0f)
            CPU_BY_DTYPE(b->dtype, observe_row, l, b->width, b->softcap, 1, target, b->state + r);
        else
            CPU_BY_DTYPE(b->dtype, observe_row, l, b->width, 0.0f, 0, target, b->state + r);
        if (b->spreads != NULL && b->softcap > 0.0f)
            CPU_BY_DTYPE(b->dtype, observe_spread, l, b->width, b->softcap, 1, &before,
                         b->state + r, b->spreads + r);
        else if (b->spreads != NULL)
            CPU_BY_DTYPE(b->dtype, observe_spread, l, b->width, 0.0f, 0, &before, b->state + r,
                         b->spreads + r);
    }
}

static void gradient_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const head_block *b = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        void *l = at_mut(b->logits, r * b->width, b->dtype);
        const int64_t target = b->targets[r] - b->first;
        if (b->targets[r] < 0 || b->dlogp[r] == 0.0f)
            memset(l, 0, (size_t)(b->width * lathe_dtype_bytes(b->dtype)));
        else if (b->spreads != NULL && b->softcap > 0.0f)
            CPU_BY_DTYPE(b->dtype, entropy_gradient_row, l, b->width, b->softcap, 1, b->lse[r],
                         b->entropies[r], b->dlogp[r]);
        else if (b->spreads != NULL)
            CPU_BY_DTYPE(b->dtype, entropy_gradient_row, l, b->width, 0.0f, 0, b->lse[r],
                         b->entropies[r], b->dlogp[r]);
        else if (b->softcap > 0.0f)
            CPU_BY_DTYPE(b->dtype, gradient_row, l, b->width, b->softcap, 1, target, b->lse[r],
                         b->dlogp[r]);
        else
            CPU_BY_DTYPE(b->dtype, gradient_row, l, b->width, 0.0f, 0, target, b->lse[r],
                         b->dlogp[r]);
    }
}

void cpu_head_observe(const lathe_host *host, head_block *block)
{
    host->parallel_for(block->rows, 4, observe_range, block);
}

void cpu_head_observe_row(head_block *block)
{
    observe_range(block, 0, 1, 0);
}

CPU_INLINE void cap_row(const void *l, int64_t n, float cap, int has_cap, float *y, int32_t dtype)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = capped(ld(l, i, dtype), cap, has_cap);
}

void cpu_head_cap(const head_block *b, float *y)
{
    if (b->softcap > 0.0f)
        CPU_BY_DTYPE(b->dtype, cap_row, b->logits, b->width, b->softcap, 1, y);
    else
        CPU_BY_DTYPE(b->dtype, cap_row, b->logits, b->width, 0.0f, 0, y);
}

#define BLOCK_COLUMNS 8192 /* of a block of the vocabulary, about */

int64_t cpu_head_width(int64_t v)
{
    const int64_t n_blocks = (v + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
    return cpu_round_up((v + n_blocks - 1) / n_blocks, 64);
}

void cpu_head_gradient(const lathe_host *host, head_block *block)
{
    host->parallel_for(block->rows, 4, gradient_range, block);
}

/* ---- draws ---- */

CPU_INLINE void weigh_row(const void *l, int64_t n, float cap, int has_cap, head_part *out,
                          int32_t dtype)
{
    const float most = row_max(l, n, cap, has_cap, dtype);
    const float shift = most > -INFINITY ? most : 0.0f;
    double lanes[LANES] = {0.0}, sum = 0.0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int64_t j = 0; j < LANES; j++)
            lanes[j] += (double)cpu_exp(capped(ld(l, i + j, dtype), cap, has_cap) - shift);
    for (; i < n; i++)
        lanes[0] += (double)cpu_exp(capped(ld(l, i, dtype), cap, has_cap) - shift);
    for (int64_t j = 0; j < LANES; j++)
        sum += lanes[j];
    *out = (head_part){sum, most, 0.0f};
}

/* The first column at which the running sum of exp(logit - shift) exceeds `level`. If rounding
 * errors make all of them smaller, the last column with a nonzero probability. */
CPU_INLINE void search_row(const void *l, int64_t n, float cap, int has_cap, float shift,
                           double level, int64_t *out, int32_t dtype)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t m = n - i < LANES ? n - i : LANES;
        float e[LANES];
        for (int64_t j = 0; j < m; j++)
            e[j] = cpu_exp(capped(ld(l, i + j, dtype), cap, has_cap) - shift);
        for (int64_t j = 0; j < m; j++) {
            if (!(e[j] > 0.0f))
                continue;
            *out = i + j;
            sum += (double)e[j];
            if (sum > level)
                return;
        }
    }
}

void *cpu_head_kept(const head_draw *d, int64_t b, int64_t *out_width)
{
    *out_width = b + 1 < d->n_blocks ? d->width : d->vocabulary - b * d->width;
    return at_mut(d->logits, d->rows * b * d->width, d->dtype);
}

typedef struct weighing {
    const head_draw *draw;
    int64_t block;
} weighing;

static void weigh_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const weighing *w = arg;
    const head_draw *d = w->draw;
    int64_t width;
    const void *block = cpu_head_kept(d, w->block, &width);
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const void *l = at(block, r * width, d->dtype);
        head_part *out = &d->parts[r * d->n_blocks + w->block];
        if (d->targets[r] < 0)
            continue;
        if (d->softcap > 0.0f)
            CPU_BY_DTYPE(d->dtype, weigh_row, l, width, d->softcap, 1, out);
        else
            CPU_BY_DTYPE(d->dtype, weigh_row, l, width, 0.0f, 0, out);
    }
}

static int32_t draw_one(const head_draw *d, int64_t r)
{
    const head_part *parts = d->parts + r * d->n_blocks;
    double most = (double)parts[0].max, total = 0.0, before = 0.0, upto = 0.0;
    int64_t chosen = -1, width, column = -1;
    for (int64_t b = 1; b < d->n_blocks; b++)
        most = (double)parts[b].max > most ? (double)parts[b].max : most;
    for (int64_t b = 0; b < d->n_blocks; b++)
        total += parts[b].sum * exp((double)parts[b].max - most);
    if (!(total > 0.0 && isfinite(total)))
        return -1;
    const double level = d->u[r] * total;
    for (int64_t b = 0; b < d->n_blocks && (chosen < 0 || upto <= level); b++) {
        const double share = parts[b].sum * exp((double)parts[b].max - most);
        if (!(share > 0.0))
            continue;
        chosen = b;
        before = upto;
        upto += share;
    }
    const void *block = cpu_head_kept(d, chosen, &width);
    const void *l = at(block, r * width, d->dtype);
    const float shift = parts[chosen].max;
    const double rest = (level - before) / exp((double)shift - most);
    if (d->softcap > 0.0f)
        CPU_BY_DTYPE(d->dtype, search_row, l, width, d->softcap, 1, shift, rest, &column);
    else
        CPU_BY_DTYPE(d->dtype, search_row, l, width, 0.0f, 0, shift, rest, &column);
    return (int32_t)(chosen * d->width + column);
}

static void draw_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const head_draw *d = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        d->token[r] = d->targets[r] < 0 ? -1 : draw_one(d, r);
}

void cpu_head_weigh(const lathe_host *host, const head_draw *draw, int64_t b)
{
    weighing w = {draw, b};
    host->parallel_for(draw->rows, 4, weigh_range, &w);
}

void cpu_head_draw(const lathe_host *host, head_draw *draw)
{
    host->parallel_for(draw->rows, 4, draw_range, draw);
}
