/* Early stopping: the rule by hand, and a run that stops, resumed or not, at the same step. */
#include "optim/early_stop.h"

#include "support/small_run.h"

static int64_t since(const double *metrics, int n, int32_t higher, double threshold)
{
    lathe_early_stop s = {0};
    for (int i = 0; i < n; i++)
        lathe_early_stop_observe(&s, metrics[i], higher, threshold);
    return s.n_since;
}

Test(early_stop, counts_evaluations_without_an_improvement)
{
    const double falling[] = {3.0, 2.0, 1.0}, flat[] = {3.0, 3.0, 3.0}, back[] = {3, 2, 2.5, 2.1};
    cr_expect_eq(since(falling, 3, 0, 0.0), 0);
    cr_expect_eq(since(falling, 3, 1, 0.0), 2);
    cr_expect_eq(since(flat, 3, 0, 0.0), 2); /* the first one is an improvement */
    cr_expect_eq(since(back, 4, 0, 0.0), 2);
    cr_expect_eq(since(falling, 3, 0, 1.0), 2); /* by more than the threshold, not by exactly it */
    cr_expect_eq(since(falling, 3, 0, 0.999), 0);
}

Test(early_stop, keeps_the_best_whatever_the_threshold_and_takes_nan_for_none)
{
    const double slow[] = {1.0, 0.9, 0.8, 0.7}, bad[] = {1.0, NAN, NAN, 0.5}, nan[] = {NAN, NAN};
    lathe_early_stop s = {0};
    cr_expect_eq(since(slow, 4, 0, 0.25), 3);
    cr_expect_eq(since(bad, 3, 0, 0.0), 2);
    cr_expect_eq(since(bad, 4, 0, 0.0), 0);
    cr_expect_eq(since(nan, 2, 0, 0.0), 2);
    for (int i = 0; i < 4; i++)
        lathe_early_stop_observe(&s, slow[i], 0, 0.25);
    cr_expect_eq(s.best, 0.7);
    cr_expect_eq(s.n_evaluations, 4);
}

static void set_stopping(settings *s, const char *dir)
{
    set_data(s, dir);
    set_llama(s, 1, 32, 2, 2, 64);
    set(s, "train.precision=fp32");
    set(s, "train.max_steps=40");
    set(s, "train.eval_every=2");
    set(s, "data.seq_len=32");
    set(s, "data.validation_split=0.1");
    set(s, "scheduler.name=cosine");
    set(s, "train.early_stopping_threshold=2"); /* no two evaluations differ by that much */
    set(s, "train.early_stopping_patience=3");
}

static lathe_train_result train(const settings *s)
{
    lathe_train_result result;
    const lathe_train_options options = {.out = fopen("/dev/null", "w")};
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s->list);
    OK(lathe_train(run, &options, &result));
    fclose(options.out);
    lathe_run_close(run);
    return result;
}

Test(early_stop, a_resumed_run_stops_at_the_same_step)
{
    char whole[] = "/tmp/lathe_early_XXXXXX", parts[] = "/tmp/lathe_early_XXXXXX";
    settings a = {.n = 0}, b = {.n = 0};
    make_folder(whole, 6000);
    make_folder(parts, 6000);
    set_stopping(&a, whole);
    const lathe_train_result want = train(&a);
    cr_assert_eq(want.stopped_early, 1, "it ran to step %lld", (long long)want.step);
    cr_assert_eq(want.step, 8); /* evaluations at 2, the first, and 4, 6, 8 */
    set_stopping(&b, parts);
    set(&b, "train.stop_after=%lld", (long long)(want.step - 3)); /* between the last evaluations */
    lathe_train_result got = train(&b);
    cr_expect_eq(got.paused, 1);
    cr_expect_eq(got.stopped_early, 0);
    snprintf(b.text[b.n - 1], sizeof b.text[0], "train.stop_after=1000");
    got = train(&b);
    cr_expect_eq(got.stopped_early, 1);
    cr_expect_eq(got.step, want.step, "%lld, not %lld", (long long)got.step, (long long)want.step);
    got = train(&b); /* and it stops at once */
    cr_expect_eq(got.step, want.step);
    cr_expect_eq(got.stopped_early, 1);
    OK(lathe_dir_remove(whole));
    OK(lathe_dir_remove(parts));
}

Test(early_stop, without_evaluations_is_refused_by_key)
{
    char dir[] = "/tmp/lathe_early_XXXXXX";
    settings s = {.n = 0};
    lathe_override list[MAX_SETTINGS];
    char keys[MAX_SETTINGS][64];
    lathe_run *run = NULL;
    make_folder(dir, 3000);
    set_stopping(&s, dir);
    snprintf(s.text[s.n], sizeof s.text[0], "train.eval_every=0");
    s.list[s.n] = s.text[s.n];
    s.n++;
    for (int i = 0; i < s.n; i++) {
        const char *equals = strchr(s.list[i], '=');
        snprintf(keys[i], sizeof keys[i], "%.*s", (int)(equals - s.list[i]), s.list[i]);
        list[i] = (lathe_override){keys[i], equals + 1};
    }
    cr_expect_eq(open_options(NULL, list, s.n, LATHE_OPEN_TRAIN, &run), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "train.early_stopping_patience"));
    cr_expect_not_null(strstr(lathe_error_message(), "train.eval_every"), "%s",
                       lathe_error_message());
    OK(lathe_dir_remove(dir));
}

Test(early_stop, a_metric_that_is_no_figure_is_named)
{
    char dir[] = "/tmp/lathe_early_XXXXXX";
    settings s = {.n = 0};
    lathe_train_result result;
    make_folder(dir, 3000);
    set_stopping(&s, dir);
    set(&s, "train.precision=bf16");
    set(&s, "checkpoint.best_metric=loss_scale"); /* a metric that only fp16 has */
    const lathe_train_options options = {.out = fopen("/dev/null", "w")};
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_expect_eq(lathe_train(run, &options, &result), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "loss_scale"), "%s", lathe_error_message());
    cr_expect_not_null(strstr(lathe_error_message(), "step 2"), "%s", lathe_error_message());
    fclose(options.out);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}
