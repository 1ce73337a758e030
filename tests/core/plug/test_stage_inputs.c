/* A stage whose loss reads values per token that come with each batch, the model's entropy and the
 * mask of the targets: examples/policy, against its formula in double. */
#include "support/run_case.h"

enum { ROWS = 2, T = 8, N = ROWS * T };

static lathe_run *run;

static void setup(void)
{
    setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/tests/policy", 1);
}

static void teardown(void)
{
    lathe_run_close(run);
    run = NULL;
}

TestSuite(stage_inputs, .init = setup, .fini = teardown);

static lathe_status open_policy(int32_t mode, lathe_run **out)
{
    const char *const settings[] = {"model.path=" MODELS "llama_tied",
                                    "data.seq_len=8",
                                    "train.micro_batch_size=2",
                                    "train.precision=fp32",
                                    "train.max_steps=5",
                                    "stage.name=policy",
                                    "stage.clip_low=0.1",
                                    "stage.clip_high=0.3",
                                    "stage.entropy_coef=0.05",
                                    "checkpoint.dir=/tmp/lathe-stage-inputs",
                                    NULL};
    return open_run_status(mode, settings, out);
}

/* The second row is short of targets: its prompt has 5 tokens. */
static int32_t tokens[N], targets[N];
static float old_logprobs[N], advantages[N];
static const lathe_batch_input both[] = {{"old_logprobs", old_logprobs},
                                         {"advantages", advantages}};

static lathe_run_batch make_batch(int32_t n_inputs)
{
    for (int i = 0; i < N; i++) {
        const int t = i % T;
        tokens[i] = (7 * i + 3) % 60;
        targets[i] = i < T || t >= 4 ? (11 * i + 5) % 60 : -1;
    }
    return (lathe_run_batch){.size = (uint32_t)sizeof(lathe_run_batch),
                             .n_rows = ROWS,
                             .row_tokens = T,
                             .tokens = tokens,
                             .targets = targets,
                             .inputs = both,
                             .n_inputs = n_inputs};
}

/* Entropy of the softmax of n logits. */
static double entropy_of(const float *logits, int64_t n)
{
    double top = -INFINITY, sum = 0.0, weighted = 0.0;
    for (int64_t v = 0; v < n; v++)
        top = fmax(top, (double)logits[v]);
    for (int64_t v = 0; v < n; v++) {
        const double e = exp((double)logits[v] - top);
        sum += e;
        weighted += e * ((double)logits[v] - top);
    }
    return log(sum) - weighted / sum;
}

Test(stage_inputs, the_loss_is_the_formula_of_the_given_values)
{
    float logp[N];
    double loss = 0.0, entropy_sum = 0.0, clipped = 0.0, kl = 0.0;
    OK(open_policy(LATHE_OPEN_BATCHES, &run));
    lathe_run_batch batch = make_batch(2);
    OK(lathe_logprobs(run, &batch, logp));
    lathe_forward_result r = {.size = (uint32_t)sizeof r};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &r));
    for (int i = 0; i < N; i++) {
        /* ratios from exp(-0.4) to exp(0.4), advantages of both signs */
        old_logprobs[i] = logp[i] - 0.4F * (float)(i % 5 - 2) / 2.0F;
        advantages[i] = (float)(i % 3) - 0.8F;
        if (targets[i] < 0)
            continue;
        const double shift = (double)logp[i] - (double)old_logprobs[i], a = (double)advantages[i];
        const double ratio = exp(shift), bounded = fmin(fmax(ratio, 0.9), 1.3);
        const double h = entropy_of(r.logits + (int64_t)i * r.vocab_size, r.vocab_size);
        loss -= fmin(ratio * a, bounded * a) + 0.05 * h;
        clipped += bounded * a < ratio * a;
        kl += ratio - 1.0 - shift;
        entropy_sum += h;
    }
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &r));
    cr_expect_float_eq(r.loss_sum, loss, 2e-5 * fabs(loss), "%.9g %.9g", r.loss_sum, loss);
    cr_expect_eq(r.count, 12.0);
    const lathe_program *p = &run->programs.train;
    cr_assert_eq(p->stage.n_metrics, 4);
    cr_expect_str_eq(p->stage.metrics[1].name, "clip_fraction");
    cr_expect_float_eq(run->sum.metric_sums[1], clipped, 1e-6);
    cr_expect_float_eq(run->sum.metric_sums[2], kl, 1e-4);
    cr_expect_float_eq(run->sum.metric_sums[3], entropy_sum, 2e-5 * entropy_sum);
    OK(lathe_backward(run, NULL));
    OK(lathe_step(run, NULL));
}

Test(stage_inputs, values_of_padding_change_nothing)
{
    lathe_forward_result a = {.size = (uint32_t)sizeof a}, b = {.size = (uint32_t)sizeof b};
    OK(open_policy(LATHE_OPEN_BATCHES, &run));
    lathe_run_batch batch = make_batch(2);
    for (int i = 0; i < N; i++)
        advantages[i] = 1.0F;
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &a));
    OK(lathe_zero_grad(run));
    for (int i = 0; i < N; i++)
        if (targets[i] < 0)
            advantages[i] = 100.0F;
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &b));
    cr_expect_eq(a.loss_sum, b.loss_sum);
}

Test(stage_inputs, a_missing_or_unknown_input_is_refused)
{
    static const lathe_batch_input wrong[] = {{"old_logprobs", old_logprobs},
                                              {"rewards", advantages}};
    lathe_forward_result r = {.size = (uint32_t)sizeof r};
    OK(open_policy(LATHE_OPEN_BATCHES, &run));
    lathe_run_batch batch = make_batch(1);
    cr_expect_eq(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &r), LATHE_E_STATE);
    cr_expect_not_null(
        strstr(lathe_error_message(), "stage \"policy\" needs its input \"advantages\""), "%s",
        lathe_error_message());
    batch.inputs = wrong;
    batch.n_inputs = 2;
    cr_expect_eq(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &r), LATHE_E_ARG);
    cr_expect_str_eq(lathe_error_message(), "stage \"policy\" has no input \"rewards\"");
}

/* lathe train and validate open the run so. */
Test(stage_inputs, a_run_on_data_files_is_refused)
{
    const char *const settings[] = {"model.model_type=llama",
                                    "model.hidden_size=32",
                                    "model.intermediate_size=64",
                                    "model.num_hidden_layers=1",
                                    "model.num_attention_heads=2",
                                    "data.seq_len=8",
                                    "data.datasets=[{path = \"" LATHE_TEST_DATA
                                    "/CMakeLists.txt\"}]",
                                    "data.cache_dir=/tmp/lathe-stage-inputs/cache",
                                    "train.max_steps=5",
                                    "stage.name=policy",
                                    "checkpoint.dir=/tmp/lathe-stage-inputs",
                                    NULL};
    cr_expect_neq(open_run_status(LATHE_OPEN_TRAIN, settings, &run), LATHE_OK);
    cr_expect_not_null(strstr(lathe_error_message(), "which data files do not have"), "%s",
                       lathe_error_message());
}
