/* Checkpoints of a run: when they are written, which are kept, and that asynchronous ones have the
 * same bits. */

#include "metrics/figure_names.h"
#include "metrics/metrics_read.h"
#include "run/api/save_load.h"
#include "run/state/run_saved.h"
#include "support/checkpoint_case.h"

static char dir[64];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/lathe-checkpoint-XXXXXX");
    make_folder(dir, 4000);
}

static void drop_dir(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(checkpoint, .init = make_dir, .fini = drop_dir);

static void ignore_row(void *arg, const lathe_metrics_row *row)
{
    (void)arg, (void)row;
}

/* ---- asynchronous checkpoints are equal ---- */

static void check_async(const char *const *more, const char *weights)
{
    for (int async = 0; async < 2; async++) {
        settings s = {.n = 0};
        configure(&s, dir);
        set_all(&s, more);
        set(&s, "checkpoint.dir=%s/%s", dir, async ? "async" : "sync");
        set(&s, "checkpoint.every=1");
        set(&s, "checkpoint.keep_best=2");
        set(&s, "checkpoint.async=%s", async ? "true" : "false");
        OK(train_once(&s, NULL, NULL));
    }
    for (int step = 1; step <= 6; step++) {
        const char *names[3] = {weights, "state/optimizer.safetensors", "state/run.json"};
        for (int k = 0; k < 3; k++)
            expect_same_file(in(dir, "sync/step-%08d/%s", step, names[k]),
                             in(dir, "async/step-%08d/%s", step, names[k]));
        OK(lathe_manifest_verify(in(dir, "async/step-%08d", step)));
    }
    expect_same_file(in(dir, "sync/latest"), in(dir, "async/latest"));
    expect_same_file(in(dir, "sync/best"), in(dir, "async/best"));
    OK(lathe_dir_remove(in(dir, "sync")));
    OK(lathe_dir_remove(in(dir, "async")));
}

Test(checkpoint, asynchronous_ones_hold_the_same_bits)
{
    check_async((const char *const[]){NULL}, "model.safetensors");
    check_async((const char *const[]){"train.precision=bf16", "optimizer.name=muon", NULL},
                "model.safetensors");
    check_async((const char *const[]){"adapter.name=lora", NULL}, "adapter_model.safetensors");
    check_async((const char *const[]){"adapter.name=lora", "train.precision=bf16", NULL},
                "model.safetensors");
}

Test(checkpoint, the_stall_is_a_figure_of_the_next_step)
{
    settings s = {.n = 0};
    configure(&s, dir);
    char *text = NULL;
    int64_t n = 0;
    set(&s, "checkpoint.every=2");
    OK(train_once(&s, NULL, NULL));
    OK(lathe_file_read(in(dir, "out/metrics.jsonl"), 0, &text, &n));
    int line = 0;
    for (char *at = strtok(text, "\n"); at; at = strtok(NULL, "\n"))
        cr_assert_eq(strstr(at, "\"checkpoint_stall_seconds\": ") != NULL, ++line == 3 || line == 5,
                     "line %d: %s", line, at);
    cr_assert_eq(line, 6);
    free(text);
}

/* ---- when they are written, and which are kept ---- */

Test(checkpoint, without_a_period_one_is_made_at_the_end)
{
    settings s = {.n = 0};
    configure(&s, dir);
    lathe_train_result r;
    const char *text = NULL;
    OK(train_once(&s, &r, &text));
    cr_assert_str_eq(steps_in(dir), "6");
    cr_assert(r.checkpoint && strstr(r.checkpoint, "out/step-00000006"), "%s", r.checkpoint);
    cr_assert(strstr(text, "out/step-00000006"), "%s", text);
}

Test(checkpoint, every_so_many_epochs)
{
    settings s = {.n = 0};
    configure(&s, dir);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int64_t rows = lathe_loader_rows(run->data.loader);
    char want[64];
    lathe_run_close(run);
    const int64_t first = (2 * rows + 1) / 2; /* two rows per step: the step that ends epoch 2 */
    set(&s, "checkpoint.every_epochs=2");
    set(&s, "train.eval_every=0");
    set(&s, "train.max_steps=%lld", (long long)first + 3);
    OK(train_once(&s, NULL, NULL));
    snprintf(want, sizeof want, "%lld %lld", (long long)first, (long long)first + 3);
    cr_assert_str_eq(steps_in(dir), want);
}

Test(checkpoint, the_last_and_the_best_are_kept)
{
    settings s = {.n = 0};
    configure(&s, dir);
    char *text = NULL, want[64];
    int64_t n = 0;
    double loss[7] = {0};
    set(&s, "checkpoint.every=1");
    set(&s, "checkpoint.keep_last=1");
    set(&s, "checkpoint.keep_best=2");
    set(&s, "optimizer.lr=0.3"); /* high enough that the loss does not only fall */
    OK(train_once(&s, NULL, NULL));
    OK(lathe_file_read(in(dir, "out/metrics.jsonl"), 0, &text, &n));
    int step = 0;
    for (char *at = strtok(text, "\n"); at; at = strtok(NULL, "\n"))
        cr_assert_eq(sscanf(strstr(at, "\"eval_loss\""), "\"eval_loss\": %lf", &loss[++step]), 1);
    free(text);
    int first = 1, second = 0;
    for (int i = 2; i <= 6; i++)
        if (loss[i] < loss[first]) {
            second = first;
            first = i;
        } else if (!second || loss[i] < loss[second]) {
            second = i;
        }
    const int a = first < second ? first : second, b = first < second ? second : first;
    if (b == 6)
        snprintf(want, sizeof want, "%d 6", a);
    else
        snprintf(want, sizeof want, "%d %d 6", a, b);
    cr_assert_str_eq(steps_in(dir), want);
    cr_assert_eq(pointed(dir, "best"), first);
    cr_assert_eq(pointed(dir, "latest"), 6);
}

/* Only evaluations, without a period: those among the best write checkpoints, and a resumed run
 * continues with the existing list. */
Test(checkpoint, an_evaluation_among_the_best_is_written)
{
    settings s = {.n = 0};
    configure(&s, dir);
    set(&s, "checkpoint.keep_best=1");
    set(&s, "checkpoint.keep_last=1");
    set(&s, "train.stop_after=3");
    OK(train_once(&s, NULL, NULL));
    const int64_t best = pointed(dir, "best");
    cr_assert_geq(best, 1);
    set(&s, "train.stop_after=5");
    set(&s, "optimizer.lr=30"); /* from here on the loss gets worse */
    OK(train_once(&s, NULL, NULL));
    cr_assert_eq(pointed(dir, "best"), best);
    cr_assert_eq(pointed(dir, "latest"), 5);
}

Test(checkpoint, best_by_a_metric_that_no_step_reports_is_refused)
{
    settings s = {.n = 0};
    configure(&s, dir);
    set(&s, "checkpoint.keep_best=1");
    set(&s, "data.validation_split=0.0");
    lathe_run *run = NULL;
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_message("checkpoint.keep_best depends on eval_loss, but the run evaluates nothing: set "
                   "data.validation");
}

Test(checkpoint, an_empty_folder_name_is_refused_before_anything_is_trained)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure(&s, dir);
    set(&s, "checkpoint.dir=");
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_message("--checkpoint.dir: error: checkpoint.dir is empty: the run would train and save "
                   "nothing; expected a folder, such as \"out\"");
}

