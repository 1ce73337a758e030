/* Ranks on the far device, whose memory the host cannot access: exchanges go through pinned memory
 * (collective/staged), and a training has the bits of the same ranks on the CPU. */
#include <jansson.h>

#include "rank_training.h"

#include "support/plugin_override.h"

#define FAR LATHE_TEST_BUILD "/tests/far"
#define ON_CPU "--device.name cpu --attention.name reference "
#define ON_FAR                                                                                     \
    "--device.name far --attention.name far_reference --device.eager true --train.capture on "
#define WORDS "--train.micro_batch_size 4 --train.max_steps 6 --parallel.bucket_mb 0.02 "

static void setup_far(void)
{
    setup();
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", FAR, 1), 0);
    override_all_of(FAR);
}

TestSuite(far_ranks, .init = setup_far, .fini = teardown);

/* Returns the exit code of a shell command in the folder of the test; output: what it prints. */
static int shell(const char *line)
{
    char all[4096];
    (void)snprintf(all, sizeof all, "cd %s && { %s; } 2>&1", root, line);
    FILE *pipe = popen(all, "r"); /* NOLINT(cert-env33-c): the test makes the line */
    cr_assert_not_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void train_with(int n, const char *dir, const char *where, const char *words)
{
    char line[1024];
    (void)snprintf(line, sizeof line, "%s%s%s", where, WORDS, words);
    cr_assert_eq(train(n, dir, line), 0, "%s: %s", line, output);
}

static void expect_same_files(const char *a, const char *b, const char *what)
{
    char line[512];
    (void)snprintf(line, sizeof line,
                   "diff -r -q -x manifest.json -x run.json -x config.json %s/step-00000006 "
                   "%s/step-00000006",
                   a, b);
    cr_expect_eq(shell(line), 0, "%s: %s", what, output);
}

#ifdef __SANITIZE_ADDRESS__
enum { EACH = 4 };
#else
enum { EACH = 1 };
#endif

/* Optimizers and formats of tests/far, every division, with captured steps. */
Test(far_ranks, train_with_the_bits_of_the_cpu)
{
    static const char *const words[] = {
        "--parallel.shard none",
        "--parallel.shard optimizer",
        "--parallel.shard gradients",
        "--parallel.shard parameters",
        "--parallel.shard gradients --train.precision bf16 --train.grad_dtype bf16",
        "--parallel.shard parameters --train.precision bf16 --train.recompute layer",
        "--parallel.shard optimizer --optimizer.name muon",
        "--parallel.shard gradients --optimizer.name schedule_free_adamw --scheduler.name constant",
        "--parallel.shard none --adapter.name lora --adapter.dropout 0.3",
        "--parallel.shard parameters --adapter.name lora --adapter.init pissa",
        "--parallel.shard parameters --adapter.name lora --adapter.init mica",
        "--parallel.shard parameters --adapter.name qlora --adapter.init loftq --quant.name nf4 "
        "--train.precision bf16",
        "--parallel.shard parameters --adapter.name dora --quant.name nf4 --train.precision bf16",
        "--parallel.shard parameters --model.tie_word_embeddings true --generate.every 3 "
        "--generate.prompt the --generate.max_new_tokens 8 --train.weight_average ema",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i += EACH) {
        cr_assert_eq(shell("rm -rf far cpu"), 0);
        train_with(2, "far", ON_FAR, words[i]);
        cr_expect_not_null(strstr(output, "2 ranks: staged over Open MPI"), "%s", output);
        train_with(2, "cpu", ON_CPU, words[i]);
        expect_same("cpu", "far", 0.0);
        expect_same_files("cpu", "far", words[i]);
    }
}

/* The state of each rank's share in pinned memory, in parts of 4 KiB, and activations there. */
Test(far_ranks, state_and_activations_in_pinned_memory_change_nothing)
{
    static const char *const shards[] = {"optimizer", "gradients", "parameters"};
    char words[256];
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(shell("rm -rf plain moved"), 0);
        (void)snprintf(words, sizeof words, "--parallel.shard %s", shards[i]);
        train_with(2, "plain", ON_FAR, words);
        (void)snprintf(words, sizeof words,
                       "--parallel.shard %s --train.offload_optimizer true "
                       "--train.offload_buffer 0.02 --train.offload_activations true",
                       shards[i]);
        train_with(2, "moved", ON_FAR, words);
        expect_same("plain", "moved", 0.0);
        expect_same_files("plain", "moved", shards[i]);
    }
}

/* Stopped and gone on with on another number of ranks, and on another device. */
Test(far_ranks, go_on_elsewhere)
{
    train_with(1, "one", ON_FAR, "--train.micro_batch_size 8");
    train_with(4, "parts", ON_FAR,
               "--train.micro_batch_size 2 --train.stop_after 2 "
               "--parallel.shard parameters");
    train_with(2, "parts", ON_CPU, "--train.stop_after 4 --parallel.shard gradients");
    train_with(2, "parts", ON_FAR, "--parallel.shard optimizer");
    expect_same("one", "parts", 1e-5);
}

/* A link that is slow makes the same bits. */
Test(far_ranks, take_the_way_of_a_named_engine)
{
    train_with(2, "plain", ON_FAR, "--parallel.shard gradients");
    train_with(2, "slow", ON_FAR,
               "--parallel.shard gradients --collective.name throttle --collective.latency 1ms");
    cr_expect_not_null(strstr(output, "2 ranks: staged over 10Gbit 1ms over Open MPI"), "%s",
                       output);
    expect_same("plain", "slow", 0.0);
}

