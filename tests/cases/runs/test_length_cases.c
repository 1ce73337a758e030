/* How long a run is: passes over the data after a resumption with other steps, examples of a step,
 * the default rate, starting over. */
#include "cli/training_case.h"

static const char answers[] = "[model]\n"
                              "model_type = \"llama\"\n"
                              "vocab_size = 260\n"
                              "hidden_size = 16\n"
                              "intermediate_size = 32\n"
                              "num_hidden_layers = 1\n"
                              "num_attention_heads = 2\n"
                              "max_position_embeddings = 64\n"
                              "[tokenizer]\n"
                              "path = \"bytes\"\n"
                              "[data]\n"
                              "datasets = [{ path = \"nine.jsonl\" }]\n"
                              "seq_len = 24\n"
                              "[stage]\n"
                              "name = \"sft\"\n"
                              "[train]\n"
                              "precision = \"fp32\"\n"
                              "gradient_accumulation_steps = 4\n"
                              "epochs = 3\n"
                              "threads = 1\n"
                              "[log]\n"
                              "progress = \"off\"\n";

/* Nine examples that are longer than half a row: nine rows, however they are packed. */
static void setup_nine(void)
{
    setup();
    put_times("nine.jsonl", "{\"prompt\": \"How many teeth?\", \"completion\": \" 36\"}\n", 9);
    put("nine.toml", answers);
}

TestSuite(length_cases, .init = setup_nine, .fini = remove_folder, .timeout = 240);

/* The last value of a key in metrics.jsonl. */
static double last_of(const char *dir, const char *key)
{
    char command[256];
    (void)snprintf(command, sizeof command,
                   "tail -1 %s/metrics.jsonl | grep -oE '\"%s\": [0-9.]+' | cut -d' ' -f2", dir,
                   key);
    cr_assert_eq(run(command), 0);
    return atof(output);
}

/* 27 rows are wanted, and a step has 4 of them, then others: the run ends when 28 are passed, which
 * is the end of a step. By hand: 7 steps of 4; 5 of 4 and 1 of 8; 3 of 4 and 8 of 2; 4 of 4 and 6
 * of 2, where a micro-batch has 2 rows. */
