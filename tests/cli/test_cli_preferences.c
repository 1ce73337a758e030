/* `lathe eval` of a preference run: takes pairs, prints rewards and accuracy, and no perplexity. */
#include "cli_case.h"
#include "support/child_program.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char run_file[] = "[model]\n"
                               "model_type = \"llama\"\n"
                               "vocab_size = 300\n"
                               "hidden_size = 32\n"
                               "intermediate_size = 64\n"
                               "num_hidden_layers = 1\n"
                               "num_attention_heads = 2\n"
                               "max_position_embeddings = 64\n"
                               "[tokenizer]\n"
                               "path = \"bytes\"\n"
                               "[data]\n"
                               "datasets = [{ path = \"pairs.jsonl\" }]\n"
                               "validation_count = 3\n"
                               "seq_len = 48\n"
                               "[stage]\n"
                               "name = \"dpo\"\n"
                               "[optimizer]\n"
                               "name = \"adamw\"\n"
                               "lr = 5e-3\n"
                               "[train]\n"
                               "micro_batch_size = 8\n"
                               "max_steps = 4\n"
                               "eval_every = 2\n"
                               "threads = 1\n"
                               "[checkpoint]\n"
                               "dir = \"out\"\n";

static void setup(void)
{
    child_programs_skip_the_leak_check();
    make_folder();
    put("run.toml", run_file);
    FILE *f = fopen("pairs.jsonl", "w");
    cr_assert_not_null(f);
    for (int i = 0; i < 20; i++)
        (void)fprintf(
            f, "{\"prompt\": \"part %d: \", \"chosen\": \"made well\", \"rejected\": \"no\"}\n", i);
    cr_assert_eq(fclose(f), 0);
}

TestSuite(cli_preferences, .init = setup, .fini = remove_folder);

Test(cli_preferences, eval_takes_pairs_and_prints_rewards_and_accuracy)
{
    double loss = 0.0, again = 0.0;
    expect(LATHE " train run.toml 2>&1", 0, "rewards/accuracies");
    cr_expect_null(strstr(output, "perplexity"), "%s", output);
    expect(LATHE " eval run.toml 2>&1", 0, "over 3 pairs");
    cr_expect_not_null(strstr(output, "rewards/margins"), "%s", output);
    cr_expect_not_null(strstr(output, "rewards/accuracies"), "%s", output);
    cr_expect_null(strstr(output, "perplexity"), "%s", output);
    expect(LATHE " eval run.toml --json 2>/dev/null", 0, "\"unit\": \"pairs\"");
    cr_assert_eq(sscanf(output, "{\"loss\": %lf, \"perplexity\": null", &loss), 1, "%s", output);
    cr_expect(loss > 0.0 && loss < 0.69, "training has moved the policy: %g", loss);
    expect(LATHE " eval run.toml --data pairs.jsonl --json 2>/dev/null", 0, "\"count\": 20, ");
    cr_assert_eq(sscanf(output, "{\"loss\": %lf", &again), 1, "%s", output);
    cr_expect(again > 0.0 && again < 0.69, "%g", again);
}

/* The manifest names the stage, its settings and the model before training: here a new one, made
 * from its seed. */
Test(cli_preferences, eval_of_the_folder_is_eval_of_the_run_file)
{
    static char said[sizeof output];
    expect(LATHE " train run.toml --stage.loss_type ipo --stage.beta 0.2 2>&1", 0, "checkpoint");
    expect(LATHE " eval run.toml --stage.loss_type ipo --stage.beta 0.2 --train.precision fp32 "
                 "--data pairs.jsonl --json "
                 "2>/dev/null",
           0, "\"unit\": \"pairs\"");
    strcpy(said, output);
    expect(LATHE " eval out --data pairs.jsonl --train.precision fp32 --json 2>/dev/null", 0, said);
    expect(LATHE " eval out/step-00000004 --data pairs.jsonl 2>&1", 0,
           "evaluates as out/step-00000004 was trained: stage dpo with its settings");
    expect(LATHE " eval out --data pairs.jsonl --stage.loss_type sigmoid --json 2>/dev/null", 0,
           "\"unit\": \"pairs\"");
    cr_expect_str_neq(output, said);
}

