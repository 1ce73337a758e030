/* Samples a token from logits. */
#include "model/family/sample.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "base/target_clones.h"
#include "lathe/rng.h"

typedef struct candidate {
    double weight; /* exp((logit - max) / temperature) */
    int32_t id;
} candidate;

/* Elements of the vocabulary that a worker takes at a time. The tiles' sums are added in order, so
 * that results do not depend on the number of workers. */
#define TILE 512

/* Figures of one tile. */
typedef struct tile {
    float max;    /* the largest element, if all are numbers */
    int32_t bad;  /* an element is not finite */
    double total; /* of the exponentials */
} tile;

struct lathe_sampler {
    int64_t n;
    tile *tiles;      /* [n / TILE, rounded up] */
    int64_t n_sorted; /* the first n_sorted of the list are the most likely, in order */
    candidate *list;  /* [n] */
    float *scores;    /* [n] logits after the penalty */
    double *p, *q;    /* [n] of lathe_sampler_verify; NULL: no room was made for it */
};

lathe_status lathe_sampler_create(int64_t vocab_size, lathe_sampler **out)
{
    lathe_sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->list = malloc((size_t)vocab_size * sizeof *s->list);
        s->scores = malloc((size_t)vocab_size * sizeof *s->scores);
        s->tiles = malloc((size_t)(vocab_size / TILE + 1) * sizeof *s->tiles);
    }
    if (s == NULL || s->list == NULL || s->scores == NULL || s->tiles == NULL) {
        lathe_sampler_destroy(s);
        return lathe_error(LATHE_E_NOMEM, "no memory to sample from %lld tokens",
                           (long long)vocab_size);
    }
    s->n = vocab_size;
    *out = s;
    return LATHE_OK;
}

void lathe_sampler_destroy(lathe_sampler *s)
{
    if (s) {
        free(s->list);
        free(s->scores);
        free(s->tiles);
        free(s->p);
        free(s->q);
    }
    free(s);
}

static int likelier_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Moves the `count` most likely of n candidates to the front, in any order. */
static void select_likeliest(candidate *list, int64_t n, int64_t count)
{
    int64_t first = 0, last = n - 1;
    while (first < last) {
        const candidate pivot = list[first + (last - first) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (likelier_first(&list[i], &pivot) < 0)
                i++;
            while (likelier_first(&list[j], &pivot) > 0)
                j--;
            if (i > j)
                break;
            const candidate x = list[i];
            list[i++] = list[j];
            list[j--] = x;
        }
        if (count - 1 <= j)
            last = j;
        else if (count - 1 >= i)
            first = i;
        else
            return;
    }
}

/* Candidate i of the sorted list. Sorting a whole vocabulary takes as long as running a small model
 * on a token, so only as many candidates are sorted as are needed. */
static const candidate *sorted(lathe_sampler *s, int64_t i)
{
    while (i >= s->n_sorted) {
        const int64_t left = s->n - s->n_sorted;
        int64_t more = s->n_sorted > 0 ? 3 * s->n_sorted : 64;
        more = more < left ? more : left;
        select_likeliest(s->list + s->n_sorted, left, more);
        qsort(s->list + s->n_sorted, (size_t)more, sizeof *s->list, likelier_first);
        s->n_sorted += more;
    }
    return &s->list[i];
}

/* Number of candidates, from the most likely one, that remain after top-k, top-p and min-p.
 * *io_total: the sum of all weights; then the sum of those that remain. */
static int64_t cut(lathe_sampler *s, const lathe_sampling *how, double *io_total)
{
    const int is_cut =
        (how->top_k > 0 && how->top_k < s->n) || how->top_p < 1.0 || how->min_p > 0.0;
    int64_t n = s->n, n_kept = 0;
    double mass = 0.0;
    if (!is_cut)
        return n;
    if (how->top_k > 0 && how->top_k < n) {
        n = how->top_k;
        *io_total = 0.0;
        for (int64_t i = 0; i < n; i++)
            *io_total += sorted(s, i)->weight;
    }
    const double enough = how->top_p < 1.0 ? how->top_p * *io_total : (double)INFINITY;
    const double least = how->min_p * sorted(s, 0)->weight;
    while (n_kept < n && mass < enough && (n_kept == 0 || sorted(s, n_kept)->weight >= least))
        mass += sorted(s, n_kept++)->weight;
    *io_total = mass;
    return n_kept;
}

/* Penalizes the logits of the tokens that occurred before. Each result is computed from the
 * original logit, so a token that occurred twice is penalized once. */
