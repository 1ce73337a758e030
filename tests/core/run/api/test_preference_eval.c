/* Evaluation of a stage on pairs: padding pairs count for nothing, short batches keep chosen and
 * rejected rows apart, a full-weights run is compared with the model before training, and the
 * stage's metrics are recorded. */
#include "checkpoint/state/checkpoint.h"
#include "run/api/save_load.h"
#include "support/small_run.h"

enum { T = 48, VOCAB = 320 };

static char folder[] = "/tmp/lathe_preference_XXXXXX";

static void write_pairs(const char *name, int n)
{
    static const char *const good[] = {"the wheel turns", "oil drips", "slow feed wins",
                                       "a thread"};
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < n; i++)
        fprintf(f, "{\"prompt\": \"part %d: \", \"chosen\": \"%s\", \"rejected\": \"no %d\"}\n", i,
                good[i % 4], i);
    fclose(f);
}

static void setup(void)
{
    cr_assert(mkdtemp(folder));
    write_pairs("train.jsonl", 16);
    write_pairs("valid.jsonl", 3);
}

static void set_dpo(settings *s, int micro_batch)
{
    set(s, "data.datasets=[{path = \"%s/train.jsonl\"}]", folder);
    set(s, "data.validation=[{path = \"%s/valid.jsonl\"}]", folder);
    set(s, "data.cache_dir=%s/cache", folder);
    set(s, "checkpoint.dir=%s/out", folder);
    set(s, "tokenizer.path=bytes");
    set(s, "log.progress=off");
    set_llama(s, 1, 32, 2, 2, 64);
    set(s, "data.seq_len=%d", T);
    set(s, "stage.name=dpo");
    set(s, "optimizer.lr=5e-3");
    set(s, "train.precision=fp32");
    set(s, "train.threads=1");
    set(s, "train.max_steps=4");
    set(s, "train.micro_batch_size=%d", micro_batch);
}

TestSuite(preference_eval, .init = setup);

/* Before any step the policy equals the reference, and every pair's loss is -log sigmoid(0). */
Test(preference_eval, padding_pairs_count_for_nothing)
{
    static const int micro_batches[] = {1, 2, 3, 8};
    for (int i = 0; i < 4; i++) {
        settings s = {.n = 0};
        lathe_evaluation e;
        set_dpo(&s, micro_batches[i]);
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        OK(lathe_evaluate(run, 0, NULL, &e));
        cr_expect_eq(e.count, 3.0);
        cr_expect_eq(e.count_unit, LATHE_COUNT_PAIRS);
        cr_expect_float_eq(e.loss, log(2.0), 1e-6, "micro-batch %d: loss %.9g of 3 pairs",
                           micro_batches[i], e.loss);
        lathe_run_close(run);
    }
}

Test(preference_eval, a_loss_per_pair_has_no_perplexity_and_no_token_figures)
{
    settings s = {.n = 0};
    lathe_evaluation e;
    set_dpo(&s, 2);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_evaluate(run, 0, NULL, &e));
    cr_expect(isnan(e.perplexity) && isnan(e.token_accuracy) && isnan(e.ece));
    cr_expect(isnan(e.bits_per_byte));
    cr_expect_eq(e.n_metrics, 6);
    cr_expect_str_eq(e.metric_names[3], "rewards/accuracies");
    lathe_run_close(run);
}

/* Pair k of three: chosen tokens grow with k, rejected tokens shrink. Half of each row is the
 * prompt. */
static void make_rows(int32_t *tokens, int32_t *targets, int pairs)
{
    for (int r = 0; r < 2 * pairs; r++)
        for (int t = 0; t < T; t++) {
            const int k = r % pairs;
            tokens[r * T + t] = (7 * t + (r < pairs ? 11 * k : 200 - 13 * k)) % VOCAB;
            targets[r * T + t] = t < T / 2 ? -1 : (5 * t + r) % VOCAB;
        }
}

/* Loss, metrics and log-probabilities of one pair in a program for `micro_batch` pairs. */
static void one_pair(int micro_batch, double *figures, float *logprobs)
{
    int32_t tokens[2 * T], targets[2 * T];
    settings s = {.n = 0};
    set_dpo(&s, micro_batch);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const lathe_run_batch batch = {
        .size = sizeof batch, .n_rows = 2, .row_tokens = T, .tokens = tokens, .targets = targets};
    lathe_forward_result r = {.size = sizeof r};
    make_rows(tokens, targets, 1);
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &r));
    OK(lathe_backward(run, NULL));
    cr_expect_eq(r.count, 1.0);
    figures[0] = r.loss_sum;
    for (int k = 0; k < 6; k++)
        figures[1 + k] = run->sum.metric_sums[k];
    OK(lathe_logprobs(run, &batch, logprobs));
    lathe_run_close(run);
}

