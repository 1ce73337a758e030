/* parallel.diloco_islands: islands of ranks train apart, and exchange the change of their weights
 * once in a round. */
#include "rank_files.h"

#define ISLANDS(n, h) "--parallel.diloco_islands " #n " --parallel.diloco_inner_steps " #h " "
#define DTYPE "--parallel.diloco_pseudo_gradient_dtype "

TestSuite(diloco_ranks, .init = setup, .fini = teardown);

/* With one island whose rate is 1 and whose momentum is 0, a round changes nothing but the rounding
 * of start - (start - w): DiLoCo is what it was made of. */
Test(diloco_ranks, one_island_without_momentum_trains_as_no_island)
{
    cr_assert_eq(train(2, "none", "--train.micro_batch_size 4"), 0, "%s", output);
    cr_assert_eq(train(2, "one",
                       ISLANDS(1, 4) "--parallel.diloco_outer_lr 1 "
                                     "--parallel.diloco_outer_momentum 0 "
                                     "--train.micro_batch_size 4"),
                 0, "%s", output);
    expect_same("none", "one", 1e-5);
    cr_assert_eq(train(1, "alone", ISLANDS(1, 4)), 0, "one rank alone: %s", output);
}

/* Which rows an island sees, that a run is the same every time, and what can be inside an island:
 * nothing divided, ZeRO-1 and 2, hybrid. They differ by the order of sums alone. */
Test(diloco_ranks, islands_divide_what_ranks_divide)
{
    static const char *const inside[] = {"--parallel.shard optimizer", "--parallel.shard gradients",
                                         "--parallel.shard parameters --parallel.shard_ranks 2",
                                         "--parallel.shard optimizer --parallel.shard_ranks 2"};
    static const char same[] =
        ISLANDS(2, 4) "--train.micro_batch_size 2 --parallel.bucket_mb 0.02 ";
    char words[512];
    cr_assert_eq(train(4, "ddp", same), 0, "%s", output);
    cr_assert_eq(train(4, "again", same), 0, "%s", output);
    expect_same("ddp", "again", 0.0);
    expect_same_files("ddp/step-00000012", "again/step-00000012", "the same ranks twice");
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        cr_assert_eq(shell("rm -rf parts"), 0);
        (void)snprintf(words, sizeof words, "%s%s", same, inside[i]);
        cr_assert_eq(train(4, "parts", words), 0, "%s: %s", inside[i], output);
        expect_same("ddp", "parts", 1e-5);
    }
}

/* A run that was interrupted within a round and at its end has the bits of one that was not: all
 * kinds of numbers, optimizers of every partition, averages, fp16 with its scales. */
Test(diloco_ranks, a_resumed_training_has_the_bits_of_one_that_was_not_interrupted)
{
    static const char *const words[] = {
        DTYPE "fp32",
        DTYPE "int8 --train.weight_average ema --train.precision bf16 --parallel.shard optimizer",
        DTYPE "int4 --optimizer.name muon",
        DTYPE "bf16 --optimizer.name adamw_8bit --optimizer.min_8bit_size 0 "
              "--parallel.shard gradients",
        DTYPE "fp16 --train.precision fp16 --train.loss_scale_init 262144 "
              "--train.on_nonfinite skip",
        "--adapter.name qlora --quant.name nf4 --train.precision bf16",
        DTYPE "int8 --parallel.shard parameters --parallel.shard_ranks 2 "
              "--optimizer.name adafactor --optimizer.beta1 0.9",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char line[1024], paused[1100];
        (void)snprintf(line, sizeof line,
                       ISLANDS(2, 3) "--train.micro_batch_size 2 --train.max_steps 8 "
                                     "--train.eval_every 4 --parallel.bucket_mb 0.02 %s ",
                       words[i]);
        cr_assert_eq(shell("rm -rf whole parts"), 0);
        cr_assert_eq(train(4, "whole", line), 0, "%s: %s", words[i], output);
        (void)snprintf(paused, sizeof paused, "%s--train.stop_after 3", line);
        cr_assert_eq(train(4, "parts", paused), 0, "%s: %s", words[i], output);
        (void)snprintf(paused, sizeof paused, "%s--train.stop_after 5", line);
        cr_assert_eq(train(4, "parts", paused), 0, "%s: %s", words[i], output);
        cr_assert_eq(train(4, "parts", line), 0, "%s: %s", words[i], output);
        expect_same("whole", "parts", 0.0);
        expect_same_files("whole/step-00000008", "parts/step-00000008", words[i]);
    }
}

