/* parallel.shard: ranks that divide the state of a training compute what ranks that hold all of it
 * compute, bit by bit, and save the same files. */
#include "rank_files.h"

#define SHARD(shard) "--parallel.shard " shard " --train.micro_batch_size 4 "

/* Without clipping by norm: a norm is a sum over ranks, whose order depends on parallel.shard. */
#define FREE "--train.max_grad_norm 0 --train.max_steps 6 --train.eval_every 3 "

/* One micro-batch: "gradients" adds over ranks first and then over micro-batches, the others in the
 * other order. */
#define ONE_BATCH "--train.gradient_accumulation_steps 1 --parallel.bucket_mb 0.02 "

static const char *const shards[] = {"optimizer", "gradients", "parameters"};
enum { N_SHARDS = sizeof shards / sizeof shards[0] };

TestSuite(shard_ranks, .init = setup, .fini = teardown);

/* Words for a training with each optimizer that several ranks can run. */
static const char *const optimizers[] = {
    "--optimizer.name adamw",
    "--optimizer.name adamw --train.precision bf16 --train.grad_dtype bf16",
    "--optimizer.name adamw --optimizer.state_dtype bf16 --train.precision bf16",
    "--optimizer.name adamw_8bit --optimizer.min_8bit_size 0",
    "--optimizer.name adamw_anyprecision --train.precision bf16",
    "--optimizer.name adam_mini",
    "--optimizer.name adafactor --optimizer.beta1 0.9",
    "--optimizer.name apollo --optimizer.rank 4 --optimizer.update_proj_gap 2",
    "--optimizer.name galore --optimizer.rank 4 --optimizer.update_proj_gap 2",
    "--optimizer.name lion",
    "--optimizer.name muon",
    "--optimizer.name muon --train.precision bf16 --train.grad_dtype bf16",
    "--optimizer.name schedule_free_adamw --scheduler.name constant",
    "--optimizer.name schedule_free_adamw --scheduler.name constant --train.precision bf16",
    "--optimizer.name sgd --optimizer.momentum 0.9",
    "--optimizer.name signsgd",
    "--train.weight_average ema --train.weight_average_decay 0.9 --train.precision bf16",
    "--train.weight_average swa --train.weight_average_start 2",
    "--train.max_grad_value 1e-3 --optimizer.groups "
    "'[{ name = \"attention\", params = [\"*self_attn*\"], lr = 1e-3 }]'",
    "--train.precision fp16 --train.loss_scale_init 262144 --train.on_nonfinite skip",
    "--train.on_spike skip --train.spike_window 2 --train.spike_threshold 0.1",
    "--model.model_type mixtral --model.num_local_experts 3 --model.output_router_logits true",
    "--model.model_type mixtral --adapter.name lora "
    "--adapter.target_modules '[\"q_proj\", \"w2\"]'",
    "--adapter.name lora --adapter.dropout 0.3",
    "--adapter.name qlora --quant.name nf4 --train.precision bf16",
};

/* Trains in the folder `dir` with settings that all trainings of the next test have. */
static void train_free(const char *dir, const char *shard, const char *more, const char *words)
{
    char line[1024];
    (void)snprintf(line, sizeof line, SHARD("%s") FREE ONE_BATCH "%s %s", shard, more, words);
    cr_assert_eq(train(2, dir, line), 0, "%s: %s", line, output);
}

#ifdef __SANITIZE_ADDRESS__
enum { EACH = 5 };
#else
enum { EACH = 1 };
#endif

/* Ranks that divide the state, save it and go on with another division have the bits of ranks that
 * hold everything and were not interrupted. */
