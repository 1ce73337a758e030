/* Tests loss spikes: the rule, computed by hand, and the actions of train.on_spike in a run.
 *
 * The runs learn from sentences; rows of the corpus from first to last are printable noise instead,
 * which gives a step of 4 rows a loss of 7 or more; about 3 is usual. */
#include "optim/loss_spike.h"

#include "support/small_run.h"
#include "train/training.h"

enum { T = 32, ROWS = 240, WINDOW = 8 };

/* ---- the rule ---- */

static lathe_loss_spike holding(const double *losses, int n)
{
    lathe_loss_spike s = {.n_accepted = 0};
    for (int i = 0; i < n; i++)
        lathe_loss_spike_accept(&s, losses[i]);
    return s;
}

/* Mean 3, squares of the differences 4 + 0 + 0 + 4, std sqrt 2. */
Test(loss_spike, is_a_loss_beyond_the_threshold)
{
    const double losses[] = {1.0, 3.0, 3.0, 5.0};
    const lathe_loss_spike s = holding(losses, 4);
    const double edge = 3.0 + 6.0 * sqrt(2.0);
    lathe_loss_verdict v = lathe_loss_spike_judge(&s, 5.0, 4, 6.0);
    cr_expect_eq(v.n, 4);
    cr_expect_eq(v.mean, 3.0);
    cr_expect_eq(v.std, sqrt(2.0));
    cr_expect_eq(v.zscore, 2.0 / sqrt(2.0));
    cr_expect_eq(v.is_spike, 0);
    cr_expect_eq(lathe_loss_spike_judge(&s, edge * (1.0 - 1e-12), 4, 6.0).is_spike, 0);
    cr_expect_eq(lathe_loss_spike_judge(&s, edge * (1.0 + 1e-12), 4, 6.0).is_spike, 1);
    cr_expect_eq(lathe_loss_spike_judge(&s, -edge, 4, 6.0).is_spike, 0); /* a fall is not a spike */
    cr_expect_eq(lathe_loss_spike_judge(&s, 5.0, 4, 1.0).is_spike, 1);
}

Test(loss_spike, only_the_last_losses_of_the_window_count)
{
    double losses[3 * LATHE_MAX_SPIKE_WINDOW];
    for (int i = 0; i < 3 * LATHE_MAX_SPIKE_WINDOW; i++)
        losses[i] = i;
    for (int n = 3; n <= 3 * LATHE_MAX_SPIKE_WINDOW; n += 487) {
        const lathe_loss_spike s = holding(losses, n);
        const lathe_loss_verdict v = lathe_loss_spike_judge(&s, n, 3, 6.0);
        cr_assert_eq(v.n, 3);
        cr_assert_eq(v.mean, n - 2.0); /* of n-3, n-2, n-1 */
        cr_assert_eq(lathe_loss_spike_get(&s, 3, 0), n - 3.0);
    }
    const lathe_loss_spike s = holding(losses, 3 * LATHE_MAX_SPIKE_WINDOW);
    cr_expect_eq(lathe_loss_spike_count(&s, LATHE_MAX_SPIKE_WINDOW), LATHE_MAX_SPIKE_WINDOW);
    cr_expect_eq(lathe_loss_spike_judge(&s, 0.0, LATHE_MAX_SPIKE_WINDOW, 6.0).mean,
                 2.5 * LATHE_MAX_SPIKE_WINDOW - 0.5);
}

Test(loss_spike, half_a_window_judges_nothing)
{
    const double losses[] = {1.0, 1.0, 1.0, 1.0};
    for (int n = 0; n <= 4; n++)
        for (int window = 2; window <= 9; window++) {
            const lathe_loss_spike s = holding(losses, n);
            const lathe_loss_verdict v = lathe_loss_spike_judge(&s, 1e9, window, 6.0);
            const int enough = n >= 2 && 2 * n >= window;
            cr_expect_eq(v.is_spike, enough, "%d of %d", n, window);
            cr_expect_eq(!isnan(v.zscore), enough);
        }
}

