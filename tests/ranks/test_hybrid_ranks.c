/* parallel.shard_ranks: groups of ranks divide a training, and each group holds all of it. Four
 * ranks as two groups of two. */
#include "rank_files.h"

#define HYBRID(shard) "--parallel.shard " shard " --parallel.shard_ranks 2 "

static const char *const shards[] = {"optimizer", "gradients", "parameters"};
enum { N_SHARDS = sizeof shards / sizeof shards[0] };

TestSuite(hybrid_ranks, .init = setup, .fini = teardown);

#ifdef __SANITIZE_ADDRESS__
#define LONG "20"
#else
#define LONG "200"
#endif

/* With clipping and two micro-batches. */
Test(hybrid_ranks, two_groups_of_two_train_as_one_rank)
{
    static const char often[] =
        "--train.max_steps " LONG " --train.eval_every " LONG " --parallel.bucket_mb 0.05 ";
    char words[512];
    cr_assert_eq(train(1, "one", often), 0, "%s", output);
    for (int s = 0; s < N_SHARDS; s++) {
        cr_assert_eq(shell("rm -rf four again"), 0);
        (void)snprintf(words, sizeof words, "%s" HYBRID("%s") "--train.micro_batch_size 2", often,
                       shards[s]);
        cr_assert_eq(train(4, "four", words), 0, "%s", output);
        cr_assert_eq(train(4, "again", words), 0, "%s", output);
        expect_same("one", "four", 1e-5);
        expect_same("four", "again", 0.0);
        expect_same_files("four/step-00000" LONG, "again/step-00000" LONG, shards[s]);
    }
}

/* Optimizers of every partition, averages, and what reads whole weights outside of a forward. */
Test(hybrid_ranks, a_resumed_training_has_the_bits_of_one_that_was_not_interrupted)
{
    static const char *const words[] = {
        "--optimizer.name adamw --train.precision bf16 --train.weight_average ema",
        "--optimizer.name adamw_8bit --optimizer.min_8bit_size 0",
        "--optimizer.name adafactor --optimizer.beta1 0.9",
        "--optimizer.name muon --train.precision bf16 --train.grad_dtype bf16",
        "--optimizer.name schedule_free_adamw --scheduler.name constant --train.precision bf16",
        "--generate.every 3 --generate.prompt the --generate.max_new_tokens 8",
        "--adapter.name qlora --quant.name nf4 --train.precision bf16",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char line[1024];
        (void)snprintf(line, sizeof line,
                       HYBRID("%s") "--train.micro_batch_size 2 --train.max_steps 6 "
                                    "--train.eval_every 3 --parallel.bucket_mb 0.02 %s ",
                       shards[(i + 2) % N_SHARDS], words[i]);
        cr_assert_eq(shell("rm -rf whole parts"), 0);
        cr_assert_eq(train(4, "whole", line), 0, "%s: %s", words[i], output);
        char paused[1100];
        (void)snprintf(paused, sizeof paused, "%s--train.stop_after 3", line);
        cr_assert_eq(train(4, "parts", paused), 0, "%s: %s", words[i], output);
        cr_assert_eq(train(4, "parts", line), 0, "%s: %s", words[i], output);
        expect_same("whole", "parts", 0.0);
        expect_same_files("whole/step-00000006", "parts/step-00000006", words[i]);
    }
}

