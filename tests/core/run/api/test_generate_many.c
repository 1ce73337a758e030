/* lathe_generate_many: results of many prompts, and what it refuses. */
#include "generate/generator.h"
#include "run/api/generate.h"
#include "support/golden_folders.h"
#include "support/small_run.h"

enum { N_NEW = 12, N_PROMPTS = 5 };

static lathe_run *open_with(const char *model, const char *precision, int batch, int cache_tokens)
{
    settings s = {.n = 0};
    set(&s, "model.path=%s%s", MODELS, model);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=%d", strcmp(model, "llama_untied") == 0 ? 128 : 64);
    set(&s, "train.precision=%s", precision);
    set(&s, "train.max_steps=1");
    set(&s, "generate.batch=%d", batch);
    set(&s, "generate.cache_tokens=%d", cache_tokens);
    return open_run(LATHE_OPEN_BATCHES, s.list);
}

static lathe_run *open_golden(void)
{
    return open_with("llama_untied", "fp32", 16, 0);
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

enum { N_MANY = 24, LONGEST = 105 };

/* Prompts of 1 to `longest` tokens, several of them equal. */
static void make_prompts(lathe_prompt *out, int longest)
{
    static int32_t ids[LONGEST];
    for (int i = 0; i < LONGEST; i++)
        ids[i] = (i * i + 7 * i) % 64;
    for (int i = 0; i < N_MANY; i++) {
        out[i] = text_prompt(NULL, (uint64_t)i);
        out[i].n_tokens = 1 + i / 3 * 37 % longest;
        out[i].tokens = ids + i / 3 % 2;
    }
}

/* The log-probabilities of a result are those of lathe_logprobs, bit for bit. */
static void expect_logprobs(lathe_run *run, const char *model, const lathe_generation *g, int i)
{
    int32_t tokens[128], targets[128];
    float logprobs[128];
    const int n = g->n_prompt_tokens + g->n_tokens;
    memcpy(tokens, g->prompt_tokens, (size_t)g->n_prompt_tokens * sizeof *tokens);
    memcpy(tokens + g->n_prompt_tokens, g->tokens, (size_t)g->n_tokens * sizeof *tokens);
    for (int k = 0; k < n; k++)
        targets[k] = k + 1 < n ? tokens[k + 1] : -1;
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = 1,
                                   .row_tokens = n,
                                   .tokens = tokens,
                                   .targets = targets};
    OK(lathe_logprobs(run, &batch, logprobs));
    for (int k = 0; k < g->n_tokens; k++)
        cr_assert(g->logprobs[k] == logprobs[g->n_prompt_tokens - 1 + k],
                  "%s, prompt %d, token %d: log-probability %.9g, %.9g by lathe_logprobs", model, i,
                  k, (double)g->logprobs[k], (double)logprobs[g->n_prompt_tokens - 1 + k]);
}

static void check_batches(const char *model, const char *precision)
{
    static const int batches[][2] = {{16, 0}, {3, 0}, {5, 160}};
    lathe_prompt prompts[N_MANY];
    lathe_generation alone[N_MANY], many[N_MANY];
    lathe_run *run = open_with(model, precision, 1, 0);
    make_prompts(prompts, strcmp(model, "llama_untied") == 0 ? LONGEST - 1 : 50);
    begin_results(alone, N_MANY);
    OK(lathe_generate_many(run, prompts, N_MANY, &sampled, alone));
    /* phi3: longrope computes the keys anew when the text grows, as transformers does */
    for (int i = 0; i < N_MANY && strcmp(precision, "fp32") == 0 && strcmp(model, "phi3") != 0; i++)
        expect_logprobs(run, model, &alone[i], i);
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
        lathe_run *other = open_with(model, precision, batches[b][0], batches[b][1]);
        for (int again = 0; again < 2; again++) {
            begin_results(many, N_MANY);
            OK(lathe_generate_many(other, prompts, N_MANY, &sampled, many));
            for (int i = 0; i < N_MANY; i++)
                expect_same(&many[i], &alone[i], i);
        }
        lathe_run_close(other);
    }
    lathe_run_close(run);
}

Test(generate_many, gives_the_same_bits_whatever_the_batch_and_those_of_logprobs)
{
    golden_folders all;
    golden_folders_find(&all);
    for (int i = 0; i < all.n; i++)
        check_batches(all.names[i], "fp32");
}

