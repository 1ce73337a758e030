/* Sampling a token: greedy, temperature, top-k, top-p, by hand; probabilities against transformers
 * (tests/golden/sampling.py); drafted tokens. */
#include <jansson.h>

#include "model/family/sample.h"
#include "support/run_case.h"

#include "base/parallel.h"

enum { V = 4, DRAWS = 20000 };

/* Probabilities 0.1, 0.4, 0.2, 0.3 as logits, plus a constant that has no effect. */
static const double p[V] = {0.1, 0.4, 0.2, 0.3};

static void fill_logits(float *logits)
{
    for (int i = 0; i < V; i++)
        logits[i] = (float)(log(p[i]) + 7.0);
}

/* Share of each token among DRAWS positions. */
static void draw(const lathe_sampling *how, double *share)
{
    float logits[V], logprob;
    lathe_sampler *s;
    fill_logits(logits);
    OK(lathe_sampler_create(V, &s));
    memset(share, 0, V * sizeof *share);
    for (int64_t position = 0; position < DRAWS; position++) {
        const int32_t token = lathe_sampler_pick(s, logits, how, NULL, position, &logprob);
        cr_assert(token >= 0 && token < V);
        /* for temperature 1 without cuts, whatever the settings */
        cr_assert_float_eq((double)logprob, log(p[token]), 1e-5);
        share[token] += 1.0 / DRAWS;
    }
    lathe_sampler_destroy(s);
}

/* Within four standard deviations of a count of DRAWS. */
static void check_shares(const double *share, const double *want)
{
    for (int i = 0; i < V; i++)
        cr_assert_float_eq(share[i], want[i], 4.0 * sqrt(want[i] * (1.0 - want[i]) / DRAWS) + 1e-9,
                           "token %d: share %g, expected %g", i, share[i], want[i]);
}

static lathe_sampling sampling(double temperature, int32_t top_k, double top_p)
{
    return (lathe_sampling){.size = (uint32_t)sizeof(lathe_sampling),
                            .max_new_tokens = 1,
                            .temperature = temperature,
                            .top_p = top_p,
                            .top_k = top_k,
                            .seed = 11};
}

Test(sample, temperature_zero_takes_the_likeliest_and_the_first_of_equals)
{
    const lathe_sampling greedy = sampling(0.0, 0, 1.0);
    const float equal[V] = {1.0f, 3.0f, 3.0f, -2.0f};
    double share[V];
    lathe_sampler *s;
    draw(&greedy, share);
    check_shares(share, (double[V]){0.0, 1.0, 0.0, 0.0});
    OK(lathe_sampler_create(V, &s));
    cr_assert_eq(lathe_sampler_pick(s, equal, &greedy, NULL, 0, NULL), 1);
    lathe_sampler_destroy(s);
}

Test(sample, shares_are_the_probabilities)
{
    const lathe_sampling plain = sampling(1.0, 0, 1.0);
    double share[V];
    draw(&plain, share);
    check_shares(share, p);
}

Test(sample, temperature_sharpens)
{
    /* p^2 of 0.01, 0.16, 0.04, 0.09, divided by their sum 0.3 */
    const lathe_sampling cold = sampling(0.5, 0, 1.0);
    double share[V];
    draw(&cold, share);
    check_shares(share, (double[V]){0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3});
}

Test(sample, top_k_keeps_the_k_likeliest)
{
    double share[V];
    const lathe_sampling two = sampling(1.0, 2, 1.0), many = sampling(1.0, 9, 1.0);
    draw(&two, share);
    check_shares(share, (double[V]){0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0});
    draw(&many, share);
    check_shares(share, p);
}

Test(sample, top_p_keeps_the_fewest_that_reach_it)
{
    double share[V];
    const lathe_sampling tiny = sampling(1.0, 0, 0.01), two = sampling(1.0, 0, 0.65),
                         three = sampling(1.0, 0, 0.75);
    draw(&tiny, share);
    check_shares(share, (double[V]){0.0, 1.0, 0.0, 0.0});
    draw(&two, share); /* 0.4 is below it, 0.4 + 0.3 is not */
    check_shares(share, (double[V]){0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0});
    draw(&three, share);
    check_shares(share, (double[V]){0.0, 4.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0});
}

Test(sample, top_p_is_a_share_of_what_top_k_left)
{
    /* of 4/7 and 3/7, the first alone reaches 0.5 */
    double share[V];
    const lathe_sampling both = sampling(1.0, 2, 0.5);
    draw(&both, share);
    check_shares(share, (double[V]){0.0, 1.0, 0.0, 0.0});
}

