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

Test(cli_preferences, a_folder_does_not_name_the_model_before_training)
{
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint");
    expect(LATHE " eval out --data pairs.jsonl --stage.name dpo 2>&1", 2,
           "name the run file instead of the folder");
}
