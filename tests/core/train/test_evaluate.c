/* Evaluation: accuracy and calibration compared with numpy on transformers' logits; bits per byte
 * by hand. */
#include "exec/program/calibration.h"
#include "support/small_run.h"

Test(calibration, by_hand)
{
    lathe_calibration c = {0};
    cr_expect(isnan(lathe_calibration_error(&c)));
    cr_expect(isnan(lathe_calibration_accuracy(&c)));
    lathe_calibration_add(&c, 0.95, 1); /* bin 14: 0.95, 0.99; one of two right */
    lathe_calibration_add(&c, 0.99, 0);
    lathe_calibration_add(&c, 0.40, 1); /* bin 5 has (5/15, 6/15]: its right edge */
    lathe_calibration_add(&c, 0.35, 0);
    lathe_calibration_add(&c, 0.0, 0); /* bin 0 */
    cr_expect_eq(c.n[14], 2.0);
    cr_expect_eq(c.n[5], 2.0);
    cr_expect_eq(c.n[0], 1.0);
    cr_expect_float_eq(lathe_calibration_accuracy(&c), 0.4, 1e-15);
    /* (|1 - 1.94| + |1 - 0.75| + 0) / 5 */
    cr_expect_float_eq(lathe_calibration_error(&c), (0.94 + 0.25) / 5.0, 1e-15);
}

Test(calibration, a_perfect_prediction_has_no_error_and_nan_has_the_most)
{
    lathe_calibration c = {0};
    lathe_calibration_add(&c, 1.0, 1);
    cr_expect_eq(lathe_calibration_error(&c), 0.0);
    lathe_calibration_add(&c, (double)NAN, 0);
    cr_expect_eq(lathe_calibration_error(&c), 0.5);
}

/* Compares one line of evaluation.txt with this evaluation. */
static void check_golden(const char *name, double loss, double accuracy, double ece,
                         const int32_t *targets)
{
    enum { B = 2, T = 23 };
    char path[512], model[600];
    lathe_safetensors *golden = NULL;
    lathe_calibration c = {0};
    lathe_forward_result r = {.size = sizeof r};
    snprintf(path, sizeof path, "%s%s/golden.safetensors", MODELS, name);
    snprintf(model, sizeof model, "model.path=%s%s", MODELS, name);
    const char *const list[] = {model,
                                "data.seq_len=23",
                                "train.micro_batch_size=2",
                                "train.precision=fp32",
                                "train.max_steps=10",
                                NULL};
    OK(lathe_safetensors_open(path, &golden));
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, list);
    const lathe_run_batch batch = {.size = sizeof batch,
                                   .n_rows = B,
                                   .row_tokens = T,
                                   .tokens = lathe_safetensors_find(golden, "input_ids")->data,
                                   .targets = targets};
    OK(lathe_forward(run, &batch, 0, &r));
    const int32_t *top = lathe_exec_data(run->programs.eval.exec, run->programs.eval.top);
    const float *logprobs =
        lathe_exec_data(run->programs.eval.exec, run->programs.eval.top_logprobs);
    for (int i = 0; i < B * T; i++) {
        if (targets[i] >= 0)
            lathe_calibration_add(&c, exp((double)logprobs[i]), top[i] == targets[i]);
        else
            cr_expect_eq(top[i], -1);
    }
    /* fp32 compared with other software's fp32: logits agree to 2e-5, so do probabilities */
    cr_expect_float_eq(r.loss_sum / r.count, loss, 2e-5 * loss, "%s: loss %.9g, not %.9g", name,
                       r.loss_sum / r.count, loss);
    cr_expect_float_eq(lathe_calibration_accuracy(&c), accuracy, 1e-12, "%s: accuracy %.9g, not %g",
                       name, lathe_calibration_accuracy(&c), accuracy);
    cr_expect_float_eq(lathe_calibration_error(&c), ece, 2e-5, "%s: ece %.9g, not %.9g", name,
                       lathe_calibration_error(&c), ece);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

Test(evaluate, agrees_with_numpy_on_the_logits_of_transformers)
{
    FILE *f = fopen(LATHE_TEST_DATA "/golden/data/evaluation.txt", "r");
    char name[64];
    double loss, accuracy, ece;
    int n, models = 0;
    cr_assert(f);
    for (; fscanf(f, "%63s %lf %lf %lf %d", name, &loss, &accuracy, &ece, &n) == 5; models++) {
        int32_t targets[46];
        cr_assert_eq(n, 46);
        for (int i = 0; i < n; i++)
            cr_assert_eq(fscanf(f, "%d", &targets[i]), 1);
        check_golden(name, loss, accuracy, ece, targets);
    }
    fclose(f);
    cr_expect_eq(models, 5);
}

Test(evaluate, counts_bits_per_byte_of_the_text)
{
    char dir[] = "/tmp/lathe_evaluate_XXXXXX", path[128];
    settings s = {.n = 0};
    lathe_evaluation e;
    make_folder(dir, 4000);
    snprintf(path, sizeof path, "%s/corpus.txt", dir);
    FILE *f = fopen(path, "r");
    cr_assert(f);
    fseek(f, 0, SEEK_END);
    const double bytes = (double)ftell(f);
    fclose(f);
    set_data(&s, dir);
    set(&s, "data.validation=[{path = \"%s\"}]", path);
    set_llama(&s, 1, 32, 2, 2, 64);
    set(&s, "train.precision=fp32");
    set(&s, "train.micro_batch_size=3");
    set(&s, "data.seq_len=64");
    lathe_run *run = open_run(LATHE_OPEN_EVALUATE, s.list);
    OK(lathe_evaluate(run, 0, NULL, &e));
    /* bytes are tokens, and one more token ends the text; all except the first are targets */
    cr_expect_eq(e.count, bytes, "%g targets of %g bytes", e.count, bytes);
    const double want = e.loss / log(2.0) * (bytes + 1.0) / bytes;
    cr_expect_float_eq(e.bits_per_byte, want, 1e-12 * want, "%.12g, not %.12g", e.bits_per_byte,
                       want);
    cr_expect_float_eq(e.perplexity, exp(e.loss), 1e-9 * e.perplexity);
    cr_expect(e.token_accuracy >= 0.0 && e.token_accuracy < 0.5, "%g", e.token_accuracy);
    cr_expect(e.ece >= 0.0 && e.ece < 1.0, "%g", e.ece);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(evaluate, a_run_without_data_to_evaluate_on_says_what_to_give)
{
    settings s = {.n = 0};
    lathe_evaluation e;
    static const char *const parts[] = {"no data to evaluate on", "data.validation", NULL};
    set_llama(&s, 1, 32, 2, 2, 64);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=64");
    set(&s, "train.max_steps=1");
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, s.list);
    cr_expect_eq(lathe_evaluate(run, 0, NULL, &e), LATHE_E_CONFIG);
    expect_parts(parts);
    lathe_run_close(run);
}
