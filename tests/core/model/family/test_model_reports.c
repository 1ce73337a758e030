/* Figures and auxiliary losses of a model family: lathe_model_builder.report, with the fixture of
 * tests/reports, whose figure "square" is S, the sum of squares of the hidden states. */
#include "support/small_run.h"

enum { B = 2, T = 12 };

/* A training step's results for one weight of the auxiliary loss. */
typedef struct result {
    double train_loss, eval_loss, square, penalty;
    double slope; /* sum of w dL/dw over the weights w of the last norm */
    int n_metrics;
} result;

static void set_reporter(settings *s)
{
    set(s, "plugins.paths=[\"%s/tests/reports\"]", LATHE_TEST_BUILD);
    set(s, "model.model_type=reporter");
    set(s, "model.vocab_size=257");
    set(s, "model.hidden_size=32");
    set(s, "model.intermediate_size=48");
    set(s, "model.num_hidden_layers=2");
    set(s, "model.num_attention_heads=4");
    set(s, "model.seed=3");
    set(s, "tokenizer.path=bytes");
    set(s, "data.seq_len=%d", T);
    set(s, "train.micro_batch_size=%d", B);
    set(s, "train.precision=fp32");
    set(s, "train.max_steps=1");
}

static double metric(const lathe_run *run, const char *name)
{
    for (int32_t i = 0; i < run->programs.train.stage.n_metrics; i++)
        if (strcmp(run->programs.train.stage.metrics[i].name, name) == 0)
            return run->sum.metric_sums[i];
    return NAN;
}

static result step_with(const char *penalty)
{
    settings s = {.n = 0};
    int32_t tokens[B * T], targets[B * T];
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    result r;
    for (int i = 0; i < B * T; i++) {
        tokens[i] = (i * 37 + 11) % 257;
        targets[i] = (tokens[i] * 5 + 1) % 257;
    }
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = B,
                                   .row_tokens = T,
                                   .tokens = tokens,
                                   .targets = targets};
    set_reporter(&s);
    set(&s, "model.penalty=%s", penalty);
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, s.list);
    OK(lathe_forward(run, &batch, 0, &f));
    r.eval_loss = f.loss_sum;
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    r.train_loss = f.loss_sum;
    r.square = metric(run, "square");
    r.penalty = metric(run, "penalty");
    r.n_metrics = run->programs.train.stage.n_metrics;
    OK(lathe_backward(run, NULL));
    const int32_t norm = lathe_params_find(&run->params, "model.norm.weight");
    const float *g = lathe_store_grad(&run->store, norm);
    r.slope = 0.0; /* the weights of a new norm are 1 */
    for (int64_t i = 0; i < lathe_desc_count(&run->params.rows[norm]->desc); i++)
        r.slope += (double)g[i];
    lathe_run_close(run);
    return r;
}

Test(model_reports, an_auxiliary_loss_is_added_to_the_training_loss_with_its_weight)
{
    const result without = step_with("0.0"), with = step_with("0.25");
    cr_assert_gt(without.square, 100.0);
    cr_assert_float_eq(with.square, without.square, 1e-6 * without.square);
    cr_expect_float_eq(with.train_loss, without.train_loss + 0.25 * without.square,
                       1e-6 * with.train_loss);
    cr_expect_float_eq(without.train_loss, without.eval_loss, 1e-6 * without.eval_loss);
}

/* S is homogeneous of degree 2 in the weights w of the last norm, so the sum of w dS/dw is 2 S. */
Test(model_reports, the_gradient_of_an_auxiliary_loss_has_its_weight)
{
    static const char *const weights[] = {"0.25", "0.5", "-0.125"};
    const result without = step_with("0.0");
    for (int i = 0; i < 3; i++) {
        const result with = step_with(weights[i]);
        const double want = 2.0 * atof(weights[i]) * without.square;
        cr_expect_float_eq(with.slope - without.slope, want, 1e-4 * fabs(want), "%s: %g, not %g",
                           weights[i], with.slope - without.slope, want);
    }
}

Test(model_reports, evaluation_leaves_an_auxiliary_loss_out)
{
    const result without = step_with("0.0"), with = step_with("0.5");
    cr_expect_float_eq(with.eval_loss, without.eval_loss, 1e-6 * without.eval_loss);
}

Test(model_reports, a_figure_is_a_metric_of_its_own_and_changes_no_loss)
{
    const result without = step_with("0.0"), with = step_with("0.5");
    cr_expect_eq(without.n_metrics, 1);
    cr_expect_eq(with.n_metrics, 2);
    cr_expect_float_eq(with.penalty, with.square, 1e-6 * with.square);
    cr_expect(isnan(without.penalty));
}

Test(model_reports, what_cannot_be_reported_is_refused_by_name)
{
    static const struct {
        const char *fault, *message;
    } faults[] = {{"twice", "reporter: build() reports two figures called square"},
                  {"unnamed", "reporter: build() reports a figure without a name, or more than 8"},
                  {"nine", "reporter: build() reports a figure without a name, or more than 8"},
                  {"row", "reporter: the figure row that build() reports is no f32 scalar"}};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        settings s = {.n = 0};
        lathe_run *run = NULL;
        set_reporter(&s);
        set(&s, "model.fault=%s", faults[i].fault);
        cr_expect_eq(open_run_status(LATHE_OPEN_BATCHES, s.list, &run), LATHE_E_PLUGIN, "%s",
                     faults[i].fault);
        cr_expect(strstr(lathe_error_message(), faults[i].message), "%s: %s", faults[i].fault,
                  lathe_error_message());
        lathe_run_close(run);
    }
}
