/* Messages that name what was given and what to do next. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char run_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                               "intermediate_size = 64\nnum_hidden_layers = 1\n"
                               "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                               "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                               "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 64\n"
                               "[train]\nprecision = \"fp32\"\nmax_steps = 2\nthreads = 1\n"
                               "[log]\nprogress = \"off\"\n";

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine.\n", 40);
    put("run.toml", run_file);
}

TestSuite(messages, .init = setup, .fini = remove_folder, .timeout = 120);

static void lacks(const char *text)
{
    cr_expect_null(strstr(output, text), "'%s' in\n%s", text, output);
}

Test(messages, of_convert_name_what_was_given)
{
    put("bin.dat", "no model");
    expect(LATHE " convert bin.dat -o d 2>&1", 2, "bin.dat: neither a folder nor a GGUF file");
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000002");
    put("out/step-00000002/generation_config.json", "{\"eos_token_id\": 0}");
    expect(LATHE " convert out -o c.gguf 2>&1", 0, "c.gguf"); /* the run's latest checkpoint */
    expect(LATHE " generate c.gguf --max-new-tokens 2 2>&1", 0, "lathe: from c.gguf: ");
    lacks("generation_config.json");
}

Test(messages, of_a_draft_model_take_the_folder_of_a_run)
{
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000002");
    expect(LATHE " generate out --temperature 0 --max-new-tokens 8 --ignore-eos --generate.draft "
                 "out 2>&1",
           0, "tokens of the draft model were accepted");
}

Test(messages, of_a_configuration_say_what_was_expected)
{
    expect(LATHE " validate run.toml --data.datasets text.txt 2>&1", 2,
           "data.datasets is a string, expected a table: [{ path, type, columns, format, weight }, "
           "...], or one such table");
    expect(LATHE " validate run.toml --data.datasets '{path = \"text.txt\"}' 2>&1", 0, "valid");
    put("pipe.toml", "[[step]]\nrun = \"run.toml\"\n");
    expect(LATHE " validate pipe.toml 2>&1", 2,
           "[[step]] is a step of a pipeline: lathe pipeline reads this file");
    put("step.toml", "step = 3\n");
    expect(LATHE " validate step.toml 2>&1", 2, "key 'step' is outside all sections");
}

/* "--special TOKEN..." would mean that several tokens follow one --special. */
Test(messages, of_help_show_how_an_option_is_repeated)
{
    expect(LATHE " help tokenizer train", 0, "--special TOKEN  ");
    expect(LATHE " help tokenizer train", 0, "once for each");
    lacks("TOKEN...");
    expect(LATHE " help merge", 0, "--adapter-weights X,Y,...");
    expect(LATHE " tokenizer train text.txt -o t --vocab-size 300 --special '<a>' --special '<b>' "
                 "2>&1",
           0, "");
    expect("grep -c '\"<[ab]>\"' t/tokenizer.json", 0, "");
}

Test(messages, of_plugin_commands_come_once_and_are_true)
{
    expect(LATHE " plugin check optimizer/adamw --set lr=-1 2>&1", 2,
           "lathe plugin check: --set lr=-1: lr is -1, expected at least 0 and at most 1000");
    lacks("FAIL");
    put("p.toml", "[optimizer]\nname = \"adamw\"\nlr = -1\n");
    expect(LATHE " plugin check optimizer/adamw --config p.toml 2>&1", 2,
           "p.toml:3:1: lr is -1, expected at least 0");
    lacks("FAIL");
    if (run(LATHE " plugin new optimizer adamw 2>&1") != 0)
        cr_skip_test("the templates are not beside this build");
    cr_expect(strstr(output, "LATHE_PLUGIN_OVERRIDE=optimizer/adamw LATHE_PLUGIN_PATH="), "%s",
              output);
    expect(LATHE " plugin new optimizer mine 2>&1", 0, "use:    LATHE_PLUGIN_PATH=");
}

Test(messages, of_a_run_without_its_record_do_not_say_that_it_trains)
{
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000002");
    put("out/run.json", "");
    (void)run(LATHE " watch out --once 2>&1");
    lacks("training");
}

Test(messages, count_one_without_an_s)
{
    put("one.txt", "the cat\n");
    expect("sed 's/^train = .*/path = \"bytes\"/; s/text.txt/one.txt/' run.toml > one.toml; " LATHE
           " data one.toml --data.seq_len 9 2>&1",
           0, "1 document, ");
    cr_expect(strstr(output, "1 row of 9 tokens") && strstr(output, "an epoch: 1 row, 1 step;"),
              "%s", output);
    expect(LATHE " train run.toml --train.max_steps 40 --data.validation_split 0.2 "
                 "--train.eval_every 1 --optimizer.lr 0.0 --train.early_stopping_patience 1 2>&1 "
                 "| grep -c '1 evaluation without an improvement'",
           0, "1");
}