Test(generate_many, gives_the_same_text_in_bf16_whatever_the_batch)
{
    check_batches("llama_untied", "bf16");
    check_batches("gpt2", "bf16");
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

Test(generate_many, ends_before_the_first_stop_string)
{
    lathe_run *run = open_golden();
    const lathe_prompt prompts[2] = {text_prompt("the wheel turns", 3), text_prompt("x", 4)};
    lathe_generation whole[2], cut[2];
    char stop[4] = "";
    lathe_sampling how = sampled;
    begin_results(whole, 2);
    begin_results(cut, 2);
    OK(lathe_generate_many(run, prompts, 2, &how, whole));
    cr_assert_eq(whole[0].n_tokens, N_NEW);
    cr_expect_eq(whole[0].finish, LATHE_FINISH_LENGTH);
    memcpy(stop, whole[0].text + 6, 2); /* a stop string over two tokens */
    const int64_t at = strstr(whole[0].text, stop) - whole[0].text;
    char *text = strdup(whole[0].text);
    const char *const stops[2] = {"never", stop};
    how.stop = stops;
    how.n_stop = 2;
    OK(lathe_generate_many(run, prompts, 1, &how, cut));
    cr_expect_eq(cut[0].finish, LATHE_FINISH_STOP);
    cr_expect_eq(cut[0].n_tokens, at + 2);
    cr_expect_eq(cut[0].text_bytes, at);
    cr_expect(strncmp(cut[0].text, text, (size_t)at) == 0 && cut[0].text[at] == '\0');
    const char *const empty[1] = {""};
    how.stop = empty;
    how.n_stop = 1;
    cr_expect_eq(lathe_generate_many(run, prompts, 1, &how, cut), LATHE_E_ARG);
    cr_expect(strstr(lathe_error_message(), "stop string 0 is empty"), "%s", lathe_error_message());
    free(text);
    lathe_run_close(run);
}

static lathe_status open_stopping(const char *names, lathe_run **out)
{
    settings s = {.n = 0};
    set(&s, "model.path=%sllama_untied", MODELS);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=64");
    set(&s, "train.precision=fp32");
    set(&s, "generate.stop_tokens=%s", names);
    return open_run_status(LATHE_OPEN_INFER, s.list, out);
}

Test(generate_many, ends_at_stop_tokens_by_name_and_by_id)
{
    lathe_run *run = NULL;
    lathe_sampling how = {.size = (uint32_t)sizeof how};
    lathe_generation g = {.size = (uint32_t)sizeof g};
    int first = 0;
    OK(open_stopping("[]", &run));
    OK(lathe_default_sampling(run, &how));
    cr_expect_eq(how.n_stop_tokens, 0);
    how.stop_at_eos = 0;
    how.max_new_tokens = N_NEW;
    OK(lathe_generate(run, "the wheel", &how, &g));
    cr_assert_eq(g.n_tokens, N_NEW);
    const int32_t stop = g.tokens[4];
    while (g.tokens[first] != stop)
        first++;
    how.stop_tokens = &stop;
    how.n_stop_tokens = 1;
    OK(lathe_generate(run, "the wheel", &how, &g));
    cr_expect_eq(g.n_tokens, first + 1);
    cr_expect_eq(g.finish, LATHE_FINISH_EOS);
    how.stop_tokens = NULL;
    cr_expect_eq(lathe_generate(run, "the wheel", &how, &g), LATHE_E_ARG);
    lathe_run_close(run);
    OK(open_stopping("[\"a\", \"e\"]", &run));
    OK(lathe_default_sampling(run, &how));
    cr_assert_eq(how.n_stop_tokens, 2);
    cr_expect_eq(how.stop_tokens[1], 'e');
    lathe_run_close(run);
    cr_expect_eq(open_stopping("[\"<|gone|>\"]", &run), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(),
                     "generate.stop_tokens: the tokenizer has no token \"<|gone|>\""),
              "%s", lathe_error_message());
    cr_expect_eq(open_stopping("[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
                               "\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]",
                               &run),
                 LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "generate.stop_tokens has 17 tokens"), "%s",
              lathe_error_message());
}

Test(generate_many, shares_the_blocks_of_equal_prompts)
{
    enum { N = 12 };
    lathe_run *run = open_with("llama_untied", "fp32", N, 2000);
    lathe_prompt prompts[N];
    lathe_generation many[N];
    for (int i = 0; i < N; i++) {
        prompts[i] = text_prompt("oil drips down on the tool and the part spins and chips fly off "
                                 "it so that the wheel turns",
                                 (uint64_t)i);
    }
    begin_results(many, N);
    OK(lathe_generate_many(run, prompts, N, &sampled, many));
    const int32_t max = lathe_generator_max_blocks(run->generator);
    /* the prompt of 91 tokens has 3 blocks; each sample has one or two of its own */
    cr_expect_leq(max, 3 + 2 * N, "%d blocks", max);
    cr_expect_geq(max, 3 + N, "%d blocks", max);
    lathe_run_close(run);
}

/* arg: how often the answer is still no. */
static int32_t asks_after(void *arg)
{
    int *left = arg;
    return (*left)-- <= 0;
}

Test(generate_many, begins_no_prompt_after_it_was_asked_to_stop)
{
    lathe_run *run = open_golden();
    lathe_prompt prompts[N_PROMPTS];
    lathe_generation whole[N_PROMPTS], cut[N_PROMPTS];
    int left = 2;
    for (int i = 0; i < N_PROMPTS; i++)
        prompts[i] = text_prompt(texts[i], (uint64_t)i);
    begin_results(cut, N_PROMPTS);
    begin_results(whole, N_PROMPTS);
    OK(lathe__generate_many(run, prompts, N_PROMPTS, &sampled,
                            (lathe__stop_check){asks_after, &left}, cut));
    cr_expect_eq(left, -1, "asked again after the answer");
    for (int i = 2; i < N_PROMPTS; i++)
        cr_expect_null(cut[i].text);
    lathe_run *other = open_golden();
    OK(lathe_generate_many(other, prompts, 2, &sampled, whole));
    for (int i = 0; i < 2; i++)
        expect_same(&cut[i], &whole[i], i);
    lathe_run_close(other);
    lathe_run_close(run);
}