Test(sample, seed_and_position_alone_decide)
{
    float logits[V];
    lathe_sampler *a, *b;
    lathe_sampling how = sampling(1.0, 0, 1.0);
    int n_other = 0;
    fill_logits(logits);
    OK(lathe_sampler_create(V, &a));
    OK(lathe_sampler_create(V, &b));
    for (int64_t i = 0; i < 200; i++) {
        const int32_t forwards = lathe_sampler_pick(a, logits, &how, NULL, i, NULL);
        cr_assert_eq(lathe_sampler_pick(b, logits, &how, NULL, i, NULL), forwards);
        how.seed = 12;
        n_other += lathe_sampler_pick(b, logits, &how, NULL, i, NULL) != forwards;
        how.seed = 11;
    }
    cr_assert(n_other > 100 && n_other < 180, "%d of 200", n_other); /* 0.7 expected */
    lathe_sampler_destroy(a);
    lathe_sampler_destroy(b);
}

enum { LARGE = 5000 };

typedef struct ranked {
    double weight;
    int32_t id;
} ranked;

static int by_weight(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->id - y->id;
}

/* Index of the chosen token in the whole sorted list; and the number of tokens that the cuts
 * leave. */
static int64_t left_by_cuts(const ranked *list, const lathe_sampling *how)
{
    const int64_t k = how->top_k > 0 ? how->top_k : LARGE;
    double total = 0.0, mass = 0.0;
    int64_t n = 0;
    for (int64_t i = 0; i < k; i++)
        total += list[i].weight;
    while (n < k && mass < how->top_p * total)
        mass += list[n++].weight;
    return n;
}

/* Sorting only a part of the vocabulary must leave the same tokens as sorting all of it; equal ones
 * by id. */
Test(sample, of_a_large_vocabulary_draws_what_a_whole_sort_leaves)
{
    static float logits[LARGE];
    static ranked list[LARGE];
    static int32_t rank[LARGE];
    lathe_sampler *s;
    for (int32_t i = 0; i < LARGE; i++) {
        logits[i] = (float)((i * 7919) % 1013) * 0.01f; /* about five of each */
        list[i] = (ranked){exp((double)logits[i]), i};
    }
    qsort(list, LARGE, sizeof *list, by_weight);
    for (int32_t i = 0; i < LARGE; i++)
        rank[list[i].id] = i;
    OK(lathe_sampler_create(LARGE, &s));
    const lathe_sampling hows[] = {sampling(1.0, 0, 1.0), sampling(1.0, 7, 1.0),
                                   sampling(1.0, 300, 0.9), sampling(1.0, 0, 0.5)};
    for (int h = 0; h < 4; h++) {
        const int64_t n =
            hows[h].top_p < 1.0 || hows[h].top_k ? left_by_cuts(list, &hows[h]) : LARGE;
        int64_t highest = 0;
        for (int64_t position = 0; position < 3000; position++) {
            float logprob;
            const int32_t id = lathe_sampler_pick(s, logits, &hows[h], NULL, position, &logprob);
            cr_assert_lt(rank[id], n);
            highest = rank[id] > highest ? rank[id] : highest;
        }
        cr_assert_gt(highest, n / 2); /* not only the most likely one */
    }
    lathe_sampler_destroy(s);
}

Test(sample, any_number_of_workers_gives_the_same_tokens_and_logprobs)
{
    enum { WIDE = 5001, N = 40 };
    static float logits[WIDE], want_logprob[N];
    int32_t want[N];
    lathe_sampler *s;
    const lathe_sampling how = sampling(0.8, 0, 0.9);
    for (int i = 0; i < WIDE; i++)
        logits[i] = (float)((i * 7919) % 1013) * 0.01f - 3.0f;
    OK(lathe_sampler_create(WIDE, &s));
    for (int32_t n_threads = 1; n_threads <= 4; n_threads++) {
        lathe_parallel_init(n_threads);
        for (int i = 0; i < N; i++) {
            float logprob;
            const int32_t token = lathe_sampler_pick(s, logits, &how, NULL, i, &logprob);
            if (n_threads == 1) {
                want[i] = token;
                want_logprob[i] = logprob;
            }
            cr_assert_eq(token, want[i]);
            cr_assert_eq(logprob, want_logprob[i]);
        }
    }
    lathe_sampler_destroy(s);
}

