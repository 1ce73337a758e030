/* Evaluation, generation and the primitives on a device whose memory the host cannot access: the
 * bits of the CPU. */
#include "support/far_case.h"

enum { N = 12 };

typedef struct answers {
    lathe_evaluation evaluation;
    int32_t tokens[N];
    float logprobs[N], given[N];
    float *logits;
    int64_t n_logits;
    double loss, grad_norm, param_norm;
} answers;

static void ask(int where, answers *out)
{
    static const int32_t tokens[N] = {1, 7, 300, 4, 4, 9, 250, 31, 8, 8, 2, 5};
    char dir[] = "/tmp/lathe_far_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_small(&s, dir, where);
    set(&s, "data.validation_split=0.1");
    set(&s, "train.precision=bf16");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_evaluate(run, 5, NULL, &out->evaluation));
    const lathe_sampling how = {.size = (uint32_t)sizeof how,
                                .max_new_tokens = N,
                                .temperature = 1.0,
                                .top_p = 1.0,
                                .seed = 11};
    lathe_generation g = {.size = (uint32_t)sizeof g};
    OK(lathe_generate(run, "the wheel", &how, &g));
    cr_assert_eq(g.n_tokens, N);
    memcpy(out->tokens, g.tokens, sizeof out->tokens);
    memcpy(out->logprobs, g.logprobs, sizeof out->logprobs);
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = 1,
                                   .row_tokens = N - 1,
                                   .tokens = tokens,
                                   .targets = tokens + 1};
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_logprobs(run, &batch, out->given));
    OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &f));
    out->n_logits = (N - 1) * f.vocab_size;
    out->logits = malloc((size_t)out->n_logits * sizeof *out->logits);
    memcpy(out->logits, f.logits, (size_t)out->n_logits * sizeof *out->logits);
    lathe_backward_result b = {.size = (uint32_t)sizeof b};
    lathe_step_result step = {.size = (uint32_t)sizeof step};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, &b));
    OK(lathe_step(run, &step));
    out->loss = f.loss_sum;
    out->grad_norm = b.grad_norm;
    out->param_norm = step.param_norm;
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(far_inference, has_the_bits_of_the_cpu)
{
    answers want = {.loss = 0.0};
    ask(ON_CPU, &want);
    for (int w = ON_FAR; w < N_WHERE; w++) {
        answers got = {.loss = 0.0};
        ask(w, &got);
        cr_assert_eq(got.evaluation.loss, want.evaluation.loss);
        cr_assert_eq(got.evaluation.ece, want.evaluation.ece);
        cr_assert_eq(got.evaluation.token_accuracy, want.evaluation.token_accuracy);
        cr_assert_arr_eq(got.tokens, want.tokens, sizeof want.tokens);
        cr_assert_arr_eq(got.logprobs, want.logprobs, sizeof want.logprobs);
        cr_assert_arr_eq(got.given, want.given, sizeof *want.given * (N - 1));
        cr_assert_arr_eq(got.logits, want.logits, (size_t)want.n_logits * sizeof *want.logits);
        cr_assert_eq(got.loss, want.loss);
        cr_assert_eq(got.grad_norm, want.grad_norm);
        /* summed by the optimizer's kernel in another order: n terms of 2^-53 */
        cr_assert_float_eq(got.param_norm, want.param_norm, 1e-12 * want.param_norm);
        free(got.logits);
    }
    free(want.logits);
}

/* Programs that only generate or evaluate: without optimizer and gradients. */
Test(far_inference, opens_for_generation_and_for_evaluation_alone)
{
    char dir[] = "/tmp/lathe_far_XXXXXX";
    double loss[2];
    char text[2][256];
    make_folder(dir, 20000);
    for (int w = 0; w < 2; w++) {
        settings s = {.n = 0};
        set_where(&s, w);
        set_llama(&s, 2, 32, 4, 2, 64);
        set_data(&s, dir);
        set(&s, "data.seq_len=96");
        set(&s, "data.validation_split=0.1");
        lathe_run *run = open_run(LATHE_OPEN_INFER, s.list);
        const lathe_sampling how = {
            .size = (uint32_t)sizeof how, .max_new_tokens = 8, .top_p = 1.0};
        lathe_generation g = {.size = (uint32_t)sizeof g};
        /* longer than one chunk, so that both programs of generation are used */
        OK(lathe_generate(
            run, "0123456789012345678901234567890123456789012345678901234567890123456", &how, &g));
        snprintf(text[w], sizeof text[w], "%s", g.text);
        lathe_run_close(run);
        lathe_evaluation e;
        run = open_run(LATHE_OPEN_EVALUATE, s.list);
        OK(lathe_evaluate(run, 3, NULL, &e));
        loss[w] = e.loss;
        lathe_run_close(run);
    }
    cr_assert_str_eq(text[0], text[1]);
    cr_assert_eq(loss[0], loss[1]);
    OK(lathe_dir_remove(dir));
}
