/* Speculative decoding: the same tokens without sampling, the same distribution with it, and the
 * draft models that are refused. */
#include "generate/draft_model.h"
#include "generate/generator.h"
#include "support/padded_models.h"
#include "support/small_run.h"

enum { N_MANY = 20, N_NEW = 14, LONGEST = 40 };

/* How a run is opened; draft NULL: none. Models are folders of MODELS, or paths. */
typedef struct opening {
    const char *model, *draft, *precision;
    int batch, draft_tokens, mode;
} opening;

static const char *root_of(const char *model)
{
    return model[0] == '/' ? "" : MODELS;
}

static lathe_status open_status(const opening *o, lathe_run **out)
{
    settings s = {.n = 0};
    set(&s, "model.path=%s%s", root_of(o->model), o->model);
    if (o->model[0] != '/')
        set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=64");
    set(&s, "train.precision=%s", o->precision);
    set(&s, "train.max_steps=1");
    set(&s, "generate.batch=%d", o->batch);
    if (o->draft)
        set(&s, "generate.draft=%s%s", root_of(o->draft), o->draft);
    set(&s, "generate.draft_tokens=%d", o->draft_tokens ? o->draft_tokens : 4);
    return open_run_status(o->mode ? o->mode : LATHE_OPEN_INFER, s.list, out);
}

static lathe_run *open_with(opening o)
{
    lathe_run *run = NULL;
    OK(open_status(&o, &run));
    return run;
}

static const lathe_sampling greedy = {
    .size = (uint32_t)sizeof greedy, .max_new_tokens = N_NEW, .top_p = 1.0};
static const lathe_sampling sampled = {.size = (uint32_t)sizeof sampled,
                                       .max_new_tokens = N_NEW,
                                       .temperature = 0.9,
                                       .top_k = 6,
                                       .top_p = 0.97,
                                       .min_p = 0.02,
                                       .repetition_penalty = 1.2};

/* Prompts of 1 to LONGEST tokens, several of them equal. */
static void make_prompts(lathe_prompt *out)
{
    static int32_t ids[LONGEST + 2];
    for (int i = 0; i < LONGEST + 2; i++)
        ids[i] = (i * i + 7 * i) % 60;
    for (int i = 0; i < N_MANY; i++)
        out[i] = (lathe_prompt){.size = (uint32_t)sizeof *out,
                                .n_tokens = 1 + i / 3 * 17 % LONGEST,
                                .tokens = ids + i / 3 % 2,
                                .seed = (uint64_t)i};
}

static void generate(lathe_run *run, const lathe_sampling *how, lathe_generation *out)
{
    lathe_prompt prompts[N_MANY];
    make_prompts(prompts);
    for (int i = 0; i < N_MANY; i++)
        out[i] = (lathe_generation){.size = (uint32_t)sizeof *out};
    OK(lathe_generate_many(run, prompts, N_MANY, how, out));
}

static void expect_same(const lathe_generation *got, const lathe_generation *want, const char *what)
{
    for (int i = 0; i < N_MANY; i++) {
        cr_assert_eq(got[i].n_tokens, want[i].n_tokens, "%s, prompt %d", what, i);
        cr_assert_eq(got[i].finish, want[i].finish, "%s, prompt %d", what, i);
        cr_assert_str_eq(got[i].text, want[i].text, "%s, prompt %d", what, i);
        for (int k = 0; k < want[i].n_tokens; k++) {
            cr_assert_eq(got[i].tokens[k], want[i].tokens[k], "%s, prompt %d, token %d", what, i,
                         k);
            cr_assert(got[i].logprobs[k] == want[i].logprobs[k],
                      "%s, prompt %d, token %d: log-probability %.9g, expected %.9g", what, i, k,
                      (double)got[i].logprobs[k], (double)want[i].logprobs[k]);
        }
    }
}

