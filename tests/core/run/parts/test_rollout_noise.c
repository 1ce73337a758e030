/* Noise in norms while completions are written (quant.noise): its schedule against the function of
 * QeRL's authors, logits against PyTorch with the same noise, training and evaluation without it,
 * resuming, refusals. Golden: tests/golden/aqn.py. */
#include <math.h>

#include "run/parts/rollout_noise.h"
#include "support/checkpoint_case.h"

enum { STEPS = 6, TOTAL = 60 };

static char dir[64];

static void make_dir(void)
{
    char path[128];
    snprintf(dir, sizeof dir, "/tmp/lathe-noise-XXXXXX");
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/prompts.jsonl", dir);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 7; i++)
        fprintf(f, "{\"prompt\": \"%.*s\", \"answer\": %d}\n", 3 + i, "turn the wheel", i);
    fclose(f);
    snprintf(path, sizeof path, "%s/corpus.txt", dir);
    write_corpus(path, 2000);
}

static void drop_dir(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(rollout_noise, .init = make_dir, .fini = drop_dir);

static const lathe_safetensors *golden(void)
{
    static lathe_safetensors *file;
    if (!file)
        OK(lathe_safetensors_open(LATHE_TEST_DATA "/golden/data/aqn.safetensors", &file));
    return file;
}

static const lathe_st_tensor *tensor(const lathe_safetensors *file, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(file, name);
    cr_assert(t, "the golden lacks %s", name);
    return t;
}

static void set_ppo(settings *s)
{
    set(s, "data.seq_len=23");
    set(s, "log.progress=off");
    set(s, "stage.name=ppo");
    set(s, "stage.prompts=2");
    set(s, "stage.group=2");
    set(s, "stage.max_new_tokens=6");
    set(s, "stage.entropy_coef=0.1"); /* a gradient for completions of equal rewards too */
    set(s, "train.precision=fp32");
    set(s, "train.micro_batch_size=2");
    set(s, "train.threads=1");
    set(s, "optimizer.lr=0.01");
    set(s, "reward.name=length");
    set(s, "reward.rule=target");
    set(s, "reward.tokens=3");
    set(s, "adapter.name=lora");
    set(s, "adapter.r=4");
    set(s, "quant.name=nf4");
}

/* A small random model, whose linear layers nf4 can hold. */
static void configure_random(settings *s)
{
    set_llama(s, 2, 64, 2, 1, 64);
    set(s, "model.initializer_range=0.5"); /* logits that noise moves by more than a draw's width */
    set(s, "tokenizer.path=bytes");
    set(s, "data.datasets=[{path = \"%s/prompts.jsonl\"}]", dir);
    set(s, "data.cache_dir=%s/cache", dir);
    set(s, "data.prefetch=0");
    set(s, "checkpoint.dir=%s/out", dir);
    set_ppo(s);
    set(s, "train.max_steps=%d", STEPS);
}

/* ---- the schedule ---- */

/* pow() of another library: a few units in the last place. */
Test(rollout_noise, falls_as_the_authors_function_says)
{
    static const int stages[] = {3, 10};
    for (int k = 0; k < 2; k++) {
        char name[32];
        snprintf(name, sizeof name, "sigma.%d", stages[k]);
        const double *want = tensor(golden(), name)->data;
        for (int step = 0; step <= TOTAL; step++) {
            const double got = lathe_noise_sigma(1e-2, 5e-4, stages[k], step, TOTAL);
            cr_expect_float_eq(got, want[step], 1e-14 * want[step], "%s, step %d: %.17g, %.17g",
                               name, step, got, want[step]);
        }
    }
    cr_expect_eq(lathe_noise_sigma(0.5, 0.1, 2, 4, 10), 0.0);
    cr_expect_eq(lathe_noise_sigma(0.5, 0.1, 2, 5, 10), 0.5);
}

/* ---- the noise ---- */

static void logits_of(lathe_run *run, const float **out, int64_t *out_n)
{
    const lathe_st_tensor *ids = tensor(golden(), "input_ids");
    const lathe_run_batch batch = {.size = sizeof batch,
                                   .n_rows = (int32_t)ids->desc.dims[0],
                                   .row_tokens = (int32_t)ids->desc.dims[1],
                                   .tokens = ids->data};
    lathe_forward_result f = {.size = sizeof f};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &f));
    *out = f.logits;
    *out_n = batch.n_rows * batch.row_tokens * f.vocab_size;
}

/* With one stage after the first, the noise of step 7 of 8 is quant.noise. */
Test(rollout_noise, logits_are_those_of_pytorch_with_the_same_noise)
{
    settings s = {.n = 0};
    const float *logits = NULL;
    int64_t n = 0;
    set(&s, "model.path=" MODELS "llama_untied");
    set_ppo(&s);
    set(&s, "train.seed=77");
    set(&s, "train.max_steps=8");
    set(&s, "quant.noise=0.05");
    set(&s, "quant.noise_stages=2");
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, s.list);
    lathe_safetensors *plain = NULL;
    OK(lathe_safetensors_open(LATHE_TEST_DATA "/golden/data/runs/nf4.safetensors", &plain));
    cr_expect_eq(run->iteration.noise.n, 4, "two norms of two layers: %d", run->iteration.noise.n);
    run->at.step = 7;
    OK(lathe__noise_add(run));
    logits_of(run, &logits, &n);
    compare("with noise", logits, tensor(golden(), "logits")->data, n, 2e-5);
    float *before = malloc((size_t)n * sizeof *before);
    OK(lathe__noise_remove(run));
    logits_of(run, &logits, &n);
    compare("after it", logits, tensor(plain, "logits")->data, n, 2e-5);
    memcpy(before, logits, (size_t)n * sizeof *before);
    run->at.step = 3; /* in the part without noise */
    OK(lathe__noise_add(run));
    logits_of(run, &logits, &n);
    cr_expect_eq(memcmp(before, logits, (size_t)n * sizeof *before), 0);
    OK(lathe__noise_remove(run));
    free(before);
    lathe_run_close(run);
    lathe_safetensors_close(plain);
}