Test(shard_ranks, every_optimizer_has_the_bits_of_ranks_that_hold_everything)
{
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i += EACH) {
        cr_assert_eq(shell("rm -rf none"), 0);
        train_free("none", "none", "", optimizers[i]);
        cr_assert_eq(shell("rm -rf parts"), 0);
        const char *const other = shards[i / 2 % 2];
        train_free("parts", i % 2 ? other : "parameters", "--train.stop_after 3", optimizers[i]);
        train_free("parts", i % 2 ? "parameters" : other, "", optimizers[i]);
        expect_same("none", "parts", 0.0);
        expect_same_files("none/step-00000006", "parts/step-00000006", optimizers[i]);
    }
}

/* Samples, which rank 0 makes, and parameters that begin from other weights read whole weights
 * outside of a training's forward. Tied weights are read twice in a forward. */
Test(shard_ranks, whole_weights_are_gathered_wherever_they_are_read)
{
    static const char *const words[] = {
        "--model.tie_word_embeddings true --generate.every 3 --generate.prompt the "
        "--generate.max_new_tokens 8 --train.weight_average ema",
        "--adapter.name lora --adapter.init pissa --train.recompute layer",
        "--adapter.name lora --adapter.init mica --train.precision bf16",
        "--adapter.name dora --quant.name nf4 --train.precision bf16",
        "--adapter.name qlora --adapter.init loftq --quant.name nf4 --train.precision bf16",
        "--adapter.name freeze --adapter.layers 1 --train.precision bf16",
    };
    const size_t step = EACH > 1 ? 2 : 1; /* under a sanitizer, every other one */
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i += step) {
        cr_assert_eq(shell("rm -rf none parts"), 0);
        train_free("none", "none", "", words[i]);
        train_free("parts", "parameters", "", words[i]);
        expect_same("none", "parts", 0.0);
        expect_same_files("none/step-00000006", "parts/step-00000006", words[i]);
        cr_expect(i > 0 || shell("diff none/samples.jsonl parts/samples.jsonl && test $(wc -l < "
                                 "parts/samples.jsonl) = 2") == 0,
                  "%s", output);
    }
}

#ifdef __SANITIZE_ADDRESS__
#define LONG "20"
#else
#define LONG "200"
#endif

/* The losses of one, two and four ranks, with clipping and two micro-batches. */
Test(shard_ranks, two_and_four_ranks_train_as_one)
{
    static const char often[] = "--train.max_steps " LONG " --train.eval_every " LONG
                                " --parallel.bucket_mb 0.05 --parallel.shard";
    char words[512];
    cr_assert_eq(train(1, "one", "--train.max_steps " LONG " --train.eval_every " LONG), 0, "%s",
                 output);
    for (int s = 0; s < N_SHARDS; s++) {
        cr_assert_eq(shell("rm -rf two again four"), 0);
        (void)snprintf(words, sizeof words, "%s %s --train.micro_batch_size 4", often, shards[s]);
        cr_assert_eq(train(2, "two", words), 0, "%s", output);
        cr_assert_eq(train(2, "again", words), 0, "%s", output);
        (void)snprintf(words, sizeof words, "%s %s --train.micro_batch_size 2", often, shards[s]);
        cr_assert_eq(train(4, "four", words), 0, "%s", output);
        expect_same("one", "two", 1e-5);
        expect_same("one", "four", 1e-5);
        expect_same("two", "again", 0.0);
    }
}

/* A rank sends (R-1)/R of the gradients, once for each step or each of two micro-batches, and
 * (R-1)/R of the weights that are computed with; with "parameters" once for each forward and each
 * backward of a micro-batch, in which everything is in one bucket here, and vectors after the
 * update. */
