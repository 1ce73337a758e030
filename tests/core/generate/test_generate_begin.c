/* How a generated text begins and what ends it: BOS as in training and evaluation, and weights that
 * are not finite. */
#include "base/fs.h"
#include "base/log.h"
#include "support/small_run.h"

static char dir[] = "/tmp/lathe_begin_XXXXXX";

static void setup(void)
{
    make_folder(dir, 4000);
}

static void teardown(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(generate_begin, .init = setup, .fini = teardown);

static lathe_run *open_small(int32_t mode, const char *tokenizer)
{
    settings s = {.n = 0};
    set_data(&s, dir);
    set_llama(&s, 1, 32, 2, 2, 32);
    set(&s, "model.vocab_size=1500");
    set(&s, "tokenizer.path=%s", tokenizer);
    set(&s, "data.seq_len=32");
    set(&s, "data.validation_split=0.5");
    set(&s, "train.max_steps=4");
    set(&s, "train.precision=fp32");
    s.list[3] = "log.progress=off"; /* replaces set_data's tokenizer by the requested one */
    return open_run(mode, s.list);
}

static const lathe_sampling one = {
    .size = (uint32_t)sizeof one, .max_new_tokens = 1, .temperature = 0.0, .top_p = 1.0};

/* The log-probability of the most likely token after these ids, by a full forward. */
static double best_logprob(lathe_run *run, const int32_t *ids, int n)
{
    const lathe_run_batch batch = {
        .size = (uint32_t)sizeof batch, .n_rows = 1, .row_tokens = n, .tokens = ids};
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &f));
    const float *row = f.logits + (n - 1) * f.vocab_size;
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < f.vocab_size; i++)
        top = fmax(top, (double)row[i]);
    for (int64_t i = 0; i < f.vocab_size; i++)
        sum += exp((double)row[i] - top);
    return -log(sum);
}

static double generated_logprob(lathe_run *run, const char *prompt)
{
    lathe_generation g = {.size = (uint32_t)sizeof g};
    OK(lathe_generate(run, prompt, &one, &g));
    cr_assert_eq(g.n_tokens, 1);
    return (double)g.logprobs[0];
}

/* Checks the ids of the prompt with the template's BOS before it, as in training and evaluation. */
static void check_begin(const char *tokenizer, const char *prompt, const char *with_bos)
{
    lathe_run *run = open_small(LATHE_OPEN_INFER, tokenizer);
    lathe_ids ids = {0}, bare = {0};
    OK(lathe_tokenizer_encode(run->data.tokenizer, prompt, (int64_t)strlen(prompt),
                              LATHE_ENCODE_ADD_SPECIAL, &ids));
    OK(lathe_tokenizer_encode(run->data.tokenizer, prompt, (int64_t)strlen(prompt), 0, &bare));
    cr_assert_eq(ids.n, bare.n + 1);
    const double want = best_logprob(run, ids.data, (int)ids.n);
    const double without = best_logprob(run, bare.data, (int)bare.n);
    cr_assert(fabs(want - without) > 1e-4, "BOS changes nothing: the test cannot tell");
    cr_expect_float_eq(generated_logprob(run, prompt), want, 2e-5);
    cr_expect_float_eq(generated_logprob(run, with_bos), want, 2e-5, "%s has two BOS", with_bos);
    lathe_ids_fini(&ids);
    lathe_ids_fini(&bare);
    lathe_run_close(run);
}

Test(generate_begin, a_prompt_begins_with_the_bos_of_the_template_once)
{
    check_begin(LATHE_TEST_DATA "/golden/data/tokenizer/llama3.json", "the wheel turns",
                "<|begin_of_text|>the wheel turns");
    check_begin(LATHE_TEST_DATA "/golden/data/tokenizer_equality/llama2.json", "the wheel turns",
                "<s>the wheel turns");
}

Test(generate_begin, an_empty_prompt_is_the_bos_alone)
{
    lathe_run *run =
        open_small(LATHE_OPEN_INFER, LATHE_TEST_DATA "/golden/data/tokenizer/llama3.json");
    const int32_t bos = 0;
    cr_expect_float_eq(generated_logprob(run, ""), best_logprob(run, &bos, 1), 2e-5);
    lathe_run_close(run);
}

static int32_t row_of(const lathe_run *run, const char *name)
{
    const int32_t i = lathe_params_find(&run->params, name);
    cr_assert_geq(i, 0, "%s", name);
    return i;
}