/* The minimum deviation: 1e-3 of the mean, 1e-6 if that is 0. */
Test(loss_spike, losses_that_hardly_vary_are_no_trap)
{
    const double twos[] = {2.0, 2.0, 2.0, 2.0}, zeros[] = {0.0, 0.0, 0.0, 0.0},
                 below[] = {-2.0, -2.0, -2.0, -2.0};
    const lathe_loss_spike two = holding(twos, 4), zero = holding(zeros, 4),
                           less = holding(below, 4);
    cr_expect_eq(lathe_loss_spike_judge(&two, 2.0, 4, 6.0).zscore, 0.0);
    cr_expect_eq(lathe_loss_spike_judge(&two, 2.0119, 4, 6.0).is_spike, 0);
    cr_expect_eq(lathe_loss_spike_judge(&two, 2.0121, 4, 6.0).is_spike, 1);
    cr_expect_eq(lathe_loss_spike_judge(&less, -1.9881, 4, 6.0).is_spike, 0);
    cr_expect_eq(lathe_loss_spike_judge(&less, -1.9879, 4, 6.0).is_spike, 1);
    cr_expect_eq(lathe_loss_spike_judge(&zero, 0.0, 4, 6.0).zscore, 0.0);
    cr_expect_eq(lathe_loss_spike_judge(&zero, 5.9e-6, 4, 6.0).is_spike, 0);
    cr_expect_eq(lathe_loss_spike_judge(&zero, 6.1e-6, 4, 6.0).is_spike, 1);
}

/* ---- runs ---- */

/* Writes rows of T bytes in training order; rows from first to last are noise. */
static void write_rows(const char *dir, int first, int last)
{
    char path[256];
    uint32_t state = 7;
    snprintf(path, sizeof path, "%s/corpus.txt", dir);
    write_corpus(path, T * ROWS);
    FILE *f = fopen(path, "r+");
    cr_assert(f);
    cr_assert_eq(fseek(f, first * T, SEEK_SET), 0);
    for (int i = first * T; i < (last + 1) * T; i++) {
        state = state * 1664525u + 1013904223u;
        fputc((int)('!' + (state >> 24) % 64), f); /* '!' to '`': almost none of the corpus */
    }
    fclose(f);
}

static void configure(settings *s, const char *dir, const char *policy)
{
    set_llama(s, 1, 32, 2, 2, 64);
    set_data(s, dir);
    set(s, "data.seq_len=%d", T);
    set(s, "data.shuffle=false");
    set(s, "train.precision=fp32");
    set(s, "train.micro_batch_size=2");
    set(s, "train.gradient_accumulation_steps=2");
    set(s, "train.max_steps=30");
    set(s, "train.on_spike=%s", policy);
    set(s, "train.spike_window=%d", WINDOW);
    set(s, "train.spike_threshold=4");
    set(s, "train.threads=1");
    set(s, "optimizer.lr=0.01");
    set(s, "scheduler.name=reduce_on_plateau"); /* which observes the loss of each step */
    set(s, "scheduler.patience=3");
    set(s, "scheduler.factor=0.9");
}

/* A metric of a step's line, NAN if the line does not have it. */
static double figure(const char *dir, int step, const char *key)
{
    char path[256], begin[32], text[64], *metrics = NULL;
    int64_t bytes = 0;
    double value = NAN;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    OK(lathe_file_read(path, 0, &metrics, &bytes));
    snprintf(begin, sizeof begin, "{\"step\": %d,", step);
    snprintf(text, sizeof text, "\"%s\": ", key);
    char *line = strstr(metrics, begin);
    cr_assert(line, "no step %d in %s", step, path);
    char *end = strchr(line, '\n');
    cr_assert(end);
    *end = '\0';
    const char *at = strstr(line, text);
    if (at && strncmp(at + strlen(text), "null", 4) != 0)
        value = strtod(at + strlen(text), NULL);
    free(metrics);
    return value;
}

/* Compares weights and the state of the schedule. */
static int same_state(const lathe_run *a, const lathe_run *b)
{
    return a->store.master_bytes == b->store.master_bytes &&
           memcmp(a->store.masters, b->store.masters, (size_t)a->store.master_bytes) == 0 &&
           memcmp(a->at.scheduler_state, b->at.scheduler_state, sizeof a->at.scheduler_state) == 0;
}

/* One step of two micro-batches through the C API, which does not check for spikes. Returns its
 * loss if it updates. */
