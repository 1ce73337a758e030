/* lathe_generate_many: results of many prompts, and what it refuses. */
#include "small_run.h"

enum { N_NEW = 12, N_PROMPTS = 5 };

static lathe_run *open_golden(void)
{
    settings s = {.n = 0};
    set(&s, "model.path=%s%s", MODELS, "llama_untied");
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=128");
    set(&s, "train.precision=fp32");
    return open_run(LATHE_OPEN_INFER, s.list);
}

static const lathe_sampling sampled = {
    .size = (uint32_t)sizeof sampled, .max_new_tokens = N_NEW, .temperature = 1.0, .top_p = 0.9};

static const char *const texts[N_PROMPTS] = {
    "the wheel turns", "x", "oil drips down on the tool and the part spins and chips fly off it",
    "the wheel turns", "a"};

static lathe_prompt text_prompt(const char *text, uint64_t seed)
{
    return (lathe_prompt){.size = (uint32_t)sizeof(lathe_prompt), .text = text, .seed = seed};
}

static void begin_results(lathe_generation *out, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = (lathe_generation){.size = (uint32_t)sizeof *out};
}

static void expect_same(const lathe_generation *got, const lathe_generation *want, int i)
{
    cr_assert_eq(got->n_tokens, want->n_tokens, "prompt %d: %d tokens, alone %d", i, got->n_tokens,
                 want->n_tokens);
    for (int k = 0; k < want->n_tokens; k++) {
        cr_assert_eq(got->tokens[k], want->tokens[k], "prompt %d, token %d", i, k);
        cr_assert(got->logprobs[k] == want->logprobs[k],
                  "prompt %d, token %d: log-probability %.9g, alone %.9g", i, k,
                  (double)got->logprobs[k], (double)want->logprobs[k]);
    }
    cr_assert_eq(got->n_prompt_tokens, want->n_prompt_tokens);
    cr_assert_eq(got->text_bytes, want->text_bytes);
    cr_assert_str_eq(got->text, want->text);
}

Test(generate_many, gives_each_prompt_what_it_gives_alone)
{
    lathe_run *run = open_golden();
    lathe_prompt prompts[N_PROMPTS];
    lathe_generation many[N_PROMPTS], alone = {.size = (uint32_t)sizeof alone};
    for (int i = 0; i < N_PROMPTS; i++)
        prompts[i] = text_prompt(texts[i], (uint64_t)(i + 7));
    for (int i = 0; i < N_PROMPTS; i++) {
        lathe_run *other = open_golden();
        lathe_sampling how = sampled;
        how.seed = prompts[i].seed;
        OK(lathe_generate(other, texts[i], &how, &alone));
        begin_results(many, N_PROMPTS);
        OK(lathe_generate_many(run, prompts, N_PROMPTS, &sampled, many));
        expect_same(&many[i], &alone, i);
        lathe_run_close(other);
    }
    cr_expect(strcmp(many[0].text, many[3].text) != 0, "the seeds of equal prompts change nothing");
    lathe_run_close(run);
}

Test(generate_many, takes_ids_as_they_are)
{
    lathe_run *run = open_golden();
    static const int32_t ids[] = {'t', 'h', 'e', ' ', 'w', 'h', 'e', 'e', 'l'};
    lathe_prompt prompts[2] = {text_prompt("the wheel", 3), text_prompt(NULL, 3)};
    lathe_generation many[2];
    prompts[1].tokens = ids;
    prompts[1].n_tokens = 9;
    begin_results(many, 2);
    OK(lathe_generate_many(run, prompts, 2, &sampled, many));
    expect_same(&many[1], &many[0], 1);
    cr_expect_eq(memcmp(many[1].prompt_tokens, ids, sizeof ids), 0);
    OK(lathe_generate_many(run, NULL, 0, &sampled, NULL));
    lathe_run_close(run);
}

Test(generate_many, names_the_prompt_that_it_refuses)
{
    lathe_run *run = open_golden();
    static const int32_t ids[200] = {1, 2, 128};
    static const struct {
        int32_t n;
        const char *want;
    } bad[] = {{3, "token 2 of the prompt is 128; expected 0 to 127"},
               {0, "lathe_prompt.n_tokens is 0; expected at least 1"},
               {200, "token 2 of the prompt is 128"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lathe_prompt prompts[2] = {text_prompt("the wheel", 3), text_prompt(NULL, 3)};
        lathe_generation many[2];
        prompts[1].tokens = ids;
        prompts[1].n_tokens = bad[i].n;
        begin_results(many, 2);
        cr_expect_eq(lathe_generate_many(run, prompts, 2, &sampled, many), LATHE_E_ARG);
        cr_expect(strstr(lathe_error_message(), "prompt 1: "), "%s", lathe_error_message());
        cr_expect(strstr(lathe_error_message(), bad[i].want), "%s", lathe_error_message());
    }
    cr_expect_eq(lathe_generate_many(run, NULL, 1, &sampled, NULL), LATHE_E_ARG);
    lathe_run_close(run);
}
