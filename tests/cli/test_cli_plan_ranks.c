/* lathe plan --ranks: the table, its JSON, and what is refused. */
#include <jansson.h>
#include <math.h>
#include <sys/resource.h>

#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

/* 300*32 embeddings and head, 12320 of the layer, 32 of the last norm. */
static void setup(void)
{
    make_folder();
    put("run.toml", "[model]\nmodel_type = \"llama\"\nvocab_size = 300\nhidden_size = 32\n"
                    "intermediate_size = 64\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
                    "max_position_embeddings = 64\n[tokenizer]\npath = \"bytes\"\n"
                    "[data]\nseq_len = 32\n[train]\nprecision = \"fp32\"\nmax_steps = 3\n"
                    "[adapter]\nname = \"full\"\n[optimizer]\nname = \"adamw\"\n");
}

TestSuite(cli_plan_ranks, .init = setup, .fini = remove_folder);

/* The object of a strategy; fails if it is missing. */
static const json_t *strategy(const json_t *plan, const char *name)
{
    size_t i;
    const json_t *row;
    const json_t *all = json_object_get(json_object_get(plan, "ranks"), "strategies");
    for (i = 0; i < json_array_size(all); i++) {
        row = json_array_get(all, i);
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            return row;
    }
    cr_assert_fail("no %s in %s", name, output);
    return NULL;
}

static double number(const json_t *row, const char *key)
{
    const json_t *found = json_object_get(row, key);
    cr_assert(json_is_number(found), "no number %s", key);
    return json_number_value(found);
}

static json_t *plan(const char *words)
{
    char line[1024];
    (void)snprintf(line, sizeof line, LATHE " plan %s --json", words);
    cr_assert_eq(run(line), 0, "%s", output);
    json_t *found = json_loads(output, 0, NULL);
    cr_assert_not_null(found, "%s", output);
    return found;
}

Test(cli_plan_ranks, bytes_and_seconds_follow_from_the_gradients)
{
    json_t *p = plan("run.toml --ranks 64 --link 10Gbit,0.2ms --step-time 1.2s");
    const json_t *ddp = strategy(p, "ddp"), *zero3 = strategy(p, "zero3");
    const double grads = number(json_object_get(p, "memory"), "gradients");
    cr_expect_geq(grads, 4 * number(p, "parameters"));
    cr_expect_float_eq(number(ddp, "bytes_sent"), 2.0 * 63 / 64 * grads, 0.51);
    /* one bucket, and 64 * 32 f64 in which they agree; 3 * 63 rounds */
    const double seconds =
        2.0 * 63 / 64 * grads / 1.25e9 + 63.0 / 64 * 64 * 256 / 1.25e9 + 189 * 2e-4;
    cr_expect_float_eq(number(ddp, "exchange_seconds"), seconds, 1e-9);
    cr_expect_float_eq(number(ddp, "in_order_seconds"), 1.2 + seconds, 1e-8);
    cr_expect(json_is_true(json_object_get(ddp, "trains")));
    cr_expect(json_is_true(json_object_get(ddp, "memory_is_exact")));
    cr_expect(json_is_true(json_object_get(zero3, "trains")));
    cr_expect(json_is_true(json_object_get(zero3, "memory_is_exact")));
    cr_expect(json_is_true(json_object_get(strategy(p, "hybrid"), "trains")));
    cr_expect_float_eq(number(zero3, "bytes_sent"), 3.0 * 63 / 64 * grads, 1e-3 * grads);
    cr_expect_eq(number(strategy(p, "diloco fp32"), "inner_steps"), 100);
    cr_expect_geq(number(strategy(p, "diloco fp32"), "saving"), 100 - 1e-6);
    cr_expect_geq(number(strategy(p, "diloco int8"), "saving"), 390);
    cr_expect_eq(number(strategy(p, "hybrid"), "shard_ranks"), 8);
    const json_t *hybrid = strategy(p, "hybrid");
    /* an eighth of two moments; sums over the elements of a rank are shorter, too */
    cr_expect_geq(number(json_object_get(ddp, "memory"), "optimizer") -
                      number(json_object_get(hybrid, "memory"), "optimizer"),
                  7.0 / 8 * 8 * number(p, "parameters"));
    json_decref(p);
}