static json_t *strategy_of(const json_t *plan, const char *name)
{
    const json_t *list = json_object_get(json_object_get(plan, "ranks"), "strategies");
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0)
            return one;
    }
    return NULL;
}

/* Trains one step on n ranks, and compares every category of its plan with that of a strategy. */
static void expect_planned(int n, const char *words, const json_t *plan, const char *name)
{
    char line[1024], path[256];
    const char *key;
    json_t *value;
    (void)snprintf(line, sizeof line,
                   ON_FAR WORDS "--train.max_steps 1 --checkpoint.async false %s", words);
    cr_assert_eq(shell("rm -rf ranks"), 0);
    cr_assert_eq(train(n, "ranks", line), 0, "%s", output);
    (void)snprintf(path, sizeof path, "%s/ranks/run.json", root);
    json_t *run = json_load_file(path, 0, NULL);
    json_t *made = json_object_get(json_object_get(run, "plan"), "memory");
    const json_t *planned = json_object_get(strategy_of(plan, name), "memory");
    cr_assert(json_object_size(made) > 3 && planned != NULL);
    cr_expect_gt(json_integer_value(json_object_get(made, "staging")), 0);
    json_object_foreach(made, key, value)
    {
        cr_expect_eq(json_integer_value(value), json_integer_value(json_object_get(planned, key)),
                     "%s of %s: %lld and %lld", key, name, (long long)json_integer_value(value),
                     (long long)json_integer_value(json_object_get(planned, key)));
    }
    json_decref(run);
}

static json_t *plan_for(const char *words)
{
    char line[1024];
    (void)snprintf(line, sizeof line,
                   "%s/bin/lathe plan run.toml --json --link 10Gbit,0.1ms --step-time 1s "
                   "--data.cache_dir cache --checkpoint.async false " ON_FAR WORDS
                   "%s > plan.json && cat plan.json",
                   LATHE_TEST_BUILD, words);
    cr_assert_eq(shell(line), 0, "%s: %s", line, output);
    json_t *plan = json_loads(output, 0, NULL);
    cr_assert_not_null(plan, "%s", output);
    return plan;
}

/* With the copies of buckets in the host's memory. */
Test(far_ranks, the_plan_without_the_others_is_that_of_the_ranks)
{
    cr_assert_eq(train(2, "first", ON_FAR WORDS "--train.max_steps 1 --checkpoint.async false"), 0,
                 "%s", output); /* makes the data */
    json_t *plan = plan_for("--ranks 2");
    expect_planned(2, "--parallel.shard none", plan, "ddp");
    expect_planned(2, "--parallel.shard optimizer", plan, "zero1");
    expect_planned(2, "--parallel.shard gradients", plan, "zero2");
    expect_planned(2, "--parallel.shard parameters", plan, "zero3");
    json_decref(plan);
    plan = plan_for("--ranks 4 --shard-ranks 2");
    expect_planned(4, "--parallel.shard parameters --parallel.shard_ranks 2", plan, "hybrid");
    json_decref(plan);
}

/* Two groups of two, which divide and add in the device's memory. */
Test(far_ranks, groups_train_with_the_bits_of_the_cpu)
{
    static const char *const words[] = {
        "--parallel.shard optimizer --parallel.shard_ranks 2",
        "--parallel.shard gradients --parallel.shard_ranks 2 --train.precision bf16 "
        "--train.grad_dtype bf16",
        "--parallel.shard parameters --parallel.shard_ranks 2 --generate.every 3 "
        "--generate.prompt the --generate.max_new_tokens 8 --train.weight_average ema",
        "--parallel.shard parameters --parallel.shard_ranks 2 --adapter.name qlora "
        "--quant.name nf4 --train.precision bf16",
    };
    char line[512];
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        cr_assert_eq(shell("rm -rf far cpu"), 0);
        (void)snprintf(line, sizeof line, "--train.micro_batch_size 2 %s", words[i]);
        train_with(4, "far", ON_FAR, line);
        cr_expect_not_null(strstr(output, "4 ranks: staged over Open MPI"), "%s", output);
        train_with(4, "cpu", ON_CPU, line);
        expect_same("cpu", "far", 0.0);
        expect_same_files("cpu", "far", words[i]);
    }
}

/* By lathe validate, and by one of the ranks that were started. */
Test(far_ranks, islands_are_refused)
{
    static const char said[] = "device \"far\" has memory of its own, and islands of DiLoCo "
                               "exchange weights in the host's memory in this version";
    char line[1024];
    (void)snprintf(line, sizeof line,
                   "%s/bin/lathe validate run.toml " ON_FAR "--parallel.diloco_islands 2",
                   LATHE_TEST_BUILD);
    cr_expect_eq(shell(line), 2);
    cr_expect_not_null(strstr(output, said), "%s", output);
    cr_expect_eq(train(2, "refused", ON_FAR WORDS "--parallel.diloco_islands 2"), 2);
    const char *const at = strstr(output, said);
    cr_assert_not_null(at, "%s", output);
    cr_expect_null(strstr(at + 10, said), "%s", output);
}