static const float *penalize(lathe_sampler *s, const float *logits, double penalty,
                             const int32_t *ids, int64_t n_ids)
{
    if (penalty == 0.0 || penalty == 1.0)
        return logits;
    memcpy(s->scores, logits, (size_t)s->n * sizeof *logits);
    for (int64_t i = 0; i < n_ids; i++) {
        const float x = logits[ids[i]], p = (float)penalty;
        s->scores[ids[i]] = x < 0.0f ? x * p : x / p;
    }
    return s->scores;
}

/* exp(x) for x <= 0, with a relative error below 1e-15; 0 below -700. It has no branches, so that
 * loops vectorise. */
static inline double exp_below_zero(double x)
{
    const double shifted = x * 1.4426950408889634 + 0x1.8p52, n = shifted - 0x1.8p52;
    const double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits, exponent;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&exponent, &shifted, sizeof exponent);
    bits += exponent << 52; /* p * 2^n: the low bits of `shifted` are n */
    memcpy(&p, &bits, sizeof p);
    return x < -700.0 ? 0.0 : p;
}

/* out[i] = exp((x[i] - top) / temperature) for a tile; returns their sum over four lanes. */
LATHE_TARGET_CLONES static double exponentials(const float *x, int64_t n, double top,
                                               double temperature, double *out)
{
    double lanes[4] = {0.0, 0.0, 0.0, 0.0};
    int64_t i = 0;
    for (i = 0; i < n; i++)
        out[i] = exp_below_zero(((double)x[i] - top) / temperature);
    for (i = 0; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            lanes[j] += out[i + j];
    for (; i < n; i++)
        lanes[0] += out[i];
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

/* Argument of the loops over tiles. */
typedef struct tile_job {
    lathe_sampler *s;
    const float *x; /* [n] logits, or penalized logits */
    double top, temperature;
    int32_t lists; /* 1: write the exponentials to the list of candidates */
} tile_job;

/* The largest element of a tile, found lane by lane so that the loop vectorises. */
static void look_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    enum { LANES = 8 };
    const tile_job *job = arg;
    const float *const x = job->x;
    tile *const t = &job->s->tiles[begin / TILE];
    float max[LANES], sums[LANES] = {0.0f};
    int64_t i = begin;
    (void)worker;
    for (int j = 0; j < LANES; j++)
        max[j] = x[begin];
    for (; i + LANES <= end; i += LANES)
        for (int j = 0; j < LANES; j++) {
            max[j] = x[i + j] > max[j] ? x[i + j] : max[j];
            sums[j] += x[i + j] - x[i + j]; /* NaN if the element is not finite, else 0 */
        }
    for (; i < end; i++) {
        max[0] = x[i] > max[0] ? x[i] : max[0];
        sums[0] += x[i] - x[i];
    }
    t->max = max[0];
    t->bad = 0;
    for (int j = 0; j < LANES; j++) {
        t->max = max[j] > t->max ? max[j] : t->max;
        t->bad |= isnan(sums[j]);
    }
}

/* Index of the first largest element. */
static int64_t largest(lathe_sampler *s, const float *x)
{
    tile_job job = {.s = s, .x = x};
    int64_t best = 0;
    lathe_parallel_for(s->n, TILE, look_range, &job);
    for (int64_t i = 1; i * TILE < s->n; i++)
        if (s->tiles[i].max > s->tiles[best].max)
            best = i;
    const float max = s->tiles[best].max;
    for (best *= TILE; best < s->n - 1 && x[best] != max;)
        best++;
    return best;
}

/* Whether all elements that largest() read were finite. */
static int were_finite(const lathe_sampler *s)
{
    int bad = 0;
    for (int64_t i = 0; i * TILE < s->n; i++)
        bad |= s->tiles[i].bad;
    return !bad;
}

static void weigh_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const tile_job *job = arg;
    double weights[TILE];
    (void)worker;
    job->s->tiles[begin / TILE].total =
        exponentials(job->x + begin, end - begin, job->top, job->temperature, weights);
    for (int64_t i = begin; job->lists && i < end; i++)
        job->s->list[i] = (candidate){weights[i - begin], (int32_t)i};
}

/* The sum of exp((x - top) / temperature). If `lists`, each term becomes a candidate's weight. */
static double weigh(lathe_sampler *s, const float *x, double top, double temperature, int32_t lists)
{
    tile_job job = {s, x, top, temperature, lists};
    double total = 0.0;
    lathe_parallel_for(s->n, TILE, weigh_range, &job);
    for (int64_t i = 0; i * TILE < s->n; i++)
        total += s->tiles[i].total;
    return total;
}

/* The uniform number of a position. */
static double uniform(const lathe_sampling *how, int64_t position, uint64_t stream)
{
    const lathe_u32x4 r = lathe_rng_block(how->seed, (uint64_t)position, stream, 0);
    return lathe_uniform_f64(r.v[0], r.v[1]);
}