static double step_by_hand(lathe_run *run, int updates)
{
    lathe_step_result r = {.size = sizeof r, .loss = NAN};
    for (int m = 0; m < 2; m++) {
        lathe_forward_result f = {.size = sizeof f};
        OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
    }
    if (updates) {
        OK(lathe_step(run, &r));
        lathe__training_observe(run, r.loss);
    } else {
        OK(lathe_zero_grad(run));
    }
    return r.loss;
}

static lathe_run *open_beside(const char *dir)
{
    settings s = {.n = 0};
    configure(&s, dir, "ignore");
    set(&s, "checkpoint.resume=never");
    set(&s, "checkpoint.dir=%s/other", dir);
    return open_run(LATHE_OPEN_TRAIN, s.list);
}

/* Step 16 has rows 60 to 63: only half of its second micro-batch is noise. */
Test(loss_spike, stop_names_step_loss_mean_and_std_and_updates_nothing)
{
    char dir[] = "/tmp/lathe-spike-XXXXXX", said[4096] = "", text[64];
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 62, 63);
    configure(&s, dir, "stop");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_assert_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC);
    snprintf(text, sizeof text, "step 16: the loss is %.6g, a spike", r.loss);
    expect_parts((const char *const[]){text, "the mean of the 8 before it is ", "their std ",
                                       "train.spike_threshold 4", "nothing was updated", NULL});
    cr_expect_eq(run->at.step, 15); /* the state is that of the last whole step */
    cr_expect_eq(run->at.spike.n_spikes, 0);
    lathe_run *other = open_beside(dir);
    for (int k = 1; k <= 15; k++)
        step_by_hand(other, 1);
    cr_expect(same_state(run, other));
    cr_expect_eq(step_by_hand(other, 1), r.loss); /* of both micro-batches */
    cr_expect(!same_state(run, other));
    lathe_run_close(other);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* Rows 56 to 71 are steps 15 to 18: they are counted, update nothing and are not part of the
 * window. */
Test(loss_spike, skip_leaves_the_steps_out)
{
    char dir[] = "/tmp/lathe-spike-XXXXXX", out[256], said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 56, 71);
    configure(&s, dir, "skip");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(train_said(run, said, sizeof said, &r));
    cr_assert_eq(run->at.step, 30);
    cr_assert_eq(run->at.skipped, 4, "%lld", (long long)run->at.skipped);
    cr_assert_eq(run->at.skipped_in_row, 0);
    cr_assert_eq(run->at.micro, 60);
    cr_assert_eq(run->at.spike.n_accepted, 26);
    cr_assert(strstr(said, "step 15: the loss is "), "%s", said);
    cr_assert(strstr(said, "; the step is left out\n"), "%s", said);
    snprintf(out, sizeof out, "%s/out", dir);
    cr_expect(isnan(figure(out, 4, "loss_zscore")));
    cr_expect(!isnan(figure(out, 5, "loss_zscore"))); /* 4 losses are half of 8 */
    cr_expect_lt(figure(out, 14, "loss_zscore"), 4.0);
    cr_expect_eq(figure(out, 14, "spikes"), 0.0);
    for (int k = 15; k <= 18; k++) {
        cr_expect_gt(figure(out, k, "loss_zscore"), 4.0);
        cr_expect_eq(figure(out, k, "spikes"), k - 14.0);
        cr_expect_eq(figure(out, k, "skipped_steps"), k - 14.0);
    }
    cr_expect_lt(figure(out, 19, "loss_zscore"), 4.0);
    cr_expect_eq(figure(out, 30, "spikes"), 4.0);
    lathe_run *other = open_beside(dir);
    for (int k = 1; k <= 30; k++)
        step_by_hand(other, k < 15 || k > 18);
    cr_expect(same_state(run, other)); /* AdamW counts updates: by hand there were only these */
    lathe_run_close(other);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(loss_spike, skip_gives_up_after_ten_in_a_row)
{
    char dir[] = "/tmp/lathe-spike-XXXXXX", said[8192] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 56, ROWS - 1); /* from step 15 on */
    configure(&s, dir, "skip");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_assert_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC);
    expect_parts((const char *const[]){"step 24: the loss is ", "a spike",
                                       "10 steps in a row were left out", NULL});
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* Step 15 is bad and step 12 was saved: training continues from its state with the rows from step
 * 16 on. */