/* Tokens, log-probabilities and reasons of the end are those of generation without a draft. */
static void check_greedy(const char *model, const char *draft, const char *precision,
                         const lathe_sampling *how)
{
    static const int shapes[][2] = {{1, 4}, {3, 1}, {16, 5}}; /* batch, drafted tokens */
    lathe_generation want[N_MANY], got[N_MANY];
    lathe_run *plain = open_with((opening){model, NULL, precision, 1, 0, 0});
    generate(plain, how, want);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char what[128];
        int64_t proposed, accepted;
        lathe_run *run =
            open_with((opening){model, draft, precision, shapes[i][0], shapes[i][1], 0});
        (void)snprintf(what, sizeof what, "%s by %s in %s, batch %d", model, draft, precision,
                       shapes[i][0]);
        generate(run, how, got);
        expect_same(got, want, what);
        lathe_generator_drafts(run->generator, &proposed, &accepted);
        cr_expect_gt(proposed, 0, "%s", what);
        cr_expect(strcmp(model, draft) != 0 || strcmp(precision, "fp32") != 0 ||
                      (how->n_stop == 0 && accepted == proposed) || how->n_stop > 0,
                  "%s: %lld of %lld accepted", what, (long long)accepted, (long long)proposed);
        lathe_run_close(run);
    }
    lathe_run_close(plain);
}

Test(draft, changes_no_token_and_no_logprob_without_sampling)
{
    static const char *const models[][2] = {{"llama_untied", "llama_tied"},
                                            {"llama_tied", "gpt2"},
                                            {"gpt2", "llama_untied"},
                                            {"llama_untied", "llama_untied"},
                                            {"phi3", "phi3"}};
    lathe_sampling penalized = greedy;
    penalized.repetition_penalty = 1.3;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        check_greedy(models[i][0], models[i][1], "fp32", i % 2 ? &penalized : &greedy);
    check_greedy("llama_untied", "llama_tied", "bf16", &greedy);
}

Test(draft, keeps_the_end_at_a_stop_string)
{
    static const char *const stops[] = {"a", "e", "1", "\x05"};
    lathe_sampling how = greedy;
    how.stop = stops;
    how.n_stop = 4;
    how.repetition_penalty = 1.5;
    check_greedy("llama_untied", "llama_untied", "fp32", &how);
}

Test(draft, samples_the_same_tokens_whatever_the_batch)
{
    lathe_generation want[N_MANY], got[N_MANY];
    lathe_run *one = open_with((opening){"llama_untied", "llama_tied", "fp32", 1, 4, 0});
    lathe_run *many = open_with((opening){"llama_untied", "llama_tied", "fp32", 7, 4, 0});
    generate(one, &sampled, want);
    for (int again = 0; again < 2; again++) {
        generate(many, &sampled, got);
        expect_same(got, want, "batch 7");
    }
    lathe_run_close(many);
    lathe_run_close(one);
}

Test(draft, of_the_model_itself_is_always_accepted)
{
    lathe_generation got[N_MANY];
    int64_t proposed, accepted;
    lathe_run *run = open_with((opening){"llama_untied", "llama_untied", "fp32", 5, 4, 0});
    generate(run, &sampled, got);
    lathe_generator_drafts(run->generator, &proposed, &accepted);
    cr_expect_eq(accepted, proposed);
    cr_expect_gt(proposed, N_MANY * N_NEW / 2);
    lathe_run_close(run);
}

