/* Generation on the emulated CUDA device, which draws on the device: the same text and the same
 * log-probabilities whatever the batch, those of lathe_logprobs in fp32, greedy tokens that a draft
 * model does not change, shared blocks of equal prompts, rollouts. */
#include "support/far_case.h"
#include "train/rollout.h"

static void set_cuda(settings *s, int where)
{
    (void)where;
    setenv("LATHE_EMULATOR_SPLITS", "1", 1); /* the order of sums depends on the number of rows */
    use_emulated_gpu(LATHE_TEST_BUILD);
    set(s, "device.name=cuda");
    set(s, "attention.name=reference_cuda");
}

#define set_where set_cuda
#include "support/generate_case.h"
#include "support/padded_models.h"

enum { N = 6, N_NEW = 4 };

static const lathe_sampling sampled = {
    .size = (uint32_t)sizeof sampled, .max_new_tokens = N_NEW, .temperature = 1.0, .top_p = 0.9};
static const lathe_sampling greedy = {
    .size = (uint32_t)sizeof greedy, .max_new_tokens = N_NEW, .top_p = 1.0};
static const lathe_sampling penalized = {.size = (uint32_t)sizeof penalized,
                                         .max_new_tokens = N_NEW,
                                         .temperature = 0.8,
                                         .top_k = 12,
                                         .top_p = 0.95,
                                         .min_p = 0.02,
                                         .repetition_penalty = 1.3};

/* One after the other, and four at a time in a cache of 100 tokens. */
static void check_batches(opening o, const lathe_sampling *how)
{
    lathe_generation want[N], got[N];
    o.batch = 1;
    lathe_run *alone = open_with(o);
    generate(alone, how, N, want);
    for (int i = 0; i < N && strcmp(o.precision, "fp32") == 0; i += 4)
        expect_logprobs(alone, &want[i], o.model);
    o.batch = 4;
    o.cache_tokens = 100;
    lathe_run *run = open_with(o);
    generate(run, how, N, got);
    expect_same(got, want, N, o.model);
    lathe_run_close(run);
    lathe_run_close(alone);
}

Test(generate_cuda, gives_the_same_bits_whatever_the_batch_and_those_of_logprobs)
{
    check_batches((opening){.model = "llama_untied", .precision = "fp32"}, &sampled);
    check_batches((opening){.model = "gpt2", .precision = "fp32"}, &penalized);
}

Test(generate_cuda, gives_the_same_bits_with_windows_and_soft_caps)
{
    check_batches((opening){.model = "gemma2", .precision = "fp32"}, &sampled);
    check_batches((opening){.model = "qwen2_window", .precision = "fp32"}, &greedy);
}

Test(generate_cuda, gives_the_same_text_in_bf16_whatever_the_batch)
{
    check_batches((opening){.model = "llama_untied", .precision = "bf16"}, &penalized);
}

/* The logits of an adapted head are the sum of two products. */
Test(generate_cuda, gives_the_same_bits_with_an_adapter_of_the_head)
{
    opening o = {.model = "llama_untied", .precision = "fp32", .adapter = "outer_untied"};
    check_batches(o, &sampled);
    o.precision = "bf16";
    check_batches(o, &sampled);
    o.adapter = "outer_dora_head"; /* whose magnitude scales the logits */
    check_batches(o, &sampled);
}

static void check_draft_of(const char *model, const char *draft, const char *precision,
                           const lathe_sampling *how, int compares_plain)
{
    lathe_generation want[N], got[N];
    int64_t proposed, accepted;
    lathe_run *one =
        open_with((opening){model, compares_plain ? NULL : draft, precision, 0, 1, 0, 3, NULL});
    generate(one, how, N, want);
    lathe_run *run = open_with((opening){model, draft, precision, 0, 4, 0, 3, NULL});
    generate(run, how, N, got);
    expect_same(got, want, N, compares_plain ? "without a draft" : "other batch");
    lathe_generator_drafts(run->generator, &proposed, &accepted);
    cr_expect_gt(proposed, 0);
    lathe_run_close(run);
    lathe_run_close(one);
}

static void check_draft(const char *precision, const lathe_sampling *how, int compares_plain)
{
    check_draft_of("llama_untied", "llama_tied", precision, how, compares_plain);
}

Test(generate_cuda, drafts_change_no_token_and_no_logprob_without_sampling)
{
    check_draft("fp32", &greedy, 1);
    check_draft("bf16", &greedy, 1);
}

Test(generate_cuda, drafts_give_the_same_tokens_whatever_the_batch)
{
    check_draft("fp32", &penalized, 0);
}

/* The draft's logits stay on the device, where tokens that it lacks have the probability 0; one
 * with more rows than the model is refused. */
Test(generate_cuda, drafts_with_fewer_rows_give_the_same_tokens)
{
    char padded[] = "/tmp/lathe_padded_XXXXXX", model[64], draft[64];
    settings s = {.n = 0};
    lathe_run *run = NULL;
    padded_models_make(padded, "llama_untied");
    (void)snprintf(model, sizeof model, "%s/model", padded);
    (void)snprintf(draft, sizeof draft, "%s/fewer", padded);
    check_draft_of(model, draft, "fp32", &greedy, 1);
    check_draft_of(model, draft, "fp32", &penalized, 0);
    set_where(&s, 0);
    set(&s, "model.path=%s", model);
    set(&s, "data.seq_len=64");
    set(&s, "generate.draft=%s/more", padded);
    cr_expect_eq(open_run_status(LATHE_OPEN_INFER, s.list, &run), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "the draft model has 150 rows of vocabulary, and the "
                                            "model 128"),
              "%s", lathe_error_message());
    (void)lathe_dir_remove(padded);
}