static void spoil(lathe_run *run, const char *name, int64_t at, float value)
{
    const int32_t i = row_of(run, name);
    float *row = lathe_store_master(&run->store, i);
    if (row == NULL)
        row = lathe_store_shadow(&run->store, i); /* f32: train.precision */
    row[at] = value;
}

Test(generate_begin, generating_with_weights_that_are_not_finite_fails_and_names_the_first)
{
    lathe_run *run = open_small(LATHE_OPEN_INFER, "bytes");
    lathe_generation g = {.size = (uint32_t)sizeof g};
    OK(lathe_generate(run, "the", &one, &g));
    spoil(run, "model.layers.0.mlp.down_proj.weight", 7, NAN);
    spoil(run, "model.norm.weight", 0, INFINITY);
    cr_expect_eq(lathe_generate(run, "the", &one, &g), LATHE_E_NUMERIC);
    cr_expect_str_eq(lathe_error_message(),
                     "the logits of token 3 are not finite, because 1 of 1024 values of the "
                     "parameter 'model.layers.0.mlp.down_proj.weight' are not: the first is nan, "
                     "at 7; use the weights of an earlier checkpoint",
                     "%s", lathe_error_message());
    lathe_run_close(run);
}

Test(generate_begin, logits_that_overflow_although_the_weights_are_finite_are_reported)
{
    lathe_run *run = open_small(LATHE_OPEN_INFER, "bytes");
    lathe_generation g = {.size = (uint32_t)sizeof g};
    for (int64_t i = 0; i < 32; i++)
        spoil(run, "model.norm.weight", i, 3e38f);
    for (int64_t i = 0; i < 32; i++)
        spoil(run, "lm_head.weight", i, 3e38f);
    cr_expect_eq(lathe_generate(run, "the", &one, &g), LATHE_E_NUMERIC);
    cr_expect_str_eq(lathe_error_message(),
                     "the logits of token 3 are not finite, although every parameter is: the "
                     "computation in fp32 overflows",
                     "%s", lathe_error_message());
    lathe_run_close(run);
}

Test(generate_begin, evaluating_weights_that_are_not_finite_fails_and_names_the_first)
{
    lathe_run *run = open_small(LATHE_OPEN_EVALUATE, "bytes");
    lathe_evaluation e;
    OK(lathe_evaluate(run, 1, NULL, &e));
    spoil(run, "model.embed_tokens.weight", 32 * (int64_t)' ', INFINITY);
    cr_expect_eq(lathe_evaluate(run, 1, NULL, &e), LATHE_E_NUMERIC, "loss %g", e.loss);
    cr_expect_str_eq(lathe_error_message(),
                     "the losses of micro-batch 1 are not finite, because 1 of 48000 values of the "
                     "parameter 'model.embed_tokens.weight' are not: the first is inf, at 1024; "
                     "use the weights of an earlier checkpoint",
                     "%s", lathe_error_message());
    lathe_run_close(run);
}

static int n_warned;
static char warning[512];

static void hear_warning(void *arg, int32_t level, const char *message)
{
    (void)arg;
    if (level != LATHE_LOG_WARN)
        return;
    n_warned++;
    snprintf(warning, sizeof warning, "%s", message);
}

Test(generate_begin, bytes_of_the_prompt_without_a_token_are_warned_of_once)
{
    static const char lacked[] = "\"\xc3\xb1\": 174,"; /* the byte 0xf1 */
    char *text, path[256];
    int64_t n;
    OK(lathe_file_read(LATHE_TEST_DATA "/golden/data/tokenizer/gpt2.json", 0, &text, &n));
    cr_assert_not_null(strstr(text, lacked));
    memset(strstr(text, lacked), ' ', strlen(lacked));
    snprintf(path, sizeof path, "%s/lacks.json", dir);
    OK(lathe_file_write_atomic(path, text, n));
    free(text);
    lathe_run *run = open_small(LATHE_OPEN_INFER, path);
    lathe_log_set_sink(hear_warning, NULL);
    (void)generated_logprob(run, "a");
    cr_expect_eq(n_warned, 0);
    (void)generated_logprob(run, "a\xf1\x80\x80\x80z");
    (void)generated_logprob(run, "a\xf1\x80\x80\x80z");
    lathe_log_set_sink(NULL, NULL);
    cr_expect_eq(n_warned, 1);
    cr_expect(strstr(warning, "the prompt: the tokenizer has no token for 1 bytes") &&
                  strstr(warning, "0xf1 (1)"),
              "%s", warning);
    lathe_run_close(run);
}