/* In a run of the C API, which makes generator and draft model at the first generation. */
Test(draft, has_the_logprobs_of_lathe_logprobs)
{
    lathe_generation got[N_MANY];
    lathe_run *run =
        open_with((opening){"llama_untied", "llama_tied", "fp32", 4, 4, LATHE_OPEN_BATCHES});
    generate(run, &sampled, got);
    for (int i = 0; i < N_MANY; i++) {
        int32_t tokens[64], targets[64];
        float logprobs[64];
        const int n = got[i].n_prompt_tokens + got[i].n_tokens;
        memcpy(tokens, got[i].prompt_tokens, (size_t)got[i].n_prompt_tokens * sizeof *tokens);
        memcpy(tokens + got[i].n_prompt_tokens, got[i].tokens,
               (size_t)got[i].n_tokens * sizeof *tokens);
        for (int k = 0; k < n; k++)
            targets[k] = k + 1 < n ? tokens[k + 1] : -1;
        const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                       .n_rows = 1,
                                       .row_tokens = n,
                                       .tokens = tokens,
                                       .targets = targets};
        OK(lathe_logprobs(run, &batch, logprobs));
        for (int k = 0; k < got[i].n_tokens; k++)
            cr_assert(got[i].logprobs[k] == logprobs[got[i].n_prompt_tokens - 1 + k],
                      "prompt %d, token %d", i, k);
    }
    lathe_run_close(run);
}

/* ---- embeddings that are filled up to different numbers of rows ---- */

static char padded[] = "/tmp/lathe_draft_XXXXXX";
static char padded_model[64], padded_more[64], padded_fewer[64];

static void make_padded(void)
{
    padded_models_make(padded, "llama_untied");
    (void)snprintf(padded_model, sizeof padded_model, "%s/model", padded);
    (void)snprintf(padded_more, sizeof padded_more, "%s/more", padded);
    (void)snprintf(padded_fewer, sizeof padded_fewer, "%s/fewer", padded);
}

static void remove_padded(void)
{
    (void)lathe_dir_remove(padded);
}

/* The model writes ids up to 127, for which the draft of 100 rows has no embedding. */
Test(draft, of_another_number_of_rows_changes_no_token, .init = make_padded, .fini = remove_padded)
{
    check_greedy(padded_model, padded_fewer, "fp32", &greedy);
    check_greedy(padded_model, padded_more, "fp32", &greedy);
    check_greedy(padded_model, padded_fewer, "bf16", &greedy);
}

Test(draft, of_another_number_of_rows_samples_whatever_the_batch, .init = make_padded,
     .fini = remove_padded)
{
    const char *const drafts[] = {padded_fewer, padded_more};
    lathe_generation want[N_MANY], got[N_MANY];
    for (int i = 0; i < 2; i++) {
        lathe_run *one = open_with((opening){padded_model, drafts[i], "fp32", 1, 4, 0});
        lathe_run *many = open_with((opening){padded_model, drafts[i], "fp32", 7, 4, 0});
        generate(one, &sampled, want);
        generate(many, &sampled, got);
        expect_same(got, want, drafts[i]);
        lathe_run_close(many);
        lathe_run_close(one);
    }
}

/* ---- the distribution ---- */

enum { V = 128, DRAWS = 1500 };

/* Counts of the second and third new token; these are the first that can be drafted. */
static void count_pairs(const char *model, const char *draft, uint64_t first_seed,
                        int counts[V * V])
{
    static const int32_t ids[3] = {7, 20, 33};
    static lathe_prompt prompts[DRAWS];
    static lathe_generation made[DRAWS];
    lathe_sampling how = sampled;
    lathe_run *run = open_with((opening){model, draft, "fp32", 16, 3, 0});
    how.max_new_tokens = 5;
    for (int i = 0; i < DRAWS; i++) {
        prompts[i] = (lathe_prompt){.size = (uint32_t)sizeof *prompts,
                                    .n_tokens = 3,
                                    .tokens = ids,
                                    .seed = first_seed + (uint64_t)i};
        made[i] = (lathe_generation){.size = (uint32_t)sizeof *made};
    }
    OK(lathe_generate_many(run, prompts, DRAWS, &how, made));
    for (int i = 0; i < DRAWS; i++)
        counts[made[i].tokens[1] * V + made[i].tokens[2]]++;
    lathe_run_close(run);
}

/* Two samples of equal size: the sum of (a - b)^2 / (a + b) is chi-square distributed with one
 * degree of freedom less than there are pairs. Rare pairs are counted as one. */
