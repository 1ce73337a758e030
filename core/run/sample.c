/* Sampling. */
#include "run/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lathe/rng.h"

typedef struct candidate {
    double weight; /* exp((logit - max) / temperature) */
    int32_t id;
} candidate;

struct lathe_sampler {
    int64_t n;
    candidate *list; /* [n] */
    float *scores;   /* [n] logits after the penalty */
};

/* Stream of the counter RNG that sampling draws from. */
#define SAMPLE_STREAM 0x53414d504c45ull

lathe_status lathe_sampler_create(int64_t vocab_size, lathe_sampler **out)
{
    lathe_sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->list = malloc((size_t)vocab_size * sizeof *s->list);
        s->scores = malloc((size_t)vocab_size * sizeof *s->scores);
    }
    if (!s || !s->list || !s->scores) {
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

/* How many of the sorted candidates remain after top-k, top-p and min-p. */
static int64_t cut(const candidate *list, int64_t n, const lathe_sampling *how)
{
    if (how->top_k > 0 && how->top_k < n)
        n = how->top_k;
    if (how->top_p < 1.0) {
        double total = 0.0, mass = 0.0;
        int64_t kept = 0;
        for (int64_t i = 0; i < n; i++)
            total += list[i].weight;
        while (kept < n && mass < how->top_p * total)
            mass += list[kept++].weight;
        n = kept;
    }
    while (n > 1 && list[n - 1].weight < how->min_p * list[0].weight)
        n--;
    return n;
}

/* The logits with the penalty on the tokens that came before. Each is taken from the logits themselves, so that
 * a token that came twice is penalized once. */
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

static int64_t largest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static int64_t draw(lathe_sampler *s, const float *scores, double top, const lathe_sampling *how,
                    int64_t position)
{
    for (int64_t i = 0; i < s->n; i++)
        s->list[i] = (candidate){exp(((double)scores[i] - top) / how->temperature), (int32_t)i};
    qsort(s->list, (size_t)s->n, sizeof *s->list, likelier_first);
    const int64_t n = cut(s->list, s->n, how);
    double total = 0.0;
    for (int64_t i = 0; i < n; i++)
        total += s->list[i].weight;
    const lathe_u32x4 r = lathe_rng_block(how->seed, (uint64_t)position, SAMPLE_STREAM, 0);
    double left = lathe_uniform_f64(r.v[0], r.v[1]) * total;
    int64_t i = 0;
    while (i < n - 1 && left >= s->list[i].weight)
        left -= s->list[i++].weight;
    return s->list[i].id;
}

int32_t lathe_sampler_pick(lathe_sampler *s, const float *logits, const lathe_sampling *how,
                           const int32_t *ids, int64_t n_ids, float *out_logprob)
{
    const double top = (double)logits[largest(logits, s->n)];
    double sum = 0.0;
    int bad = 0;
    for (int64_t i = 0; i < s->n; i++) {
        bad |= !isfinite(logits[i]);
        sum += exp((double)logits[i] - top);
    }
    if (bad)
        return -1;
    const float *scores = penalize(s, logits, how->repetition_penalty, ids, n_ids);
    int64_t picked = largest(scores, s->n);
    if (how->temperature > 0.0)
        picked = draw(s, scores, (double)scores[picked], how, n_ids);
    if (out_logprob)
        *out_logprob = (float)((double)logits[picked] - top - log(sum));
    return (int32_t)picked;
}
