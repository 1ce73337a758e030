/* Sampling. */
#include "run/sample.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "lathe/rng.h"

typedef struct candidate {
    double weight; /* exp((logit - max) / temperature) */
    int32_t id;
} candidate;

struct lathe_sampler {
    int64_t n;
    candidate *list; /* [n] */
};

/* Stream of the counter RNG that sampling draws from. */
#define SAMPLE_STREAM 0x53414d504c45ull

lathe_status lathe_sampler_create(int64_t vocab_size, lathe_sampler **out)
{
    lathe_sampler *s = calloc(1, sizeof *s);
    if (s)
        s->list = malloc((size_t)vocab_size * sizeof *s->list);
    if (!s || !s->list) {
        free(s);
        return lathe_error(LATHE_E_NOMEM, "no memory to sample from %lld tokens",
                           (long long)vocab_size);
    }
    s->n = vocab_size;
    *out = s;
    return LATHE_OK;
}

void lathe_sampler_destroy(lathe_sampler *s)
{
    if (s)
        free(s->list);
    free(s);
}

static int likelier_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* How many of the sorted candidates remain after top-k and top-p. */
static int64_t cut(const candidate *list, int64_t n, const lathe_sampling *how)
{
    if (how->top_k > 0 && how->top_k < n)
        n = how->top_k;
    if (how->top_p >= 1.0)
        return n;
    double total = 0.0, mass = 0.0;
    for (int64_t i = 0; i < n; i++)
        total += list[i].weight;
    for (int64_t i = 0; i < n; i++) {
        mass += list[i].weight;
        if (mass >= how->top_p * total)
            return i + 1;
    }
    return n;
}

int32_t lathe_sampler_pick(lathe_sampler *s, const float *logits, const lathe_sampling *how,
                           int64_t position, float *out_logprob)
{
    int64_t best = 0;
    for (int64_t i = 1; i < s->n; i++)
        if (logits[i] > logits[best])
            best = i;
    const double top = (double)logits[best];
    double sum = 0.0;
    for (int64_t i = 0; i < s->n; i++)
        sum += exp((double)logits[i] - top);
    int64_t picked = best;
    if (how->temperature > 0.0) {
        for (int64_t i = 0; i < s->n; i++)
            s->list[i] = (candidate){exp(((double)logits[i] - top) / how->temperature), (int32_t)i};
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
        picked = s->list[i].id;
    }
    if (out_logprob)
        *out_logprob = (float)((double)logits[picked] - top - log(sum));
    return (int32_t)picked;
}