Test(generate_cuda, accepts_every_token_of_the_model_itself)
{
    lathe_generation made[N];
    int64_t proposed, accepted;
    lathe_run *run = open_with((opening){"llama_untied", "llama_untied", "fp32", 0, 1, 0, 3, NULL});
    generate(run, &sampled, N, made);
    lathe_generator_drafts(run->generator, &proposed, &accepted);
    cr_expect(proposed > 0 && accepted == proposed, "%lld of %lld", (long long)accepted,
              (long long)proposed);
    for (int32_t k = 0; k < LATHE_N_MEM; k++)
        cr_expect_eq(run->machine.used.by[k], run->planned.by[k], "%s: %lld used, %lld planned",
                     lathe_mem_name(k), (long long)run->machine.used.by[k],
                     (long long)run->planned.by[k]);
    lathe_run_close(run);
}

/* The CPU, which adds in other orders, draws the same tokens where no choice is near a limit. */
Test(generate_cuda, draws_as_the_cpu_does)
{
    lathe_generation got[N], want[N];
    lathe_run *cuda = open_with((opening){"llama_untied", NULL, "fp32", 0, 4, 0, 0, NULL});
    generate(cuda, &penalized, N, got);
    settings s = {.n = 0};
    set(&s, "model.path=%sllama_untied", MODELS);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=64");
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=1");
    unsetenv("LATHE_PLUGIN_PATH");
    unsetenv("LATHE_PLUGIN_OVERRIDE");
    lathe_run *cpu = open_run(LATHE_OPEN_BATCHES, s.list);
    generate(cpu, &penalized, N, want);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N_NEW; k++) {
            cr_assert_eq(got[i].tokens[k], want[i].tokens[k], "prompt %d, token %d", i, k);
            cr_assert_float_eq(got[i].logprobs[k], want[i].logprobs[k], 1e-4);
        }
    lathe_run_close(cpu);
    lathe_run_close(cuda);
}

/* ---- rollouts ---- */

static void rollouts(int batch, const char *const *more, double out[2][LATHE_MAX_STAGE_FIGURES])
{
    char folder[] = "/tmp/lathe_generate_cuda_XXXXXX", path[256];
    settings s = {.n = 0};
    cr_assert(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/prompts.jsonl", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 10; i++)
        fprintf(f, "{\"prompt\": \"part %d\"}\n", i);
    fclose(f);
    set_where(&s, 0);
    set(&s, "data.datasets=[{path = \"%s/prompts.jsonl\"}]", folder);
    set(&s, "data.cache_dir=%s/cache", folder);
    set(&s, "tokenizer.path=bytes");
    set_llama(&s, 1, 32, 2, 2, 64);
    set(&s, "data.seq_len=24");
    set(&s, "stage.name=ppo");
    set(&s, "stage.prompts=2");
    set(&s, "stage.group=2");
    set(&s, "stage.max_new_tokens=4");
    set_all(&s, more);
    set(&s, "reward.name=length");
    set(&s, "reward.rule=target");
    set(&s, "reward.tokens=3");
    set(&s, "optimizer.name=adamw");
    set(&s, "optimizer.lr=1e-2");
    set(&s, "train.precision=fp32");
    set(&s, "train.threads=1");
    set(&s, "train.micro_batch_size=4");
    set(&s, "train.max_steps=2");
    set(&s, "generate.batch=%d", batch);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int i = 0; i < 2; i++) {
        lathe_rollout r = {.stop = NULL};
        OK(lathe_rollout_step(run, &r));
        cr_assert_eq(r.bad, 0);
        OK(lathe_step(run, NULL));
        memcpy(out[i], r.figures, sizeof r.figures);
    }
    for (int32_t k = 0; k < LATHE_N_MEM; k++)
        cr_expect_eq(run->machine.used.by[k], run->planned.by[k], "%s", lathe_mem_name(k));
    lathe_run_close(run);
    OK(lathe_dir_remove(folder));
}

static void check_rollouts(const char *const *more)
{
    double want[2][LATHE_MAX_STAGE_FIGURES], got[2][LATHE_MAX_STAGE_FIGURES];
    rollouts(1, more, want);
    rollouts(4, more, got);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < LATHE_MAX_STAGE_FIGURES; k++)
            cr_expect(got[i][k] == want[i][k] || (isnan(got[i][k]) && isnan(want[i][k])),
                      "step %d, figure %d: %.9g, one by one %.9g", i + 1, k, got[i][k], want[i][k]);
}

Test(generate_cuda, rollouts_of_groups_do_not_depend_on_the_batch)
{
    check_rollouts((const char *const[]){"stage.advantage=group", NULL});
}

Test(generate_cuda, rollouts_with_a_critic_do_not_depend_on_the_batch)
{
    check_rollouts((const char *const[]){"stage.advantage=gae", "stage.kl_coef=0.1", NULL});
}