/* Figures of each step; returns their number. */
static double sum_of(const char *dir, const char *key, int from)
{
    double x[MOST_STEPS + 1], sum = 0.0;
    const int n = figures(dir, key, x);
    for (int i = from; i < n; i++)
        sum += x[i];
    return sum;
}

/* Over H steps, ranks that are islands send 1/H of what they send without: with int8 1/390 at
 * H = 100, with scales. Counted by the engine. Pieces of an MB. */
Test(diloco_ranks, a_round_sends_what_one_step_sends_or_a_quarter)
{
    static const char wide[] = "--model.hidden_size 128 --model.intermediate_size 512 "
                               "--train.micro_batch_size 2 --train.gradient_accumulation_steps 1 "
                               "--train.max_grad_norm 0 --train.eval_every 100 "
                               "--parallel.bucket_mb 1 ";
    static const struct {
        const char *dtype;
        double least; /* of a step of DDP over a round's */
    } cases[] = {{"fp32", 1.0}, {"bf16", 2.0}, {"fp16", 2.0}, {"int8", 3.9}, {"int4", 7.0}};
    char words[1024];
    (void)snprintf(words, sizeof words, "%s--train.max_steps 1", wide);
    cr_assert_eq(train(4, "ddp", words), 0, "%s", output);
    const double ddp = sum_of("ddp", "ranks_bytes_sent", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert_eq(shell("rm -rf islands"), 0);
        (void)snprintf(words, sizeof words, "%s" ISLANDS(4, 4) DTYPE "%s --train.max_steps 8", wide,
                       cases[i].dtype);
        cr_assert_eq(train(4, "islands", words), 0, "%s", output);
        const double sent = sum_of("islands", "ranks_bytes_sent", 0) / 2.0; /* of two rounds */
        cr_expect_leq(sent * cases[i].least, ddp,
                      "%s: %.0f bytes in a round, %.0f in a step of DDP", cases[i].dtype, sent,
                      ddp);
        cr_expect_eq(sum_of("islands", "diloco_bytes_sent", 0), 2.0 * sent);
    }
}

/* The outer state is in the plan, to the byte, and lathe plan knew it. */
Test(diloco_ranks, a_rank_plans_and_holds_its_outer_state)
{
    static const struct {
        int n, islands;
        const char *dtype;
        int families;
    } cases[] = {{4, 4, "fp32", 2}, {4, 2, "int8", 3}, {4, 2, "bf16", 2}};
    const double n = 2 * 257 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32;
    static const char same[] = "--train.micro_batch_size 2 --train.max_steps 6 "
                               "--train.precision bf16 ";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[512], strategy[32];
        const char *key;
        json_t *value;
        double used[MOST_STEPS + 1], sum = 0.0;
        cr_assert_eq(shell("rm -rf islands"), 0);
        (void)snprintf(words, sizeof words,
                       "%s--parallel.diloco_islands %d --parallel.diloco_inner_steps 3 " DTYPE "%s",
                       same, cases[i].islands, cases[i].dtype);
        cr_assert_eq(train(cases[i].n, "islands", words), 0, "%s", output);
        (void)snprintf(words, sizeof words, "%s --islands %d --island-link 1GB,1ms", same,
                       cases[i].islands);
        (void)snprintf(strategy, sizeof strategy, "diloco %s", cases[i].dtype);
        json_t *own = made("islands"), *expected = planned(cases[i].n, strategy, words);
        json_t *ddp = planned(cases[i].n, "ddp", words);
        json_object_foreach(own, key, value)
        {
            cr_expect_eq(json_integer_value(value),
                         json_integer_value(json_object_get(expected, key)), "%s of %s", key,
                         strategy);
            sum += (double)json_integer_value(value);
        }
        const double part = n / (cases[i].n / cases[i].islands);
        cr_expect_float_eq(bytes_of(own, "optimizer") - bytes_of(ddp, "optimizer"),
                           4.0 * cases[i].families * part, 4.0 * cases[i].families * 256 + 192);
        cr_assert_eq(figures("islands", "memory_bytes", used), 6);
        cr_expect_eq(used[5], sum, "%s: %.0f bytes, not %.0f", strategy, used[5], sum);
        json_decref(own);
        json_decref(expected);
        json_decref(ddp);
    }
}

/* Islands that are left, or that join, go on from a checkpoint: at the end of a round and within
 * one; so do islands from a checkpoint without, and a run without from one of islands. */