Test(sample, the_first_of_equal_tokens_in_any_tile_is_the_likeliest)
{
    enum { WIDE = 2000 };
    static float logits[WIDE];
    lathe_sampler *s;
    const lathe_sampling greedy = sampling(0.0, 0, 1.0);
    OK(lathe_sampler_create(WIDE, &s));
    for (int first = 0; first < WIDE; first += 333) {
        for (int i = 0; i < WIDE; i++)
            logits[i] = i >= first && i % 3 == first % 3 ? 2.0f : -1.0f;
        cr_assert_eq(lathe_sampler_pick(s, logits, &greedy, NULL, 0, NULL), first);
        logits[WIDE - 1] = NAN;
        cr_assert_eq(lathe_sampler_pick(s, logits, &greedy, NULL, 0, NULL), -1);
        logits[WIDE - 1] = INFINITY;
        cr_assert_eq(lathe_sampler_pick(s, logits, &greedy, NULL, 0, NULL), -1);
    }
    lathe_sampler_destroy(s);
}

Test(sample, probabilities_are_those_of_the_logits_processors_of_transformers)
{
    enum { N = 40 };
    json_t *golden = json_load_file(LATHE_TEST_DATA "/golden/data/sampling.json", 0, NULL), *one;
    float logits[N];
    int32_t ids[8];
    double got[N];
    size_t i;
    lathe_sampler *s;
    cr_assert_not_null(golden);
    const json_t *list = json_object_get(golden, "ids");
    for (size_t k = 0; k < N; k++)
        logits[k] = (float)json_number_value(json_array_get(json_object_get(golden, "logits"), k));
    for (size_t k = 0; k < json_array_size(list); k++)
        ids[k] = (int32_t)json_integer_value(json_array_get(list, k));
    OK(lathe_sampler_create(N, &s));
    json_array_foreach(json_object_get(golden, "cases"), i, one)
    {
        lathe_sampling how = sampling(json_number_value(json_object_get(one, "temperature")),
                                      (int32_t)json_integer_value(json_object_get(one, "top_k")),
                                      json_number_value(json_object_get(one, "top_p")));
        how.min_p = json_number_value(json_object_get(one, "min_p"));
        how.repetition_penalty = json_number_value(json_object_get(one, "repetition_penalty"));
        const int64_t n_ids = (int64_t)json_array_size(list);
        cr_assert_gt(lathe_sampler_distribution(s, logits, &how, ids, n_ids, got), 0);
        for (size_t k = 0; k < N; k++)
            cr_expect_float_eq(got[k],
                               json_number_value(json_array_get(json_object_get(one, "p"), k)),
                               2e-6, "case %zu, token %zu: %g", i, k, got[k]);
    }
    lathe_sampler_destroy(s);
    json_decref(golden);
}

/* Draws from a draft's distribution and lets lathe_sampler_verify decide: the tokens have the
 * probabilities p, and the share that is kept is the sum of min(p, q). */
Test(sample, verified_drafts_have_the_probabilities_by_a_chi_square_test)
{
    static const float draft[V] = {1.2f, -0.4f, 0.9f, -2.0f};
    const lathe_sampling hows[] = {sampling(1.0, 0, 1.0), sampling(0.7, 3, 1.0),
                                   sampling(1.4, 0, 0.8)};
    float logits[V];
    lathe_sampler *s;
    fill_logits(logits);
    OK(lathe_sampler_create(V, &s));
    OK(lathe_sampler_room_to_verify(s));
    for (int h = 0; h < 3; h++) {
        double want[V], q[V], counts[V] = {0.0}, chi2 = 0.0, kept = 0.0, expected = 0.0;
        int n = 0;
        for (int64_t i = 0; i < DRAWS; i++) {
            const int32_t drafted = lathe_sampler_pick_draft(s, draft, &hows[h], NULL, i);
            float logprob;
            const int32_t token =
                lathe_sampler_verify(s, logits, draft, drafted, &hows[h], NULL, i, &logprob);
            cr_assert_float_eq((double)logprob, log(p[token]), 1e-5);
            counts[token]++;
            kept += token == drafted;
        }
        cr_assert_gt(lathe_sampler_distribution(s, logits, &hows[h], NULL, 0, want), 0);
        cr_assert_gt(lathe_sampler_distribution(s, draft, &hows[h], NULL, 0, q), 0);
        for (int k = 0; k < V; k++) {
            expected += fmin(want[k], q[k]);
            n += want[k] > 0.0;
            cr_assert(want[k] > 0.0 || counts[k] == 0.0, "token %d was cut", k);
            if (want[k] > 0.0)
                chi2 += pow(counts[k] - DRAWS * want[k], 2.0) / (DRAWS * want[k]);
        }
        /* 3 degrees of freedom at most: above 21 with a probability below 1e-4 */
        cr_expect_lt(chi2, 21.0, "settings %d: chi-square %g of %d tokens", h, chi2, n);
        cr_expect_float_eq(kept / DRAWS, expected, 4.0 * 0.5 / sqrt(DRAWS));
    }
    lathe_sampler_destroy(s);
}