/* A state of two groups of two is loaded and saved by other layouts, bit by bit. */
Test(hybrid_ranks, any_layout_loads_what_another_saved)
{
    static const struct {
        int n;
        const char *shard, *groups;
    } to[] = {{1, "optimizer", "0"},  {6, "parameters", "3"}, {3, "gradients", "0"},
              {8, "parameters", "2"}, {2, "none", "0"},       {4, "gradients", "2"}};
    for (int s = 0; s < N_SHARDS; s++) {
        char words[512], from[64] = "four/step-00000003", next[64];
        cr_assert_eq(shell("rm -rf four to_*"), 0);
        (void)snprintf(words, sizeof words,
                       HYBRID("%s") "--train.micro_batch_size 2 --train.max_steps 3 "
                                    "--train.precision bf16 --train.weight_average ema",
                       shards[s]);
        cr_assert_eq(train(4, "four", words), 0, "%s", output);
        for (size_t k = s == 0 ? 0 : 3; k < sizeof to / sizeof to[0]; k++) {
            (void)snprintf(next, sizeof next, "to_%zu", k);
            (void)snprintf(words, sizeof words,
                           "train.precision=bf16 train.weight_average=ema parallel.shard_ranks=%s",
                           to[k].groups);
            cr_assert_eq(reshard(to[k].n, to[k].shard, from, next, words), 0, "%s", output);
            expect_same_files("four/step-00000003", next, shards[s]);
            (void)snprintf(from, sizeof from, "%s", next);
        }
    }
}

/* lathe plan knows what rank 0 of two groups of two holds; rank 0 holds it, and sends what is
 * needed: 1/2 of the gradients for each micro-batch inside its group, once 2 * 1/2 of its half
 * among the copies, and the weights. */
Test(hybrid_ranks, the_plan_is_exact_and_a_step_sends_the_lower_bound)
{
    static const char same[] = "--train.micro_batch_size 2 --train.max_grad_norm 0 "
                               "--train.max_steps 6 --train.precision bf16 ";
    const double n = 2 * 257 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32;
    const double vectors = 5 * 32;
    char words[512];
    const char *key;
    json_t *value;
    (void)snprintf(words, sizeof words, HYBRID("parameters") "%s", same);
    cr_assert_eq(train(4, "hybrid", words), 0, "%s", output);
    expect_sent("hybrid", 0.5 * (2.0 * 4.0 * n + 2.0 * 2.0 * 2.0 * (n - vectors) + 4.0 * vectors) +
                              0.5 * 4.0 * n);
    (void)snprintf(words, sizeof words, "%s --shard-ranks 2", same);
    json_t *own = made("hybrid"), *expected = planned(4, "hybrid", words);
    json_object_foreach(own, key, value) cr_expect_eq(
        json_integer_value(value), json_integer_value(json_object_get(expected, key)), "%s", key);
    json_decref(own);
    json_decref(expected);
    (void)snprintf(words, sizeof words, HYBRID("optimizer") "%s", same);
    cr_assert_eq(train(4, "optimizer", words), 0, "%s", output);
    expect_sent("optimizer", 0.5 * 6.0 * n + 0.5 * 4.0 * n);
}

/* Groups that cannot be are refused before anything starts, by one rank in one line. */
Test(hybrid_ranks, groups_that_cannot_be_are_refused)
{
    static const char *const cases[][2] = {
        {"--parallel.shard_ranks 2", "parallel.shard_ranks is 2, and parallel.shard = \"none\""},
        {"--parallel.shard optimizer --parallel.shard_ranks 1", "one rank divides nothing"},
        {"--parallel.shard optimizer --parallel.shard_ranks -2", "shard_ranks is -2"},
    };
    char line[1024];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)snprintf(line, sizeof line, "%s/bin/lathe validate run.toml %s", LATHE_TEST_BUILD,
                       cases[i][0]);
        cr_expect_eq(shell(line), 2);
        cr_expect_not_null(strstr(output, cases[i][1]), "%s", output);
    }
    cr_expect_eq(train(4, "bad", "--parallel.shard optimizer --parallel.shard_ranks 3"), 2);
    const char *const said = strstr(output, "parallel.shard_ranks is 3, and does not divide the 4 "
                                            "ranks");
    cr_assert_not_null(said, "%s", output);
    cr_expect_null(strstr(said + 10, "parallel.shard_ranks is 3"), "%s", output);
    cr_expect_null(strstr(output, "MPI_ABORT"), "%s", output);
    (void)snprintf(line, sizeof line,
                   "%s/bin/lathe plan run.toml --ranks 4 --shard-ranks 3 --link 1GB,0s",
                   LATHE_TEST_BUILD);
    cr_expect_eq(shell(line), 2);
    cr_expect_not_null(strstr(output, "--shard-ranks is 3"), "%s", output);
}