/* 32 tokens per micro-batch at a given rate; four micro-batches take four times as long. */
Test(cli_plan_ranks, the_time_of_computing_follows_from_a_rate)
{
    json_t *p = plan("run.toml --ranks 2 --link 1GB,0s --rate 0.001TFLOP");
    json_t *q = plan("run.toml --ranks 2 --link 1GB,0s --rate 1GFLOP/s "
                     "--train.gradient_accumulation_steps 4");
    const double a = number(json_object_get(p, "ranks"), "compute_seconds");
    cr_expect_float_eq(a, number(p, "flops_per_step") / 1e9, 1e-6 * a);
    cr_expect_float_eq(number(json_object_get(q, "ranks"), "compute_seconds"), 4 * a, 0.2 * a);
    json_decref(p);
    json_decref(q);
}

/* Two of three products are backward. With recomputed layers it is three of four, except that the
 * last product of a layer is not computed again. */
Test(cli_plan_ranks, recomputed_layers_are_a_part_of_the_backward)
{
    static const char words[] = "run.toml --ranks 2 --link 1GB,0s --step-time 1s "
                                "--model.num_hidden_layers 200";
    char more[512];
    (void)snprintf(more, sizeof more, "%s --train.recompute layer", words);
    json_t *p = plan(words), *q = plan(more);
    cr_expect_float_eq(number(json_object_get(p, "ranks"), "backward_share"), 2.0 / 3.0, 0.01);
    cr_expect_leq(number(json_object_get(q, "ranks"), "backward_share"), 0.75);
    cr_expect_geq(number(json_object_get(q, "ranks"), "backward_share"), 0.70);
    json_decref(p);
    json_decref(q);
}

Test(cli_plan_ranks, without_a_time_the_device_is_measured)
{
    expect(LATHE " plan run.toml --ranks 2 --link 1GB,0s --share 0.25 2>&1", 0, "(0.25 of the ");
    expect(LATHE " plan run.toml --ranks 2 --link 1GB,0s 2>&1", 0, "(0.5 of the ");
}

Test(cli_plan_ranks, the_table_has_a_row_for_every_strategy)
{
    expect(LATHE " plan run.toml --ranks 64 --link 10Gbit,0.2ms --islands 8 --island-link "
                 "100Mbit,50ms --step-time 1.2s 2>&1",
           0, "8 islands of 8, each with one of 100 Mbit/s and 50 ms");
    static const char *const names[] = {"ddp",         "zero1",       "zero2",
                                        "zero3",       "hybrid 8",    "diloco fp32",
                                        "diloco bf16", "diloco int8", "diloco int4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char row[64];
        const int overlaps = i < 2 || i > 4; /* sums of gradients during the backward */
        (void)snprintf(row, sizeof row, "\n  %-12s %s ", names[i],
                       overlaps ? "overlapped" : "in order");
        cr_expect_not_null(strstr(output, row), "no row of %s in\n%s", names[i], output);
    }
    cr_expect_not_null(strstr(output, "\n  ddp          exact "), "%s", output);
    cr_expect_not_null(strstr(output, "\n  zero3        exact "), "%s", output);
    cr_expect_not_null(strstr(output, "\n  hybrid 8     exact "), "%s", output);
    cr_expect_not_null(strstr(output, "\n  diloco       exact "), "%s", output);
}

/* One strategy's refusal is printed, and the others are planned. */
Test(cli_plan_ranks, what_a_strategy_refuses_is_said)
{
    expect(LATHE " plan run.toml --ranks 4 --link 1GB,0s --step-time 1s --checkpoint.async true "
                 "--checkpoint.dir out 2>&1",
           0, "\n  zero2 does not train this run: ");
    cr_expect_not_null(strstr(output, "checkpoint.async = true needs a copy of all state"), "%s",
                       output);
    cr_expect_not_null(strstr(output, "\n  ddp          exact "), "%s", output);
    cr_expect_not_null(strstr(output, "\n  zero3        predicted "), "%s", output);
}

/* A run that several ranks refuse is forecast, and marked as one that does not train. */
Test(cli_plan_ranks, what_ranks_cannot_do_is_said)
{
    static const char words[] = "run.toml --ranks 4 --link 1GB,0s --step-time 1s "
                                "--train.on_spike rewind --train.spike_threshold 5";
    json_t *p = plan(words);
    cr_expect(json_is_false(json_object_get(strategy(p, "ddp"), "trains")));
    cr_expect(json_is_false(json_object_get(strategy(p, "ddp"), "memory_is_exact")));
    const char *why = json_string_value(json_object_get(json_object_get(p, "ranks"), "refusal"));
    cr_assert_not_null(why);
    cr_expect_not_null(strstr(why, "train.on_spike = \"rewind\" is not possible on several ranks"),
                       "%s", why);
    json_decref(p);
    char line[512];
    (void)snprintf(line, sizeof line, LATHE " plan %s 2>&1", words);
    expect(line, 0, "\n  this run does not train on several ranks: ");
    cr_expect_not_null(strstr(output, "\n  ddp          not yet "), "%s", output);
}