Test(checkpoint, a_best_metric_that_never_comes_is_refused_with_the_one_that_was_meant)
{
    static const char *const wrong[] = {"eval_losss", "eval_rewards/margins", "grad_norm/heads"};
    static const char *const near[] = {"(did you mean 'eval_loss'?)", "is not a figure of this run",
                                       "(did you mean 'grad_norm/head'?)"};
    for (int i = 0; i < 3; i++) {
        settings s = {.n = 0};
        lathe_run *run = NULL;
        configure(&s, dir);
        set(&s, "checkpoint.keep_best=1");
        set(&s, "optimizer.groups=[{name = \"head\", params = [\"lm_head.*\"], lr = 0.1}]");
        set(&s, "checkpoint.best_metric=%s", wrong[i]);
        cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
        expect_message("checkpoint.best_metric = \"");
        expect_message(near[i]);
        set(&s, "checkpoint.best_metric=grad_norm/head");
        OK(open_run_status(LATHE_OPEN_TRAIN, s.list, &run));
        lathe_run_close(run);
    }
}

/* Every metric that a run writes may be best_metric. */
Test(checkpoint, every_figure_in_metrics_jsonl_is_a_name_that_best_metric_takes)
{
    static const char *const precisions[] = {"fp16", "bf16"};
    for (int i = 0; i < 2; i++) {
        settings s = {.n = 0};
        configure(&s, dir);
        set(&s, "train.precision=%s", precisions[i]);
        set(&s, "checkpoint.dir=%s/%s", dir, precisions[i]);
        set(&s, "train.spike_window=2");
        set(&s, "optimizer.groups=[{name = \"a\\\"b\", params = [\"lm_head.*\"], lr = 0.1}]");
        OK(train_once(&s, NULL, NULL));
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        lathe_metrics_reader *reader = NULL;
        OK(lathe_metrics_reader_create(in(dir, "%s/metrics.jsonl", precisions[i]), &reader));
        OK(lathe_metrics_reader_poll(reader, ignore_row, NULL));
        cr_expect_eq(lathe_metrics_reader_bad_lines(reader), 0);
        const int32_t n = lathe_metrics_reader_n_keys(reader);
        cr_expect_geq(n, 25);
        for (int32_t k = 0; k < n; k++)
            cr_expect(lathe_figure_is_known(&run->opt.groups, &run->programs.train.stage,
                                            lathe_metrics_reader_key(reader, k)),
                      "%s", lathe_metrics_reader_key(reader, k));
        lathe_metrics_reader_destroy(reader);
        lathe_run_close(run);
    }
}

Test(checkpoint, what_is_read_back_must_be_what_was_written)
{
    settings s = {.n = 0};
    configure(&s, dir);
    OK(train_once(&s, NULL, NULL));
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const char *path = in(dir, "out/step-00000006");
    OK(lathe_load(run, path));
    OK(lathe__checkpoint_read_back(lathe__run_saved(run), path));
    uint32_t bits;
    float *w = lathe_store_master(&run->store, 0);
    memcpy(&bits, &w[5], sizeof bits);
    bits ^= 1;
    memcpy(&w[5], &bits, sizeof bits);
    cr_assert_eq(lathe__checkpoint_read_back(lathe__run_saved(run), path), LATHE_E_CORRUPT);
    expect_message(run->params.rows[0]->name);
    lathe_run_close(run);
}