Test(diloco_ranks, other_islands_go_on_from_a_checkpoint)
{
    static const char same[] = "--train.micro_batch_size 2 --train.eval_every 100 "
                               "--parallel.bucket_mb 0.02 ";
    static const struct {
        int n;
        const char *words;
    } to[] = {{3, ISLANDS(3, 3) DTYPE "int8"},
              {1, ISLANDS(1, 3)},
              {8, ISLANDS(8, 3) DTYPE "int8"},
              {4, ISLANDS(2, 3) "--parallel.shard optimizer"},
              {2, ""}};
    char words[512];
    for (int stop = 3; stop <= 4; stop++) {
        cr_assert_eq(shell("rm -rf four"), 0);
        (void)snprintf(words, sizeof words, "%s" ISLANDS(4, 3) DTYPE "int8 --train.stop_after %d",
                       same, stop);
        cr_assert_eq(train(4, "four", words), 0, "%s", output);
        for (size_t i = 0; i < sizeof to / sizeof to[0]; i++) {
            cr_assert_eq(shell("rm -rf other"), 0);
            copy_folder("four", "other");
            (void)snprintf(words, sizeof words, "%s%s", same, to[i].words);
            cr_expect_eq(train(to[i].n, "other", words), 0, "%d ranks, %s: %s", to[i].n,
                         to[i].words, output);
            double loss[MOST_STEPS + 1];
            cr_assert_eq(figures("other", "loss", loss), 12);
            cr_expect_lt(loss[11], loss[stop - 1]);
        }
    }
    (void)snprintf(words, sizeof words, "%s--train.stop_after 4", same);
    cr_assert_eq(train(2, "plain", words), 0, "%s", output);
    (void)snprintf(words, sizeof words, "%s" ISLANDS(2, 3), same);
    cr_expect_eq(train(2, "plain", words), 0, "%s", output);
}

/* The state of a checkpoint that four islands load and save again has the same bytes. */
Test(diloco_ranks, a_state_that_is_loaded_is_saved_as_it_was)
{
    static const char *const set =
        "parallel.diloco_islands=2 parallel.diloco_inner_steps=3 "
        "parallel.diloco_pseudo_gradient_dtype=int8 train.weight_average=ema";
    cr_assert_eq(train(4, "two",
                       ISLANDS(2, 3) DTYPE "int8 --train.micro_batch_size 2 --train.stop_after 5 "
                                           "--train.weight_average ema"),
                 0, "%s", output);
    cr_assert_eq(reshard(4, "optimizer", "two/step-00000005", "again", set), 0, "%s", output);
    expect_same_files("two/step-00000005", "again", "ZeRO-1");
    cr_assert_eq(reshard(2, "none", "again", "third", set), 0, "%s", output);
    expect_same_files("two/step-00000005", "third", "islands of one rank");
    /* error feedback of the first island that cannot be read is an error, not zeros */
    cr_assert_eq(
        shell("cd two/step-00000005/state && head -c 64 island-0.safetensors >part && mv part "
              "island-0.safetensors"),
        0);
    cr_expect_neq(train(4, "two",
                        ISLANDS(2, 3) DTYPE "int8 --train.micro_batch_size 2 --train.stop_after 6 "
                                            "--train.weight_average ema"),
                  0);
    cr_expect_not_null(strstr(output, "island-0.safetensors"), "%s", output);
}

typedef struct row {
    const char *words, *message; /* NULL: it is accepted */
} row;

/* The table of what islands combine with: docs/ranks.md. Where the number of ranks matters, ranks
 * that are there refuse. */