Test(length_cases, the_cursor_of_the_data_ends_a_run_by_epochs)
{
    static const struct {
        const char *pause, *rest;
        double step;
    } rows[] = {{"--train.stop_after 7", "", 7.0},
                {"--train.stop_after 5", "--train.gradient_accumulation_steps 8", 6.0},
                {"--train.stop_after 3", "--train.gradient_accumulation_steps 2", 11.0},
                {"--train.stop_after 4",
                 "--train.micro_batch_size 2 --train.gradient_accumulation_steps 1", 10.0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char command[512];
        cr_assert_eq(run("rm -rf out"), 0);
        (void)snprintf(command, sizeof command, LATHE " train nine.toml %s 2>&1", rows[i].pause);
        expect(command, 0, "");
        (void)snprintf(command, sizeof command, LATHE " train nine.toml %s 2>&1", rows[i].rest);
        expect(command, 0, "");
        cr_expect_float_eq(last_of("out", "step"), rows[i].step, 0.0, "%s", rows[i].rest);
        cr_expect_float_eq(last_of("out", "epoch"), 28.0 / 9.0, 1e-6, "%s", rows[i].rest);
        expect(command, 0, "nothing to do: step ");
        cr_expect_not_null(strstr(output, "3.111 of 3 epochs"), "%s", output);
        cr_expect_not_null(strstr(output, "set train.epochs higher"), "%s", output);
    }
    expect(LATHE " train nine.toml --train.epochs 4 2>&1", 0, "resumed from");
    cr_expect_float_eq(last_of("out", "epoch"), 36.0 / 9.0, 1e-6);
}

/* A checkpoint in the middle of a step, and a run of which a step has other rows then. */
Test(length_cases, an_interrupted_step_counts_with_the_rows_that_it_has)
{
    expect(LATHE " train nine.toml --train.stop_after 1 2>&1", 0, "");
    expect(LATHE " train nine.toml --train.epochs 0.5 2>&1", 0, "checkpoint out/step-00000002");
    cr_expect_float_eq(last_of("out", "step"), 2.0, 0.0, "4.5 rows are two steps of 4");
    expect(LATHE " train nine.toml --train.epochs 0.5 --checkpoint.dir new 2>&1", 0, "");
    cr_expect_float_eq(last_of("new", "step"), 2.0, 0.0);
    expect(LATHE " validate nine.toml --train.epochs 0 2>&1", 2, "train.epochs");
}

Test(length_cases, checkpoints_by_fractions_of_an_epoch)
{
    expect(LATHE " train nine.toml --checkpoint.every_epochs 0.5 --train.epochs 2 2>&1", 0, "");
    /* 5 steps of 4 of 9 rows end at 0.44 0.89 1.33 1.78 2.22 epochs */
    expect("ls -d out/step-* | tr '\\n' ' '", 0,
           "out/step-00000002 out/step-00000003 out/step-00000004 out/step-00000005");
    cr_expect_null(strstr(output, "step-00000001"), "%s", output);
}

/* A run of one step was all warm-up, at the rate 0; and nothing said how many records train. */
Test(length_cases, a_short_run_learns_and_says_of_what)
{
    put_times("four.jsonl", "{\"prompt\": \"2+2\", \"completion\": \" 4\"}\n", 4);
    expect(LATHE " train nine.toml --data.datasets '[{path = \"four.jsonl\"}]' --train.epochs 1 "
                 "--data.validation_split 0.25 --scheduler.warmup_ratio 0.03 --optimizer.lr 0.125 "
                 "--checkpoint.dir four 2>&1",
           0, "3 examples to train on, 1 to evaluate on, by data.validation_split");
    cr_expect_float_eq(last_of("four", "lr"), 0.125, 0.0);
    expect(LATHE " train nine.toml --checkpoint.dir all 2>&1", 0,
           "9 examples to train on, none to evaluate on");
    cr_assert_eq(run("sed 's/^epochs = 3/max_steps = 4/' nine.toml >steps.toml"), 0);
    expect(LATHE " validate steps.toml --scheduler.warmup_steps 4 2>&1", 0,
           "scheduler.warmup_steps is 4, all steps of the run, so the learning rate never reaches");
    expect(LATHE " validate steps.toml --train.max_steps 1 --scheduler.warmup_steps 1 2>&1", 0,
           "has the learning rate 0 in all 1 of 1 steps, so nothing is learnt");
}

/* "1 of 0" hid that the examples are too long. */
Test(length_cases, validation_of_examples_that_are_too_long_says_so)
{
    put_times("long.jsonl",
              "{\"prompt\": \"How many teeth has the gear of the lathe?\", "
              "\"completion\": \" 36\"}\n",
              3);
    expect(LATHE " validate nine.toml --data.datasets '[{path = \"long.jsonl\"}]' "
                 "--data.validation_count 1 2>&1",
           2,
           "0 of the 3 examples can be used, and validation takes 1: that leaves none to train on; "
           "rows hold data.seq_len = 24 tokens: 3 have nothing to learn within 24 tokens; set "
           "data.seq_len higher");
}

/* Examples of about 10 tokens: two fit in a row of 24. */
Test(length_cases, packing_none_gives_each_example_a_row)
{
    put_times("short.jsonl", "{\"prompt\": \"2+2\", \"completion\": \" 4\"}\n", 16);
    expect(LATHE " train nine.toml --data.datasets '[{path = \"short.jsonl\"}]' --train.epochs 1 "
                 "--log.progress plain 2>&1",
           0,
           "a step learns from about 16 examples: 4 rows of 24 tokens, packed (multipack); an "
           "epoch is 1 step");
    expect(LATHE " train nine.toml --data.datasets '[{path = \"short.jsonl\"}]' --train.epochs 1 "
                 "--data.packing none --checkpoint.dir none 2>&1",
           0,
           "a step learns from 4 examples: 4 rows of 24 tokens, not packed; an epoch is 4 steps");
    cr_expect_float_eq(last_of("none", "step"), 4.0, 0.0);
    /* " 4" and the end of 16 examples are learnt either way */
    expect(LATHE " data nine.toml --data.datasets '[{path = \"short.jsonl\"}]' --data.packing none",
           0, "16 rows of 24 tokens, not packed");
    /* documents, too: each line of a text file is not one, each file is */
    expect(LATHE " data run.toml --data.validation_split 0.0 --data.packing none 2>&1", 0,
           "not packed");
}

/* Table of docs/design/055-default-rates.md. */
Test(length_cases, the_default_rate_is_that_of_the_method_and_of_the_origin)
{
    static const struct {
        const char *settings, *says;
    } rows[] = {
        {"", "adapter full (default), optimizer adamw (default), lr 2e-05 (default for weights of "
             "a loaded model), scheduler cosine (default) over 7 steps without warm-up"},
        {"--adapter.name lora", "adapter lora (--adapter.name), optimizer adamw (default), lr "
                                "0.0002 (default for an adapter over a loaded model)"},
        {"--optimizer.lr 3e-4", "lr 0.0003 (--optimizer.lr)"},
        {"--optimizer.name lion", "lr 2e-06 (default for weights of a loaded model)"},
        {"--scheduler.warmup_ratio 0.25", "over 7 steps with 25 % of warm-up"},
    };
    expect(LATHE " train nine.toml --train.stop_after 1 --checkpoint.dir base 2>&1", 0,
           "lr 0.001 (default for a new model)");
    cr_assert_eq(run("sed -e '/^model_type/,/^max_pos/d' -e 's#^\\[model\\]#[model]\\npath = "
                     "\"base/step-00000001\"#' nine.toml > tuned.toml"),
                 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char command[512];
        cr_assert_eq(run("rm -rf out"), 0);
        (void)snprintf(command, sizeof command, LATHE " train tuned.toml %s 2>&1",
                       rows[i].settings);
        expect(command, 0, rows[i].says);
    }
    put_times("pairs.jsonl", "{\"prompt\": \"a\", \"chosen\": \" b\", \"rejected\": \" c\"}\n", 4);
    expect(LATHE " train tuned.toml --stage.name dpo --data.datasets '[{path = \"pairs.jsonl\"}]' "
                 "--adapter.name lora --checkpoint.dir pairs 2>&1",
           0, "lr 1e-05 (default for an adapter over a loaded model and preferences or rewards)");
    expect(LATHE " plot schedule tuned.toml --steps 10", 0, "2e-05");
}

Test(length_cases, a_lowest_rate_above_the_rate_is_refused)
{
    expect(
        LATHE " train nine.toml --scheduler.min_lr 0.1 2>&1", 2,
        "scheduler.min_lr = 0.1 is above the learning rate 0.001 (a default: optimizer.lr is not "
        "set)");
    expect(LATHE " validate nine.toml --optimizer.lr 0.01 --scheduler.min_lr 0.1 2>&1", 2,
           "scheduler.min_lr = 0.1 is above the learning rate 0.01: expected at most that rate");
    expect(LATHE " plot schedule nine.toml --scheduler.min_lr 0.1 --steps 10 2>&1", 2,
           "is above the learning rate");
    expect(LATHE " validate nine.toml --optimizer.lr 0.1 --scheduler.min_lr 0.1 2>&1", 0, "");
}

Test(length_cases, restart_moves_the_old_run_aside)
{
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000006");
    expect(LATHE " train run.toml 2>&1", 0,
           "nothing to do: step 6 of 6; to train on, set train.max_steps higher; to start over, "
           "give --checkpoint.resume restart");
    expect(LATHE " train run.toml --checkpoint.resume never 2>&1", 2,
           "checkpoint.resume = \"restart\"");
    expect(LATHE " train run.toml --checkpoint.resume restart --train.max_steps 4 2>&1", 0,
           "the run in out was moved to ");
    cr_expect_not_null(strstr(output, "out.before-1"), "%s", output);
    cr_expect_not_null(strstr(output, "step 1/4"), "%s", output);
    expect("ls out out.before-1", 0, "step-00000006");
    cr_expect_eq(run("test -e out/step-00000006"), 1);
    cr_expect_eq(run("test -e out/step-00000004"), 0);
    expect(LATHE " train run.toml --checkpoint.resume restart 2>&1", 0, "out.before-2");
    /* nothing to move: it is an ordinary start */
    expect(LATHE " train run.toml --checkpoint.resume restart --checkpoint.dir fresh 2>&1", 0,
           "checkpoint fresh/step-00000006");
    cr_expect_eq(run("test -e fresh.before-1"), 1);
}

Test(length_cases, all_changed_keys_are_named_at_once)
{
    expect(LATHE " train run.toml --train.stop_after 2 2>&1", 0, "checkpoint out/step-00000002");
    expect(LATHE " train run.toml --optimizer.name sgd --scheduler.name linear --data.seq_len 8 "
                 "--train.max_grad_norm 0.5 2>&1",
           2, "optimizer.name is \"sgd\"");
    cr_expect_not_null(strstr(output, "scheduler.name is \"linear\""), "%s", output);
    cr_expect_not_null(strstr(output, "data.seq_len 16 -> 8"), "%s", output);
    cr_expect_not_null(strstr(output, "train.max_grad_norm 1.0 -> 0.5"), "%s", output);
    cr_expect_not_null(strstr(output, "--checkpoint.resume restart"), "%s", output);
}

Test(length_cases, omp_num_threads_is_honoured_and_named)
{
    expect("OMP_NUM_THREADS=1 " LATHE " train run.toml --train.threads 0 --checkpoint.dir a 2>&1",
           0, "with 1 thread (OMP_NUM_THREADS)");
    expect("OMP_NUM_THREADS=3 " LATHE " train run.toml --checkpoint.dir b 2>&1", 0,
           "with 1 thread;");
}

Test(length_cases, plans_and_plots_count_the_steps_of_epochs)
{
    expect(LATHE " plot schedule nine.toml", 0, "steps               7\n");
    expect(LATHE " plan nine.toml", 0, "cosine over 7 steps");
    expect(LATHE " plan nine.toml --data.datasets '[{path = \"gone.jsonl\"}]' 2>&1", 0,
           "the steps of train.epochs are not counted");
    expect(LATHE " train nine.toml --checkpoint.every_epochs 1 2>&1", 0, "");
    expect("ls -d out/step-*", 0, "step-00000007");
}

/* The second start counts on from the first. */
Test(length_cases, elapsed_time_is_that_of_all_starts)
{
    expect(LATHE " train nine.toml --train.stop_after 3 2>&1", 0, "");
    const double before = last_of("out", "elapsed_seconds");
    expect(LATHE " train nine.toml --log.progress plain 2>&1", 0, "resumed from");
    cr_expect_gt(last_of("out", "elapsed_seconds"), before);
}
