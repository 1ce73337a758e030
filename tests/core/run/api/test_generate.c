/* Generation with the KV cache compared with full forwards, and the primitives' logprobs. */
#include "support/small_run.h"

enum { N_NEW = 24, MAX_T = 128 };

/* 70 bytes: more than one chunk of the prompt, and a remainder. */
static const char long_prompt[] =
    "a thread is cut while the wheel turns and oil drips down on the tool..";

static lathe_run *open_golden(const char *model, int seq_len, const char *const *more)
{
    settings s = {.n = 0};
    set(&s, "model.path=%s%s", MODELS, model);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=%d", seq_len);
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=10");
    set_all(&s, more);
    return open_run(LATHE_OPEN_BATCHES, s.list);
}

static int64_t argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* Every generated token is the most likely one of a full forward; its log-probability equals that
 * of lathe_logprobs, bit for bit. */
static void check_greedy(const char *model, int seq_len, const char *prompt,
                         const char *const *more)
{
    lathe_run *run = open_golden(model, seq_len, more);
    const lathe_sampling greedy = {
        .size = (uint32_t)sizeof greedy, .max_new_tokens = N_NEW, .top_p = 1.0};
    lathe_generation g = {.size = (uint32_t)sizeof g};
    int32_t tokens[MAX_T], targets[MAX_T];
    float logprobs[MAX_T];
    OK(lathe_generate(run, prompt, &greedy, &g));
    cr_assert_eq(g.n_tokens, N_NEW);
    int n = 0;
    for (; prompt[n]; n++)
        tokens[n] = (unsigned char)prompt[n];
    const int n_prompt = n;
    for (int i = 0; i < N_NEW; i++) {
        const lathe_run_batch batch = {
            .size = (uint32_t)sizeof batch, .n_rows = 1, .row_tokens = n, .tokens = tokens};
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &f));
        const int64_t best = argmax(f.logits + (n - 1) * f.vocab_size, f.vocab_size);
        cr_assert_eq(g.tokens[i], best, "%s, new token %d: %d, the full forward's is %lld", model,
                     i, g.tokens[i], (long long)best);
        tokens[n++] = g.tokens[i];
    }
    for (int i = 0; i < n; i++)
        targets[i] = i + 1 < n ? tokens[i + 1] : -1;
    const lathe_run_batch all = {.size = (uint32_t)sizeof all,
                                 .n_rows = 1,
                                 .row_tokens = n,
                                 .tokens = tokens,
                                 .targets = targets};
    OK(lathe_logprobs(run, &all, logprobs));
    for (int i = 0; i < N_NEW; i++)
        cr_assert(g.logprobs[i] == logprobs[n_prompt - 1 + i],
                  "%s, new token %d: log-probability %.9g, %.9g by lathe_logprobs", model, i,
                  (double)g.logprobs[i], (double)logprobs[n_prompt - 1 + i]);
    lathe_run_close(run);
}

Test(generate, greedy_through_the_cache_is_the_argmax_of_full_forwards)
{
    static const char *const none[] = {NULL};
    check_greedy("llama_untied", 128, long_prompt, none);
    check_greedy("llama_untied", 128, "x", none);
    check_greedy("llama_tied", 64, "the wheel turns", none);
    check_greedy("qwen3", 64, "the wheel turns", none);
    check_greedy("qwen2", 64, "the wheel turns", none);
    check_greedy("gpt2", 64, "the wheel turns", none);
}

Test(generate, greedy_with_the_reference_attention_and_with_quantized_weights)
{
    static const char *const reference[] = {"attention.name=reference", NULL};
    static const char *const quantized[] = {"adapter.name=lora", "quant.name=nf4", NULL};
    static const char *const int8[] = {"adapter.name=lora", "quant.name=int8",
                                       "quant.activations=int8", "quant.outlier_threshold=1.0",
                                       NULL};
    check_greedy("llama_untied", 128, long_prompt, reference);
    check_greedy("llama_untied", 128, long_prompt, quantized);
    check_greedy("llama_untied", 128, long_prompt, int8);
}

Test(generate, the_seed_alone_decides_a_sample)
{
    static const char *const none[] = {NULL};
    lathe_run *run = open_golden("llama_untied", 128, none);
    lathe_sampling how = {.size = (uint32_t)sizeof how,
                          .max_new_tokens = N_NEW,
                          .temperature = 1.0,
                          .top_p = 1.0,
                          .seed = 5};
    lathe_generation g = {.size = (uint32_t)sizeof g};
    int32_t first[N_NEW];
    OK(lathe_generate(run, long_prompt, &how, &g));
    memcpy(first, g.tokens, sizeof first);
    OK(lathe_generate(run, "something else in between", &how, &g));
    OK(lathe_generate(run, long_prompt, &how, &g));
    cr_assert_eq(memcmp(first, g.tokens, sizeof first), 0);
    how.seed = 6;
    OK(lathe_generate(run, long_prompt, &how, &g));
    cr_assert_neq(memcmp(first, g.tokens, sizeof first), 0);
    lathe_run_close(run);
}

Test(generate, ids_beyond_the_tokenizer_have_no_text)
{
    settings s = {.n = 0};
    lathe_generation g = {.size = (uint32_t)sizeof g};
    const lathe_sampling how = {.size = (uint32_t)sizeof how,
                                .max_new_tokens = 60,
                                .temperature = 1.0,
                                .top_p = 1.0,
                                .seed = 1};
    int64_t n_text = 0;
    set_llama(&s, 1, 16, 2, 2, 16); /* 320 ids for 257 tokens, with almost equal probabilities */
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=64");
    set(&s, "train.max_steps=10");
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, s.list);
    OK(lathe_generate(run, "a", &how, &g));
    for (int i = 0; i < g.n_tokens; i++)
        n_text += g.tokens[i] < 256;
    cr_assert_eq(g.n_tokens, 60);
    cr_assert_lt(n_text, 60);
    cr_assert_eq(g.text_bytes, n_text);
    lathe_run_close(run);
}

Test(generate, nothing_is_dropped_outside_training)
{
    static const char *const with[] = {"adapter.name=lora", "adapter.dropout=0.5", NULL};
    static const char *const without[] = {"adapter.name=lora", NULL};
    float logprobs[2][32];
    int32_t tokens[32], targets[32];
    double losses[2];
    for (int i = 0; i < 32; i++) {
        tokens[i] = i * 37 % 128;
        targets[i] = (i + 1) * 37 % 128;
    }
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = 1,
                                   .row_tokens = 32,
                                   .tokens = tokens,
                                   .targets = targets};
    for (int k = 0; k < 2; k++) {
        lathe_run *run = open_golden("llama_untied", 32, k ? with : without);
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        for (int32_t i = run->params.n_model; i < run->params.n; i++) /* B starts at zero */
            for (int64_t j = 0; j < lathe_desc_count(&run->params.rows[i]->desc); j++)
                lathe_store_master(&run->store, i)[j] = (float)((i + j) % 7 - 3) * 0.05f;
        OK(lathe_logprobs(run, &batch, logprobs[k]));
        OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
        losses[k] = f.loss_sum;
        lathe_run_close(run);
    }
    cr_assert_eq(memcmp(logprobs[0], logprobs[1], sizeof logprobs[0]), 0);
    cr_assert(fabs(losses[0] - losses[1]) > 1e-3, "training with dropout has the loss without");
}