static int64_t draw(lathe_sampler *s, const float *scores, double top, const lathe_sampling *how,
                    double number)
{
    double total = weigh(s, scores, top, how->temperature, 1);
    s->n_sorted = 0;
    const int64_t n = cut(s, how, &total);
    double left = number * total;
    int64_t i = 0;
    while (i < n - 1 && left >= sorted(s, i)->weight)
        left -= sorted(s, i++)->weight;
    return sorted(s, i)->id;
}

/* log softmax(logits)[token]; first: the index of the largest logit. */
static float logprob_of(lathe_sampler *s, const float *logits, int64_t first, int64_t token)
{
    const double top = (double)logits[first];
    return (float)((double)logits[token] - top - log(weigh(s, logits, top, 1.0, 0)));
}

static int32_t pick(lathe_sampler *s, const float *logits, const lathe_sampling *how,
                    const int32_t *ids, int64_t n_ids, uint64_t stream, float *out_logprob)
{
    const int64_t first = largest(s, logits);
    if (!were_finite(s))
        return -1;
    const float *scores = penalize(s, logits, how->repetition_penalty, ids, n_ids);
    int64_t picked = scores == logits ? first : largest(s, scores);
    if (how->temperature > 0.0)
        picked = draw(s, scores, (double)scores[picked], how, uniform(how, n_ids, stream));
    if (out_logprob)
        *out_logprob = logprob_of(s, logits, first, picked);
    return (int32_t)picked;
}

int32_t lathe_sampler_pick(lathe_sampler *s, const float *logits, const lathe_sampling *how,
                           const int32_t *ids, int64_t n_ids, float *out_logprob)
{
    return pick(s, logits, how, ids, n_ids, LATHE__STREAM_SAMPLE, out_logprob);
}

/* ---- speculative decoding ---- */

int32_t lathe_sampler_pick_draft(lathe_sampler *s, const float *logits, const lathe_sampling *how,
                                 const int32_t *ids, int64_t n_ids)
{
    return pick(s, logits, how, ids, n_ids, LATHE__STREAM_DRAFT, NULL);
}

int64_t lathe_sampler_distribution(lathe_sampler *s, const float *logits, const lathe_sampling *how,
                                   const int32_t *ids, int64_t n_ids, double *out)
{
    (void)largest(s, logits);
    if (!were_finite(s))
        return -1;
    const float *scores = penalize(s, logits, how->repetition_penalty, ids, n_ids);
    const double top = (double)scores[largest(s, scores)];
    double total = weigh(s, scores, top, how->temperature, 1);
    s->n_sorted = 0;
    const int64_t n = cut(s, how, &total);
    memset(out, 0, (size_t)s->n * sizeof *out);
    for (int64_t i = 0; i < n; i++)
        out[s->list[i].id] = s->list[i].weight / total;
    return n;
}

lathe_status lathe_sampler_room_to_verify(lathe_sampler *s)
{
    s->p = malloc((size_t)s->n * sizeof *s->p);
    s->q = malloc((size_t)s->n * sizeof *s->q);
    return s->p && s->q ? LATHE_OK
                        : lathe_error(LATHE_E_NOMEM, "no memory to verify drafted tokens");
}

/* A token of the distribution max(0, p - q), normalized. */
static int32_t draw_rest(const lathe_sampler *s, double number, int32_t otherwise)
{
    double total = 0.0;
    int32_t last = otherwise;
    for (int64_t i = 0; i < s->n; i++)
        total += s->p[i] > s->q[i] ? s->p[i] - s->q[i] : 0.0;
    double left = number * total;
    for (int64_t i = 0; i < s->n; i++) {
        const double rest = s->p[i] - s->q[i];
        if (!(rest > 0.0))
            continue;
        last = (int32_t)i;
        if (left < rest)
            break;
        left -= rest;
    }
    return last;
}

int32_t lathe_sampler_verify(lathe_sampler *s, const float *logits, const float *draft_logits,
                             int32_t drafted, const lathe_sampling *how, const int32_t *ids,
                             int64_t n_ids, float *out_logprob)
{
    if (!(how->temperature > 0.0))
        return pick(s, logits, how, ids, n_ids, LATHE__STREAM_SAMPLE, out_logprob);
    if (lathe_sampler_distribution(s, logits, how, ids, n_ids, s->p) < 0 ||
        lathe_sampler_distribution(s, draft_logits, how, ids, n_ids, s->q) < 0)
        return -1;
    int32_t token = drafted;
    if (!(uniform(how, n_ids, LATHE__STREAM_ACCEPT) * s->q[drafted] < s->p[drafted]))
        token = draw_rest(s, uniform(how, n_ids, LATHE__STREAM_SAMPLE), drafted);
    if (out_logprob)
        *out_logprob = logprob_of(s, logits, largest(s, logits), token);
    return token;
}