Test(loss_spike, rewind_continues_after_the_bad_step)
{
    char dir[] = "/tmp/lathe-spike-XXXXXX", out[256], said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 56, 59);
    configure(&s, dir, "rewind");
    set(&s, "checkpoint.every=4");
    set(&s, "train.stop_after=20");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(train_said(run, said, sizeof said, &r));
    cr_assert(strstr(said, "step 15: the loss is "), "%s", said);
    cr_assert(strstr(said, "back from step 15 to "), "%s", said);
    cr_assert(strstr(said, "step-00000012; the data that follow the bad step come next"), "%s",
              said);
    cr_assert_eq(run->at.step, 20);
    cr_assert_eq(run->at.skipped, 0);
    cr_assert_eq(run->at.cursor.index, 4 * 23);
    cr_assert_eq(run->at.spike.n_accepted, 20 - 12 + WINDOW);
    cr_assert_eq(run->at.spike.n_spikes, 1); /* it stays counted */
    snprintf(out, sizeof out, "%s/out", dir);
    cr_expect_eq(figure(out, 12, "spikes"), 0.0);
    cr_expect_eq(figure(out, 13, "spikes"), 1.0);
    lathe_run *other = open_beside(dir);
    for (int k = 1; k <= 20; k++) {
        for (int m = 0; k == 13 && m < 6; m++) {
            lathe_batch batch;
            OK(lathe_loader_next(other->data.loader, &batch));
            other->at.micro++;
        }
        step_by_hand(other, 1);
    }
    cr_expect(same_state(run, other));
    lathe_run_close(other);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(loss_spike, rewind_gives_up_after_three_times)
{
    char dir[] = "/tmp/lathe-spike-XXXXXX", said[8192] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 56, ROWS - 1);
    configure(&s, dir, "rewind");
    set(&s, "checkpoint.every=4");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_assert_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC, "%s", said);
    expect_parts(
        (const char *const[]){"a spike", "after going back to ", "step-00000012 3 times", NULL});
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* Counted, written to the metrics, and trained on as usual. */
Test(loss_spike, ignore_changes_nothing)
{
    char dir[] = "/tmp/lathe-spike-XXXXXX", out[256], said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 56, 59);
    configure(&s, dir, "ignore");
    set(&s, "train.stop_after=20");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(train_said(run, said, sizeof said, &r));
    cr_assert_eq(run->at.spike.n_spikes, 1);
    cr_assert_eq(run->at.spike.n_accepted, 20);
    cr_assert_eq(run->at.skipped, 0);
    snprintf(out, sizeof out, "%s/out", dir);
    cr_expect_gt(figure(out, 15, "loss_zscore"), 4.0);
    lathe_run *other = open_beside(dir);
    for (int k = 1; k <= 20; k++)
        step_by_hand(other, 1);
    cr_expect(same_state(run, other));
    lathe_run_close(other);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* Stopped after 13 steps, two before the spike, and after 16, between the skipped steps. Both
 * continue like a run that was not stopped: same skipped steps, same metrics to the last digit,
 * same weights. */
Test(loss_spike, a_resumed_run_decides_the_same, .timeout = 60)
{
    char dir[] = "/tmp/lathe-spike-XXXXXX", out[256], parts[256], said[8192] = "";
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 56, 67); /* steps 15 to 17 */
    settings s = {.n = 0};
    configure(&s, dir, "skip");
    lathe_run *whole = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(train_said(whole, said, sizeof said, &r));
    cr_assert_eq(whole->at.skipped, 3);
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(parts, sizeof parts, "%s/parts", dir);
    lathe_run *run = NULL;
    static const int ends[] = {13, 16, 30};
    for (int i = 0; i < 3; i++) {
        settings p = {.n = 0};
        configure(&p, dir, "skip");
        set(&p, "checkpoint.dir=%s", parts);
        set(&p, "train.stop_after=%d", ends[i]);
        lathe_run_close(run);
        run = open_run(LATHE_OPEN_TRAIN, p.list);
        OK(train_said(run, said, sizeof said, &r));
        cr_assert_eq(run->at.step, ends[i]);
    }
    cr_expect_eq(run->at.skipped, 3);
    cr_expect_eq(run->at.spike.n_spikes, 3);
    for (int k = 5; k <= 30; k++) {
        cr_expect_eq(figure(parts, k, "loss_zscore"), figure(out, k, "loss_zscore"), "step %d", k);
        cr_expect_eq(figure(parts, k, "spikes"), figure(out, k, "spikes"), "step %d", k);
    }
    cr_expect(same_state(run, whole));
    lathe_run_close(run);
    lathe_run_close(whole);
    OK(lathe_dir_remove(dir));
}