/* Text of the run's metrics.jsonl without its times. */
static int64_t lines_that_differ(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    int64_t n = 0, differ = 0;
    OK(lathe_file_read(a, 0, &x, &n));
    OK(lathe_file_read(b, 0, &y, &n));
    for (int step = 1; step <= STEPS; step++) {
        char at[32];
        snprintf(at, sizeof at, "{\"step\": %d,", step);
        const char *p = strstr(x, at), *q = strstr(y, at);
        cr_assert(p && q, "step %d", step);
        differ += strtod(strstr(p, "\"grad_norm\": ") + 13, NULL) !=
                  strtod(strstr(q, "\"grad_norm\": ") + 13, NULL);
    }
    free(x);
    free(y);
    return differ;
}

static void train_to(const char *name, const char *const *more)
{
    settings s = {.n = 0};
    configure_random(&s);
    set_all(&s, more);
    OK(train_once(&s, NULL, NULL));
    cr_assert_eq(rename(in(dir, "out"), in(dir, "%s", name)), 0);
}

/* The rollouts of the first part are those of a run without noise, and so are its steps; later ones
 * are others. What is saved has no noise: the norms do not train. */
Test(rollout_noise, is_in_rollouts_alone)
{
    static const char *const none[] = {"checkpoint.every=6", NULL};
    static const char *const noisy[] = {"quant.noise=0.5", "quant.noise_stages=2",
                                        "checkpoint.every=6", NULL};
    train_to("plain", none);
    train_to("noisy", noisy);
    const int64_t differ =
        lines_that_differ(in(dir, "plain/metrics.jsonl"), in(dir, "noisy/metrics.jsonl"));
    cr_expect(differ > 0 && differ <= STEPS / 2, "%lld of the steps differ", (long long)differ);
    settings s = {.n = 0};
    configure_random(&s);
    set_all(&s, noisy);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int32_t row = lathe_params_find(&run->params, "model.layers.0.input_layernorm.weight");
    run->at.step = STEPS - 1;
    OK(lathe__noise_add(run));
    cr_expect_neq(lathe_store_master(&run->store, row)[0], 1.0f);
    OK(lathe__noise_remove(run));
    for (int i = 0; i < 64; i++)
        cr_expect_eq(lathe_store_master(&run->store, row)[i], 1.0f);
    lathe_run_close(run);
}

Test(rollout_noise, a_resumed_run_has_the_same_bits)
{
    static const char *const noisy[] = {"quant.noise=0.3", "quant.noise_stages=4", "stage.epochs=2",
                                        NULL};
    static const char *const files[] = {"adapter_model.safetensors", "state/optimizer.safetensors",
                                        "state/stage.safetensors"};
    train_to("whole", noisy);
    for (int stop = 3; stop <= 4; stop++) {
        settings s = {.n = 0};
        configure_random(&s);
        set_all(&s, noisy);
        set(&s, "train.stop_after=%d", stop);
        OK(train_once(&s, NULL, NULL));
        s.list[--s.n] = NULL;
        OK(train_once(&s, NULL, NULL));
        for (size_t k = 0; k < sizeof files / sizeof files[0]; k++)
            expect_same_file(in(dir, "whole/step-%08d/%s", STEPS, files[k]),
                             in(dir, "out/step-%08d/%s", STEPS, files[k]));
        OK(lathe_dir_remove(in(dir, "out")));
    }
}

/* ---- refusals ---- */

static void check_refused(const char *const *more, const char *part)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure_random(&s);
    set_all(&s, more);
    cr_expect_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG, "%s", part);
    cr_expect(strstr(lathe_error_message(), part), "no '%s' in: %s", part, lathe_error_message());
    lathe_run_close(run);
}

Test(rollout_noise, where_it_has_no_effect_it_is_refused)
{
    static const char *const idle[] = {"quant.noise_stages=5", NULL};
    static const char *const rising[] = {"quant.noise=0.001", "quant.noise_end=0.01", NULL};
    static const char *const head[] = {"quant.noise=0.01", "quant.include_modules=[\"o_proj\"]",
                                       NULL};
    check_refused(idle, "quant.noise_stages has no effect: it belongs to quant.noise");
    check_refused(rising, "quant.noise_end = 0.01 is above quant.noise = 0.001");
    check_refused(head, "no quantized layer of this model reads a norm directly");
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure(&s, dir);
    set(&s, "model.hidden_size=64");
    set(&s, "adapter.name=lora");
    set(&s, "quant.name=nf4");
    set(&s, "quant.noise=0.01");
    cr_expect_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "stage \"pretrain\" writes none"), "%s",
              lathe_error_message());
    lathe_run_close(run);
}