/* Whether a rank of a strategy fits train.memory_limit. */
static int fits(const json_t *p, const char *name)
{
    return json_is_true(json_object_get(strategy(p, name), "fits"));
}

static double peak_of(const json_t *p, const char *name)
{
    return json_number_value(json_object_get(json_object_get(strategy(p, name), "memory"), "peak"));
}

/* train.memory_limit stands for the memory of each rank. */
Test(cli_plan_ranks, the_plan_names_the_strategies_that_fit_a_limit)
{
    static const char words[] = "run.toml --ranks 4 --link 1GB,0s --step-time 1s";
    char line[512];
    json_t *p = plan(words);
    const double ddp = peak_of(p, "ddp"), zero1 = peak_of(p, "zero1");
    json_decref(p);
    cr_assert_gt(ddp, zero1);
    (void)snprintf(line, sizeof line, "%s --train.memory_limit %.9f", words,
                   (zero1 + ddp) / 2.0 / 1073741824.0);
    p = plan(line);
    cr_expect(!fits(p, "ddp") && fits(p, "zero1"));
    cr_expect_null(json_object_get(json_object_get(p, "ranks"), "would_fit"));
    json_decref(p);
}

/* If no strategy fits, the plan names what would: here only more ranks, and the fewest of them. */
Test(cli_plan_ranks, the_plan_names_the_fewest_ranks_that_fit_a_limit)
{
    static const char words[] =
        "--link 1GB,0s --step-time 1s --parallel.bucket_mb 0.1 --adapter.name lora "
        "--train.micro_batch_size 1 --train.recompute layer --data.seq_len 16 "
        "--model.hidden_size 64 --model.intermediate_size 256 --model.num_hidden_layers 20";
    char line[1024];
    double peaks[7] = {0};
    for (int n = 5; n <= 6; n++) {
        (void)snprintf(line, sizeof line, "run.toml --ranks %d %s", n, words);
        json_t *p = plan(line);
        peaks[n] = peak_of(p, "zero3");
        json_decref(p);
    }
    cr_assert_gt(peaks[5], peaks[6]);
    (void)snprintf(line, sizeof line,
                   LATHE " plan run.toml --ranks 2 %s --train.memory_limit %.9f 2>&1", words,
                   (peaks[5] + peaks[6]) / 2.0 / 1073741824.0);
    expect(line, 0,
           "train.memory_limit is too small for each of them; this would fit:\n"
           "  --parallel.shard parameters on 6 ranks   (peak ");
}

/* A check for several ranks looks for what they may divide first, planned as one of them. */
Test(cli_plan_ranks, a_check_for_ranks_names_the_division_that_fits)
{
    char text[4000] = "", line[512];
    json_t *p = plan("run.toml --ranks 2 --link 1GB,0s --step-time 1s");
    const double limit = (peak_of(p, "ddp") + peak_of(p, "zero1")) / 2.0 / 1073741824.0;
    json_decref(p);
    for (int i = 0; i < 100; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "one line of %d texts\n",
                       i);
    put("text.txt", text);
    (void)snprintf(line, sizeof line,
                   LATHE " validate run.toml --ranks 2 --data.datasets '[{ path = \"text.txt\" }]' "
                         "--train.memory_limit %.9f 2>&1",
                   limit);
    expect(line, 2, "this would fit:\n  --parallel.shard optimizer   (peak ");
    (void)snprintf(line, sizeof line,
                   LATHE " validate run.toml --ranks 2 --data.datasets '[{ path = \"text.txt\" }]' "
                         "--train.memory_limit %.9f --parallel.shard optimizer 2>&1",
                   limit);
    expect(line, 0, "");
}