Test(diloco_ranks, the_table_of_what_goes_with_islands)
{
    static const row rows[] = {
        {"--parallel.shard none", NULL},
        {"--parallel.shard parameters --parallel.shard_ranks 2", NULL},
        {"--parallel.shard optimizer", NULL},
        {"--parallel.shard gradients", NULL},
        {"--parallel.shard parameters", "each island of DiLoCo needs them"},
        {"--adapter.name lora --adapter.merge_every 10", "islands of DiLoCo do not exchange"},
        {"--checkpoint.async true", "checkpoint.async = true needs a copy of all state"},
        {"--optimizer.name sophia", "estimates curvature, which 4 ranks"},
        {"--train.early_stopping_patience 2 --checkpoint.best_metric loss",
         "which each island of DiLoCo has for itself"},
    };
    static const row alone[] = {
        {"--parallel.diloco_inner_steps 10", "has no effect without islands"},
        {"--parallel.diloco_outer_lr 0", "diloco_outer_lr is 0"},
        {"--parallel.diloco_outer_momentum 1", "diloco_outer_momentum is 1"},
        {"--parallel.diloco_pseudo_gradient_dtype int2", "expected one of fp32, bf16"},
    };
    char line[1024];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] + sizeof alone / sizeof alone[0]; i++) {
        const size_t n = sizeof rows / sizeof rows[0];
        const row *r = i < n ? &rows[i] : &alone[i - n];
        (void)snprintf(line, sizeof line, "%s/bin/lathe validate run.toml %s %s", LATHE_TEST_BUILD,
                       i < n ? "--ranks 4 --parallel.diloco_islands 2" : "", r->words);
        cr_expect_eq(shell(line), r->message ? 2 : 0, "%s: %s", r->words, output);
        cr_expect(!r->message || strstr(output, r->message), "%s: %s", r->words, output);
        cr_expect_null(strstr(output, " errors"), "one error is told once: %s", output);
    }
    /* full shard across islands: groups of four ranks, and islands of two */
    cr_expect_eq(train(4, "bad",
                       "--parallel.diloco_islands 2 --parallel.shard optimizer "
                       "--parallel.shard_ranks 4"),
                 2);
    cr_expect_not_null(strstr(output, "shard_ranks is 4, and does not divide the 2 ranks of an "
                                      "island"),
                       "%s", output);
    cr_expect_eq(train(4, "bad", "--parallel.diloco_islands 3"), 2);
    cr_expect_not_null(strstr(output, "diloco_islands is 3, and does not divide the 4 ranks"), "%s",
                       output);
    cr_expect_eq(train(1, "bad", "--parallel.diloco_islands 2"), 2);
    cr_expect_not_null(strstr(output, "and there is one rank"), "%s", output);
}

/* The table of the primitives that are called step by step: step_program.c. */
Test(diloco_ranks, the_table_of_what_goes_with_steps_of_a_program)
{
    /* The rows of a batch are those of one process, so its loss and norm are, except on islands,
     * each of which takes its own step. */
    enum { LIKE_ONE_PROCESS, ISLANDS_APART, REFUSED };
    static const struct {
        const char *words, *message;
        int result;
    } rows[] = {
        {"parallel.shard=none", NULL, LIKE_ONE_PROCESS},
        {"parallel.shard=parameters parallel.shard_ranks=2", NULL, LIKE_ONE_PROCESS},
        {"parallel.shard=optimizer", NULL, LIKE_ONE_PROCESS},
        {"parallel.shard=gradients", NULL, LIKE_ONE_PROCESS},
        {"parallel.diloco_islands=2 parallel.diloco_inner_steps=2", NULL, ISLANDS_APART},
        {"parallel.shard=parameters", "parallel.shard = \"parameters\" does not go with lathe_step",
         REFUSED},
    };
    double loss, norm, one_loss, one_norm; /* of the ranks, and of one process with their rows */
    char line[1024];
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI: install libopenmpi-dev and openmpi-bin");
    (void)snprintf(line, sizeof line,
                   "%s/tests/step_program run.toml train.micro_batch_size=8 data.cache_dir=cache "
                   "2>/dev/null",
                   LATHE_TEST_BUILD);
    cr_assert_eq(shell(line), 0, "%s", output);
    cr_assert_eq(sscanf(output, "loss %lf norm %lf", &one_loss, &one_norm), 2, "%s", output);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)snprintf(line, sizeof line,
                       "timeout 60 %s --oversubscribe --mca btl self,vader,tcp -n 4 "
                       "%s/tests/step_program run.toml train.micro_batch_size=2 "
                       "data.cache_dir=cache %s",
                       LATHE_TEST_MPIRUN, LATHE_TEST_BUILD, rows[i].words);
        const int code = shell(line);
        cr_expect_eq(code != 0, rows[i].result == REFUSED, "%s: %s", rows[i].words, output);
        cr_expect(!rows[i].message || strstr(output, rows[i].message), "%s: %s", rows[i].words,
                  output);
        if (rows[i].result != LIKE_ONE_PROCESS)
            continue;
        const char *said = strstr(output, "loss ");
        cr_assert(said && sscanf(said, "loss %lf norm %lf", &loss, &norm) == 2, "%s", output);
        cr_expect_lt(fabs(loss - one_loss), 1e-6 * one_loss, "%s: %s", rows[i].words, output);
        cr_expect_lt(fabs(norm - one_norm), 1e-5 * one_norm, "%s: %s, one process: %g",
                     rows[i].words, output, one_norm);
    }
}