/* The folder is opened, and then again with the model before training. */
Test(cli_preferences, eval_of_the_folder_says_each_note_once)
{
    static const char *const notes[] = {"averaged weights, of two/step-00000004"};
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint");
    cr_assert_eq(run("sed -e '/^model_type/,/^max_position/d' -e 's/^\\[model\\]/&\\npath = "
                     "\"out\\/step-00000004\"/' -e 's/\"out\"/\"two\"/' run.toml > two.toml"),
                 0);
    expect(LATHE " train two.toml --train.weight_average swa 2>&1", 0, "checkpoint");
    cr_assert_eq(run(LATHE " eval two --data pairs.jsonl 2>&1 >/dev/null"), 0, "%s", output);
    for (int i = 0; i < 1; i++) {
        const char *first = strstr(output, notes[i]);
        cr_assert_not_null(first, "%s: %s", notes[i], output);
        cr_expect_null(strstr(first + 1, notes[i]), "%s: %s", notes[i], output);
    }
    expect(LATHE " eval two --data pairs.jsonl 2>&1 >/dev/null | sort | uniq -d | wc -l", 0, "0");
    /* what is said before an error is not lost */
    expect(LATHE " eval two --data pairs.jsonl --data.seq_len 4096 2>&1", 2,
           "averaged weights, of two/step-00000004");
}

Test(cli_preferences, eval_of_a_folder_names_the_model_before_training_if_it_is_gone)
{
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint");
    cr_assert_eq(run("mv out/step-00000004 base && rm -r out && "
                     "sed -i '/^model_type/,/^max_position/d; s/^.model.$/&\\npath = \"base\"/; "
                     "/^.tokenizer.$/,/^path = \"bytes\"/d' run.toml"),
                 0);
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint");
    expect(LATHE " eval out --data pairs.jsonl 2>&1", 0, "over 20 pairs");
    cr_assert_eq(run("mv base elsewhere"), 0);
    expect(LATHE " eval out --data pairs.jsonl 2>&1", 2,
           "out: stage \"dpo\" compares the model with the one before training, which the folder "
           "does not name, or which is not there: name the run file instead of the folder");
}

/* The folder says that it is a reward model, with and without an adapter. */
static void evaluates_as(const char *more)
{
    char command[300];
    double loss = 0.0, of_folder = 0.0;
    (void)snprintf(command, sizeof command, LATHE " train run.toml --stage.name rm %s 2>&1", more);
    expect(command, 0, "accuracy");
    (void)snprintf(command, sizeof command,
                   LATHE " eval run.toml --stage.name rm %s --data pairs.jsonl "
                         "--train.precision fp32 --json 2>/dev/null",
                   more);
    expect(command, 0, "\"accuracy\": 1");
    cr_assert_eq(sscanf(output, "{\"loss\": %lf", &loss), 1, "%s", output);
    expect(LATHE " eval out --data pairs.jsonl --data.seq_len 48 --train.precision fp32 "
                 "--tokenizer.path bytes --json 2>/dev/null",
           0, "\"accuracy\": 1");
    cr_assert_eq(sscanf(output, "{\"loss\": %lf", &of_folder), 1, "%s", output);
    cr_expect_float_eq(of_folder, loss, 1e-5 * loss, "%g, and %g by the run file", of_folder, loss);
}

Test(cli_preferences, eval_prints_the_accuracy_of_a_reward_model_by_run_file_and_by_folder)
{
    evaluates_as("--checkpoint.save_dtype fp32");
}

Test(cli_preferences, eval_prints_the_accuracy_of_a_reward_model_with_lora)
{
    evaluates_as("--adapter.name lora");
}

Test(cli_preferences, a_folder_without_a_score_is_no_reward_model)
{
    expect(LATHE " train run.toml --stage.name dpo 2>&1", 0, "checkpoint");
    expect(LATHE " eval out --data pairs.jsonl --stage.name rm --tokenizer.path bytes 2>&1", 2,
           "the folder has no score.weight");
}