Test(cli_plan_ranks, wrong_networks_are_refused)
{
    static const struct {
        const char *options, *message;
    } rows[] = {
        {"--ranks 64", "--ranks needs --link"},
        {"--ranks 1 --link 1GB,0s", "--ranks"},
        {"--link 1GB,0s", "--link has no effect without --ranks"},
        {"--step-time 1s", "--step-time has no effect without --ranks"},
        {"--ranks 64 --link 10Gbit", "expected bandwidth and latency"},
        {"--ranks 64 --link 10Gb,0.2ms", "expected a number with bit, Kbit"},
        {"--ranks 64 --link 10Gbit,0.2", "expected a number with ns, us"},
        {"--ranks 64 --link 0Gbit,0.2ms", "expected a bandwidth above 0"},
        {"--ranks 64 --link 10Gbit,0.2ms,1ms", "expected a number with ns, us"},
        {"--ranks 64 --link 10Gbit,-1ms", "expected a number with ns, us"},
        {"--ranks 64 --link 1GB,0s --islands 7 --island-link 1MB,1ms",
         "7 islands do not divide the 64 ranks: give --islands 4 or 8, or --ranks 63"},
        {"--ranks 64 --link 1GB,0s --islands 8", "--islands needs --island-link"},
        {"--ranks 64 --link 1GB,0s --island-link 1MB,1ms", "no effect without --islands"},
        {"--ranks 64 --link 1GB,0s --islands 65 --island-link 1MB,1ms", "--islands"},
        {"--ranks 64 --link 1GB,0s --shard-ranks 7",
         "expected a divisor of the 64 ranks, and fewer than all ranks: 4 or 8"},
        {"--ranks 64 --link 1GB,0s --shard-ranks 64", "fewer than all ranks: 32"},
        {"--ranks 7 --link 1GB,0s --shard-ranks 7", "there is none, so leave it out"},
        {"--ranks 64 --link 1GB,0s --islands 8 --island-link 1MB,1ms --shard-ranks 16",
         "expected a divisor of the 8 ranks of an island, and fewer than all ranks: 8"},
        {"--ranks 64 --link 1GB,0s --inner-steps 0", "--inner-steps"},
        {"--ranks 64 --link 1GB,0s --step-time 0s", "expected a time above 0"},
        {"--ranks 64 --link 1GB,0s --step-time 1.2", "expected a number with ns, us"},
        {"--ranks 64 --link 1GB,0s --rate 5", "expected a number above 0 with FLOP/s"},
        {"--ranks 64 --link 1GB,0s --rate 0TFLOP", "expected a number above 0 with FLOP/s"},
        {"--ranks 64 --link 1GB,0s --rate 1TFLOP --step-time 1s", "give one of --step-time"},
        {"--ranks 64 --link 1GB,0s --share 2", "--share"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[512];
        (void)snprintf(line, sizeof line, LATHE " plan run.toml %s 2>&1", rows[i].options);
        expect(line, 2, rows[i].message);
    }
}

/* 70e9 parameters, the shape of Llama 3, without weights: the seconds are those of the processor,
 * which do not depend on what else the machine does. */
Test(cli_plan_ranks, seventy_billion_parameters_are_planned_at_once)
{
    put("config.json",
        "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": "
        "8192, \"intermediate_size\": 28672, \"num_hidden_layers\": 80, \"num_attention_heads\": "
        "64, \"num_key_value_heads\": 8, \"vocab_size\": 128256, \"max_position_embeddings\": "
        "8192, "
        "\"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, \"tie_word_embeddings\": false}\n");
    put("large.toml",
        "[model]\npath = \".\"\n[data]\nseq_len = 4096\n[train]\nprecision = \"bf16\"\n"
        "recompute = \"layer\"\nmax_steps = 10\n[adapter]\nname = \"full\"\n");
    struct rusage before, after;
    cr_assert_eq(getrusage(RUSAGE_CHILDREN, &before), 0);
    json_t *p = plan("large.toml --ranks 64 --link 10Gbit,0.2ms --islands 8 --island-link "
                     "100Mbit,50ms --rate 400TFLOP");
    cr_assert_eq(getrusage(RUSAGE_CHILDREN, &after), 0);
    cr_expect_float_eq(number(p, "parameters"), 70.55e9, 0.01e9);
    cr_expect_geq(number(strategy(p, "ddp"), "bytes_sent"), 2.0 * 63 / 64 * 4 * 70.5e9);
    cr_expect_leq(number(json_object_get(strategy(p, "zero3"), "memory"), "peak"), 80e9);
    const double seconds = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                           1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec);
#ifdef __SANITIZE_ADDRESS__
    cr_expect_leq(seconds, 10.0, "%g s", seconds);
#else
    cr_expect_leq(seconds, 1.5, "%g s", seconds);
#endif
    json_decref(p);
}
