/* Stage kto as a user runs it: `lathe data`, train, resume, and `lathe eval`, on unpaired rows. */
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
                               "datasets = [{ path = \"rows.jsonl\" }]\n"
                               "validation_count = 5\n"
                               "seq_len = 48\n"
                               "[stage]\n"
                               "name = \"kto\"\n"
                               "[optimizer]\n"
                               "name = \"adamw\"\n"
                               "lr = 5e-3\n"
                               "[train]\n"
                               "micro_batch_size = 4\n"
                               "max_steps = 4\n"
                               "eval_every = 2\n"
                               "threads = 1\n"
                               "[checkpoint]\n"
                               "dir = \"out\"\n";

static void setup(void)
{
    make_folder();
    put("run.toml", run_file);
    FILE *f = fopen("rows.jsonl", "w");
    cr_assert_not_null(f);
    for (int i = 0; i < 30; i++)
        (void)fprintf(f, "{\"prompt\": \"part %d: \", \"completion\": \"%s\", \"label\": %s}\n", i,
                      i % 3 ? "made well" : "no", i % 3 ? "true" : "false");
    cr_assert_eq(fclose(f), 0);
}

TestSuite(cli_kto, .init = setup, .fini = remove_folder);

Test(cli_kto, data_shows_examples_with_their_labels)
{
    expect(LATHE " data run.toml --n 2 2>&1", 0, "30 examples");
    cr_expect_not_null(strstr(output, "\nlabel "), "%s", output);
    expect(LATHE " data run.toml --json 2>&1", 0, "\"examples\": 25");
}

Test(cli_kto, training_lowers_the_loss_and_eval_prints_examples_and_rewards)
{
    double loss = 1.0;
    expect(LATHE " train run.toml --train.max_steps 12 2>&1", 0, "rewards/margins");
    cr_expect_null(strstr(output, "one side only"), "%s", output);
    expect(LATHE " eval run.toml 2>&1", 0, "over 5 examples");
    cr_expect_not_null(strstr(output, "  kl "), "%s", output);
    cr_expect_null(strstr(output, "perplexity"), "%s", output);
    expect(LATHE " eval run.toml --data rows.jsonl --json 2>/dev/null", 0,
           "\"count\": 30, \"unit\": \"examples\"");
    cr_assert_eq(sscanf(output, "{\"loss\": %lf", &loss), 1, "%s", output);
    cr_expect(loss > 0.0 && loss < 0.5, "%g", loss); /* 0.5 before training */
    expect(LATHE " eval out --data rows.jsonl --json 2>/dev/null", 0, "\"unit\": \"examples\"");
}

Test(cli_kto, a_resumed_training_has_the_same_bits)
{
    expect(LATHE " train run.toml --stage.desirable_weight 0.8 2>&1", 0, "checkpoint");
    cr_assert_eq(run("mv out whole"), 0);
    expect(LATHE " train run.toml --stage.desirable_weight 0.8 --train.stop_after 1 2>&1", 0,
           "checkpoint");
    expect(LATHE " train run.toml --stage.desirable_weight 0.8 2>&1", 0, "resumed from");
    cr_expect_eq(run("cmp whole/step-00000004/model.safetensors out/step-00000004/"
                     "model.safetensors"),
                 0, "%s", output);
}

Test(cli_kto, data_with_one_label_alone_give_a_warning)
{
    static const char warning[] = "run.toml:12:12: warning: the column \"label\" (whether the "
                                  "completion is desirable) is %s in all 12 examples to train on: "
                                  "stage \"kto\" learns from one side only";
    for (int value = 0; value < 2; value++) {
        char text[256];
        FILE *f = fopen("rows.jsonl", "w");
        cr_assert_not_null(f);
        for (int i = 0; i < 17; i++)
            (void)fprintf(f, "{\"prompt\": \"%d: \", \"completion\": \"no\", \"label\": %s}\n", i,
                          value ? "true" : "false");
        cr_assert_eq(fclose(f), 0);
        (void)snprintf(text, sizeof text, warning, value ? "true" : "false");
        expect(LATHE " train run.toml --train.max_steps 1 --train.eval_every 0 "
                     "--checkpoint.resume never 2>&1",
               0, text);
        cr_assert_eq(run("rm -r out"), 0);
    }
}

Test(cli_kto, bad_rows_and_settings_are_refused_with_their_place)
{
    put("bad.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n"
                     "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": \"good\"}\n");
    expect(LATHE " train run.toml --data.datasets '[{path = \"bad.jsonl\"}]' 2>&1", 2,
           "bad.jsonl:2: column \"label\" is \"good\"; expected true or false");
    put("none.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"thumbs\": true}\n");
    expect(LATHE " validate run.toml --data.datasets '[{path = \"none.jsonl\"}]' 2>&1", 2,
           "none.jsonl:1: no column \"label\"; the columns are prompt, completion, thumbs; name it "
           "in columns.label");
    expect(LATHE " validate run.toml --data.datasets '[{path = \"none.jsonl\", columns = {label = "
                 "\"thumbs\"}}]' --data.validation_count 0 2>&1",
           0, "");
    expect(LATHE " validate run.toml --data.datasets '[{path = \"none.jsonl\", columns = {lable = "
                 "\"thumbs\"}}]' 2>&1",
           2, "columns.lable: no such column");
    expect(LATHE " train run.toml --train.micro_batch_size 1 2>&1", 2,
           "set train.micro_batch_size to 2 or more");
}