Test(preference_eval, a_batch_of_fewer_pairs_than_the_program_keeps_rejected_rows_apart)
{
    double alone[7], padded[7];
    float logprobs[2][2 * T];
    one_pair(1, alone, logprobs[0]);
    one_pair(3, padded, logprobs[1]);
    for (int k = 0; k < 7; k++) /* sums of 24 log-probabilities near -6: 1e-5 relative */
        cr_expect_float_eq(padded[k], alone[k], 1e-5 * fabs(alone[k]) + 1e-6,
                           "figure %d: %.9g in a larger program, %.9g alone", k, padded[k],
                           alone[k]);
    cr_expect_lt(alone[5], -10.0, "logps/chosen: %g", alone[5]);
    for (int i = 0; i < 2 * T; i++)
        cr_expect_float_eq((double)logprobs[1][i], (double)logprobs[0][i], 1e-5);
}

Test(preference_eval, rows_of_a_batch_of_pairs_come_in_even_number)
{
    int32_t tokens[2 * T], targets[2 * T];
    settings s = {.n = 0};
    set_dpo(&s, 2);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const lathe_run_batch batch = {
        .size = sizeof batch, .n_rows = 1, .row_tokens = T, .tokens = tokens, .targets = targets};
    lathe_forward_result r = {.size = sizeof r};
    make_rows(tokens, targets, 1);
    cr_expect_eq(lathe_forward(run, &batch, 0, &r), LATHE_E_SHAPE);
    static const char *const parts[] = {"a batch of 1 rows", "expected a multiple of 2", NULL};
    expect_parts(parts);
    lathe_run_close(run);
}

/* Trains; returns the loss of the evaluation at the end. */
static double train(const char *const *list)
{
    lathe_train_result result = {.loss = NAN};
    char said[4096] = "";
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, list);
    OK(train_said(run, said, sizeof said, &result));
    lathe_run_close(run);
    return result.validation;
}

/* Computes what `lathe eval RUN.toml` computes. */
static void evaluate_checkpoint(const char *const *list, lathe_evaluation *e)
{
    const char *checkpoint = NULL;
    lathe_run *run = open_run(LATHE_OPEN_EVALUATE, list);
    OK(lathe__run_resume(run, &checkpoint));
    cr_assert(checkpoint);
    OK(lathe_evaluate(run, 0, NULL, e));
    lathe_run_close(run);
}

static void check_later_evaluation(const char *const *extra)
{
    settings s = {.n = 0};
    lathe_evaluation e;
    set_dpo(&s, 2);
    set_all(&s, extra);
    const double at_the_end = train(s.list);
    cr_expect_lt(at_the_end, 0.68, "training lowers the loss: %g", at_the_end);
    evaluate_checkpoint(s.list, &e);
    cr_expect_eq(e.loss, at_the_end, "%.9g in training, %.9g of its checkpoint", at_the_end,
                 e.loss);
}

Test(preference_eval, a_full_run_is_compared_with_the_model_before_training)
{
    static const char *const full[] = {"adapter.name=full", NULL};
    check_later_evaluation(full);
}

Test(preference_eval, a_full_run_with_frozen_parts_is_compared_with_the_model_before_training)
{
    static const char *const some[] = {"adapter.name=full", "adapter.no_train=[\"*embed*\"]", NULL};
    check_later_evaluation(some);
}

Test(preference_eval, an_adapter_is_compared_with_its_base)
{
    static const char *const lora[] = {"adapter.name=lora", "optimizer.lr=5e-2", NULL};
    check_later_evaluation(lora);
}

Test(preference_eval, the_metrics_of_evaluations_are_recorded)
{
    settings s = {.n = 0};
    char path[256], line[4096], last[4096] = "";
    set_dpo(&s, 2);
    set(&s, "train.eval_every=2");
    (void)train(s.list);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", folder);
    FILE *f = fopen(path, "r");
    cr_assert(f);
    while (fgets(line, sizeof line, f))
        snprintf(last, sizeof last, "%s", line);
    fclose(f);
    static const char *const keys[] = {
        "\"eval_rewards/chosen\": ",  "\"eval_rewards/rejected\": ",
        "\"eval_rewards/margins\": ", "\"eval_rewards/accuracies\": ",
        "\"eval_logps/chosen\": ",    "\"eval_loss\": "};
    for (int i = 0; i < 6; i++)
        cr_expect(strstr(last, keys[i]), "no %s in %s", keys[i], last);
    cr_expect_not(strstr(last, "perplexity"), "%s", last);
}