static void check_distribution(const char *model, const char *draft)
{
    static int with[V * V], without[V * V];
    double chi2 = 0.0, rare[2] = {0.0, 0.0};
    int n = 0;
    memset(with, 0, sizeof with);
    memset(without, 0, sizeof without);
    count_pairs(model, draft, 1000000, with);
    count_pairs(model, NULL, 1, without);
    for (int i = 0; i < V * V; i++) {
        const double a = with[i], b = without[i];
        if (a + b < 10.0) {
            rare[0] += a;
            rare[1] += b;
            continue;
        }
        chi2 += (a - b) * (a - b) / (a + b);
        n++;
    }
    if (rare[0] + rare[1] > 0.0)
        chi2 += (rare[0] - rare[1]) * (rare[0] - rare[1]) / (rare[0] + rare[1]);
    cr_expect_gt(n, 20, "%d pairs", n);
    /* mean n, variance 2 n: four and a half standard deviations */
    cr_expect_lt(chi2, n + 4.5 * sqrt(2.0 * n), "chi-square %g of %d pairs", chi2, n);
}

Test(draft, samples_the_distribution_of_the_model_by_a_chi_square_test)
{
    check_distribution("llama_untied", "llama_tied");
}

Test(draft, of_another_number_of_rows_samples_the_distribution_of_the_model, .init = make_padded,
     .fini = remove_padded)
{
    check_distribution(padded_model, padded_fewer);
    check_distribution(padded_model, padded_more);
}

/* ---- memory and refusals ---- */

Test(draft, has_weights_and_cache_in_the_plan)
{
    lathe_run *plain = open_with((opening){"llama_untied", NULL, "fp32", 1, 0, 0});
    lathe_run *run = open_with((opening){"llama_untied", "llama_tied", "fp32", 1, 4, 0});
    const int64_t weights = lathe_draft_bytes(run->draft);
    cr_expect_gt(weights, 0);
    cr_expect_eq(run->planned.by[LATHE_MEM_MODELS], plain->planned.by[LATHE_MEM_MODELS] + weights);
    cr_expect_eq(run->planned.by[LATHE_MEM_CACHE],
                 lathe_generator_needs(run->generator).cache_bytes);
    static const int kinds[] = {LATHE_MEM_MODELS, LATHE_MEM_CACHE};
    for (int i = 0; i < 2; i++)
        cr_expect_eq(run->machine.used.by[kinds[i]], run->planned.by[kinds[i]],
                     "%s: %lld bytes, planned %lld", lathe_mem_name(kinds[i]),
                     (long long)run->machine.used.by[kinds[i]],
                     (long long)run->planned.by[kinds[i]]);
    lathe_run_close(run);
    lathe_run_close(plain);
}

Test(draft, that_does_not_suit_the_model_is_refused)
{
    static const struct {
        const char *model, *draft, *want;
    } bad[] = {
        {"llama_untied", "mistral",
         "generate.draft = \"" MODELS "mistral\": the draft model has a vocabulary of 64 tokens, "
         "and the model one of 128, without tokenizers that could be compared; expected the same "
         "vocabulary"},
        {"llama_untied", "gone", "generate.draft: no such folder: " MODELS "gone"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lathe_run *run = NULL;
        const opening o = {bad[i].model, bad[i].draft, "fp32", 1, 4, 0};
        cr_expect_eq(open_status(&o, &run), LATHE_E_CONFIG, "%s", bad[i].draft);
        cr_expect(strstr(lathe_error_message(), bad[i].want), "%s", lathe_error_message());
    }
    settings s = {.n = 0};
    lathe_run *run = NULL;
    set(&s, "model.path=%sllama_untied", MODELS);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=128");
    set(&s, "generate.draft=%sllama_tied", MODELS);
    cr_expect_eq(open_run_status(LATHE_OPEN_INFER, s.list, &run), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "the draft model has 64 positions, fewer than the 128 "
                                            "of the sequences"),
              "%s", lathe_error_message());
}