/* The default window and threshold over 200 steps of a learning run. */
Test(loss_spike, ordinary_steps_give_no_alarm, .timeout = 60)
{
    char dir[] = "/tmp/lathe-spike-XXXXXX", said[8192] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, T * ROWS);
    configure(&s, dir, "stop");
    set(&s, "train.max_steps=200");
    set(&s, "train.spike_window=64");
    set(&s, "train.spike_threshold=6");
    set(&s, "data.shuffle=true");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(train_said(run, said, sizeof said, &r));
    cr_expect_eq(run->at.step, 200);
    cr_expect_eq(run->at.spike.n_spikes, 0);
    cr_expect_eq(run->at.spike.n_accepted, 200);
    cr_expect_lt(r.loss, 3.0);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* ---- bad input ---- */

Test(loss_spike, bad_settings_are_refused_by_key)
{
    static const struct {
        const char *key, *text, *more;
    } rows[] = {
        {"train.spike_threshold=0", "train.spike_threshold", "0"},
        {"train.spike_threshold=-1", "train.spike_threshold", "-1"},
        {"train.spike_threshold=nan", "train.spike_threshold", "not a number"},
        {"train.spike_window=1", "train.spike_window", "1"},
        {"train.spike_window=1025", "train.spike_window", "1024"},
        {"train.on_spike=jump", "on_spike", "stop, skip, rewind, ignore"},
        {"train.on_spike=rewind", "train.on_spike", "needs checkpoint.every"},
    };
    char dir[] = "/tmp/lathe-spike-XXXXXX";
    make_folder(dir, T * ROWS);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        settings s = {.n = 0};
        lathe_run *run = NULL;
        configure(&s, dir, "stop");
        set(&s, "%s", rows[i].key);
        cr_expect_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG, "%s",
                     rows[i].key);
        expect_parts((const char *const[]){rows[i].text, rows[i].more, NULL});
    }
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure(&s, dir, "rewind");
    set(&s, "checkpoint.every=4");
    set(&s, "checkpoint.dir=");
    cr_expect_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_parts((const char *const[]){"train.on_spike", "needs checkpoint.dir", NULL});
    OK(lathe_dir_remove(dir));
}

/* All errors of a file at once, each with its line and column. */
Test(loss_spike, bad_settings_are_refused_by_place)
{
    static const char *const text = "[train]\n"               /* 1 */
                                    "on_spike = \"rewind\"\n" /* 2 */
                                    "spike_threshold = 0.0\n" /* 3 */
                                    "spike_window = 1\n"      /* 4 */
                                    "[data]\n"                /* 5 */
                                    "datasets = [{path = \".\"}]\n"
                                    "[model]\nmodel_type = \"gpt2\"\n";
    char dir[] = "/tmp/lathe-spike-XXXXXX", path[64];
    lathe_run *run = NULL;
    make_folder(dir, 100);
    snprintf(path, sizeof path, "%s/bad.toml", dir);
    OK(lathe_file_write_atomic(path, text, (int64_t)strlen(text)));
    cr_expect_eq(open_options(path, NULL, 0, LATHE_OPEN_TRAIN, &run), LATHE_E_CONFIG);
    expect_parts((const char *const[]){"bad.toml:3:19: error: train.spike_threshold is 0",
                                       "bad.toml:4:16: error: train.spike_window is 1", NULL});
    FILE *f = fopen(path, "w");
    fputs("[train]\non_spike = \"rewind\"\n[data]\ndatasets = [{path = "
          "\".\"}]\n[model]\nmodel_type = \"gpt2\"\n",
          f);
    fclose(f);
    cr_expect_eq(open_options(path, NULL, 0, LATHE_OPEN_TRAIN, &run), LATHE_E_CONFIG);
    expect_parts((const char *const[]){
        "bad.toml:2:12: error: train.on_spike = \"rewind\" needs checkpoint.every", NULL});
    OK(lathe_dir_remove(dir));
}
