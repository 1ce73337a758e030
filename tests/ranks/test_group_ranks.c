/* A stage outside the tree with three rows for each record (examples/ranking) trains on one and two
 * ranks, resumes, and splits its micro-batches, without the core knowing it. */
#include "rank_files.h"

#define RANKING                                                                                    \
    "--stage.name ranking --tokenizer.path bytes --model.vocab_size 257 --data.seq_len 48 "        \
    "--data.datasets '[{ path = \"groups.jsonl\" }]' --train.micro_batch_size "

/* The right answer of 60 records is the first of their answers. */
static void begin(void)
{
    char text[60 * 128];
    size_t n = 0;
    setup();
    for (int i = 0; i < 60; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "{\"prompt\": \"%d + %d =\", \"completions\": [\" %d\", \" %d.\", "
                              "\" a fish of %d\"]}\n",
                              i, i % 7, i + i % 7, i + i % 7 + 1, i);
    write_file("groups.jsonl", text);
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/tests/ranking", 1), 0);
}

TestSuite(group_ranks, .init = begin, .fini = teardown);

/* The losses, norms and evaluations of two trainings; `most`: relative difference. */
static void expect_alike(const char *a, const char *b, double most)
{
    static const char *const keys[] = {"loss", "grad_norm", "first_over_second", "eval_loss",
                                       "eval_count"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        double x[MOST_STEPS + 1], y[MOST_STEPS + 1];
        const int n = figures(a, keys[k], x);
        cr_assert_gt(n, 0);
        cr_expect(!isnan(x[n - 1]), "%s is not in %s", keys[k], a);
        cr_assert_eq(figures(b, keys[k], y), n);
        for (int i = 0; i < n; i++)
            cr_expect((isnan(x[i]) && isnan(y[i])) || fabs(x[i] - y[i]) <= most * fabs(x[i]),
                      "%s of step %d: %.9g in %s, %.9g in %s", keys[k], i + 1, x[i], a, y[i], b);
    }
}

/* The evaluation is over 6 records, of which a micro-batch of 4 on two ranks pads the last. */
Test(group_ranks, train_as_one_rank_does)
{
    double loss[MOST_STEPS + 1];
    cr_assert_eq(train(1, "one", RANKING "4"), 0, "%s", output);
    cr_assert_eq(train(2, "two", RANKING "2 --parallel.bucket_mb 0.02"), 0, "%s", output);
    cr_assert_eq(train(2, "cut", RANKING "2 --parallel.shard optimizer"), 0, "%s", output);
    cr_assert_eq(train(1, "split", RANKING "2 --train.gradient_accumulation_steps 4"), 0, "%s",
                 output);
    expect_alike("one", "two", 1e-5);
    expect_alike("one", "cut", 1e-5);
    expect_alike("one", "split", 1e-5);
    const int n = figures("one", "loss", loss);
    /* of scores that are all alike, it is log 3 + log 2 */
    cr_expect(loss[n - 1] < log(6.0) && loss[n - 1] < loss[0], "%g at first, %g at last", loss[0],
              loss[n - 1]);
}

/* A training that is stopped and goes on has the bits of one that is not; on another number of
 * ranks the same records follow. */
Test(group_ranks, go_on_where_they_stopped)
{
    cr_assert_eq(train(1, "one", RANKING "4"), 0, "%s", output);
    cr_assert_eq(train(1, "parts", RANKING "4 --train.stop_after 5"), 0, "%s", output);
    copy_folder("parts", "other");
    cr_assert_eq(train(1, "parts", RANKING "4"), 0, "%s", output);
    expect_same_files("one/step-00000012", "parts/step-00000012", "one rank");
    expect_alike("one", "parts", 0.0);
    cr_assert_eq(train(2, "other", RANKING "2"), 0, "%s", output);
    expect_alike("one", "other", 1e-5);
    cr_assert_eq(train(2, "two", RANKING "2"), 0, "%s", output);
    cr_assert_eq(train(2, "both", RANKING "2 --train.stop_after 5"), 0, "%s", output);
    cr_assert_eq(train(2, "both", RANKING "2"), 0, "%s", output);
    expect_same_files("two/step-00000012", "both/step-00000012", "two ranks");
}