Test(shard_ranks, a_step_sends_the_lower_bound)
{
    const double n = 2 * 257 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32;
    const double vectors = 5 * 32;
    cr_assert_eq(train(4, "f32", SHARD("optimizer") FREE), 0, "%s", output);
    expect_sent("f32", 0.75 * 8.0 * n);
    cr_assert_eq(train(4, "b16", SHARD("optimizer") FREE "--train.precision bf16"), 0, "%s",
                 output);
    expect_sent("b16", 0.75 * (6.0 * n + 2.0 * vectors));
    cr_assert_eq(train(4, "two", SHARD("gradients") FREE "--train.precision bf16"), 0, "%s",
                 output);
    expect_sent("two", 0.75 * (10.0 * n + 2.0 * vectors));
    cr_assert_eq(train(4, "all", SHARD("parameters") FREE "--train.precision bf16"), 0, "%s",
                 output);
    expect_sent("all", 0.75 * (2.0 * 4.0 * n + 2.0 * 2.0 * 2.0 * (n - vectors) + 4.0 * vectors));
}

/* The plan is what is held, as another rank's plan knew before: 1/R of the state, of the sums of
 * the gradients and of the weights. */
Test(shard_ranks, a_rank_plans_and_holds_its_share)
{
    static const char wide[] =
        "--train.micro_batch_size 4 " FREE "--model.hidden_size 64 --model.intermediate_size 128 "
        "--model.num_hidden_layers 6 --train.precision bf16 "
        "--train.weight_average ema --parallel.bucket_mb 0.1 ";
    static const struct {
        int n;
        const char *shard, *strategy;
    } cases[] = {{2, "optimizer", "zero1"},
                 {4, "gradients", "zero2"},
                 {2, "parameters", "zero3"},
                 {4, "parameters", "zero3"}};
    json_t *none = planned(2, "ddp", wide);
    const double masters = bytes_of(none, "average"); /* both are f32 of all weights */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int n = cases[i].n;
        double used[MOST_STEPS + 1];
        char words[1024];
        const char *key;
        json_t *value;
        cr_assert_eq(shell("rm -rf zero3"), 0);
        (void)snprintf(words, sizeof words, "--parallel.shard %s %s", cases[i].shard, wide);
        cr_assert_eq(train(n, cases[i].strategy, words), 0, "%s", output);
        json_t *own = made(cases[i].strategy), *expected = planned(n, cases[i].strategy, wide);
        json_object_foreach(own, key, value) cr_expect_eq(
            json_integer_value(value), json_integer_value(json_object_get(expected, key)),
            "%s of %s on %d ranks", key, cases[i].strategy, n);
        for (int k = 0; k < 2; k++) {
            const char *const state = k ? "average" : "optimizer";
            cr_expect_leq(bytes_of(own, state), (1.0 / n + 0.01) * bytes_of(none, state));
        }
        cr_expect_leq(bytes_of(own, "parameters"),
                      bytes_of(none, "parameters") - (1.0 - 1.0 / n - 0.01) * masters);
        if (i > 0) /* the rest are the gradients of one micro-batch, bucket by bucket */
            cr_expect_leq(bytes_of(own, "gradients"),
                          (1.0 / n + 0.45) * bytes_of(none, "gradients"));
        if (i > 1) /* and three buckets of gathered weights in bf16 */
            cr_expect_leq(bytes_of(own, "parameters"),
                          (1.0 / n + 0.01) * bytes_of(none, "parameters") + 3.5 * 0.05e6);
        cr_assert_eq(figures(cases[i].strategy, "memory_bytes", used), 6);
        double sum = 0.0;
        json_object_foreach(own, key, value) sum += (double)json_integer_value(value);
        cr_expect_eq(used[5], sum, "%s on %d ranks: %.0f bytes, not %.0f", cases[i].shard, n,
                     used[5], sum);
        json_decref(own);
        json_decref(expected);
    }
    json_decref(none);
}

/* "auto" takes the first division that fits, says what each needs, and records the choice. */
Test(shard_ranks, auto_takes_the_first_that_fits)
{
    static const char same[] = "--train.micro_batch_size 4 " FREE "--parallel.bucket_mb 0.02";
    char words[1024];
    json_t *max = planned(2, "zero1", same), *least = planned(2, "zero2", same);
    const double limit = 0.5 * (bytes_of(max, "peak") + bytes_of(least, "peak"));
    (void)snprintf(words, sizeof words, "--parallel.shard auto --train.memory_limit %.12f %s",
                   limit / 1073741824.0, same);
    cr_assert_eq(train(2, "auto", words), 0, "%s", output);
    cr_expect_not_null(strstr(output, "parallel.shard = \"auto\" chooses \"gradients\": \"none\" "
                                      "needs "),
                       "%s", output);
    (void)snprintf(words, sizeof words, "%s/auto/run.json", root);
    json_t *all = json_load_file(words, 0, NULL);
    cr_expect_str_eq(json_string_value(json_object_get(json_object_get(all, "plan"), "shard")),
                     "gradients");
    json_decref(all);
    json_decref(max);
    json_decref(least);
}

/* A loss that is not finite ends all ranks with the step's name, wherever they are in it. */
Test(shard_ranks, a_bad_loss_ends_all_ranks)
{
    for (int s = 0; s < N_SHARDS; s++) {
        char words[512];
        (void)snprintf(words, sizeof words,
                       "--parallel.shard %s --train.micro_batch_size 4 --optimizer.name sgd "
                       "--optimizer.lr 1000 --train.max_grad_norm 0",
                       shards[s]);
        cr_expect_neq(train(2, "bad", words), 0);
        cr_expect_not_null(strstr(output, "nothing was updated"), "%s", output);
        cr_assert_eq(shell("rm -rf bad"), 0);
    }
}

/* A state that four ranks have saved is loaded and saved by other numbers of ranks, bit by bit. */
Test(shard_ranks, any_number_of_ranks_loads_what_others_saved)
{
    static const struct {
        const char *train, *set;
    } cases[] = {
        {"--train.precision bf16 --train.weight_average ema",
         "train.precision=bf16 train.weight_average=ema"},
        {"--optimizer.name adamw_8bit --optimizer.min_8bit_size 0",
         "optimizer.name=adamw_8bit optimizer.min_8bit_size=0"},
        {"--optimizer.name muon", "optimizer.name=muon"},
    };
    static const struct {
        int n;
        const char *shard;
    } to[] = {{1, "optimizer"}, {2, "parameters"}, {3, "gradients"}, {8, "parameters"},
              {3, "none"},      {4, "parameters"}, {3, "optimizer"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[512], from[64] = "four/step-00000006", next[64];
        cr_assert_eq(shell("rm -rf four to_*"), 0);
        (void)snprintf(words, sizeof words, SHARD("%s") FREE "%s", shards[i], cases[i].train);
        cr_assert_eq(train(4, "four", words), 0, "%s", output);
        for (size_t k = i == 0 ? 0 : 1; k < sizeof to / sizeof to[0]; k += i == 0 ? 1 : 4) {
            (void)snprintf(next, sizeof next, "to_%zu", k);
            cr_assert_eq(reshard(to[k].n, to[k].shard, from, next, cases[i].set), 0, "%s", output);
            expect_same_files("four/step-00000006", next, cases[i].train);
            (void)snprintf(from, sizeof from, "%s", next);
        }
    }
}

/* Settings that do not go together are refused before anything starts, on one rank, too. */
Test(shard_ranks, what_shard_does_not_combine_with_is_refused)
{
    static const struct {
        const char *words, *message;
    } cases[] = {
        {"--checkpoint.async true", "checkpoint.async = true needs a copy of all state"},
        {"--train.on_spike rewind --checkpoint.every 2",
         "train.on_spike = \"rewind\" is not possible on several ranks"},
        {"--optimizer.name sophia",
         "optimizer \"sophia\" estimates curvature, which several ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[1024];
        (void)snprintf(line, sizeof line,
                       "%s/bin/lathe validate run.toml --parallel.shard parameters %s",
                       LATHE_TEST_BUILD, cases[i].words);
        cr_expect_neq(shell(line), 0);
        cr_expect_not_null(strstr(output, cases[i].message), "%s", output);
    }
}
