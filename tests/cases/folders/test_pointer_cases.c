/* DIR, DIR/best and DIR/latest name a checkpoint wherever a folder is taken. */
#include "cli/training_case.h"

/* Three checkpoints, of which the best is not the latest. */
static void setup_best(void)
{
    setup();
    cr_assert_eq(run(LATHE " train run.toml --checkpoint.keep_best 1 --checkpoint.best_metric loss "
                           "--checkpoint.best_mode max 2>&1"),
                 0, "%s", output);
    cr_assert_eq(run("cat out/best out/latest"), 0);
    cr_assert_str_eq(output, "step-00000002step-00000006");
}

TestSuite(pointers, .init = setup_best, .fini = remove_folder, .timeout = 120);

/* Runs the command with out/NAME and with the folder that it names: the same output. */
static void expect_same(const char *form, const char *pointer, const char *step)
{
    static char first[1 << 16];
    char command[1024];
    snprintf(command, sizeof command, "M=%s; %s", step, form);
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
    cr_assert_lt(strlen(output), sizeof first);
    memcpy(first, output, strlen(output) + 1);
    snprintf(command, sizeof command, "M=%s; %s", pointer, form);
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
    cr_expect_str_eq(output, first, "%s", command);
}

Test(pointers, name_a_checkpoint_for_each_command)
{
    static const char *const forms[] = {
        LATHE " eval $M --data text.txt --json 2>/dev/null",
        LATHE " generate $M --prompt the --temperature 0 --max-new-tokens 8 2>/dev/null",
        LATHE " generate out/latest --generate.draft $M --prompt the --temperature 0 "
              "--max-new-tokens 8 2>/dev/null",
        LATHE " checkpoint verify $M",
        LATHE " checkpoint diff $M $M",
        LATHE " lineage $M | grep -v '^ *time'",
        "rm -rf q && " LATHE " quantize $M --quant.name nf4 -o q 2>&1 | grep -v wrote",
        LATHE " data run.toml --model.path $M --n 1 --checkpoint.dir none 2>/dev/null || true",
        "rm -rf p && " LATHE " train run.toml --checkpoint.dir p --checkpoint.resume $M "
        "2>/dev/null >&2 && cat p/step-00000006/model.safetensors | md5sum"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        expect_same(forms[i], "out/best", "out/step-00000002");
        expect_same(forms[i], "out/latest", "out/step-00000006");
    }
    expect(LATHE " checkpoint ls out/best", 0, "       2  ");
}

static const char begins[] = "[model]\npath = \"out/best\"\n[tokenizer]\npath = \"bytes\"\n"
                             "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                             "[train]\nmax_steps = 1\nthreads = 1\n"
                             "[checkpoint]\ndir = \"next\"\n";

/* The parent that the new run records is the checkpoint itself. */
Test(pointers, name_a_checkpoint_for_each_key)
{
    put("next.toml", begins);
    expect(LATHE " train next.toml 2>&1 && " LATHE " lineage next", 0, "out/step-00000002");
    expect("rm -r next && " LATHE " train next.toml --model.path out 2>&1 && " LATHE
           " lineage next",
           0, "out/step-00000006");
    expect(LATHE " train run.toml --model.model_type '' --checkpoint.dir l --model.path out/best "
                 "2>&1; " LATHE " validate next.toml --checkpoint.dir n --tokenizer.path out/best "
                 "2>&1",
           2, "tokenizer");
    expect("echo step-00000009 >out/best; " LATHE " validate next.toml --checkpoint.dir n 2>&1", 2,
           "next.toml:2:8: error: model.path: out/best names the checkpoint out/step-00000009, "
           "which does not exist");
    expect(LATHE " eval out/best --data text.txt 2>&1", 2,
           "lathe eval: out/best names the checkpoint out/step-00000009, which does not exist");
}

Test(pointers, are_removed_by_their_name)
{
    expect(LATHE " checkpoint rm out/best 2>&1", 2, "lathe checkpoint rm out best");
    expect(LATHE " checkpoint rm out best", 0, "removed out/step-00000002");
    expect(LATHE " checkpoint rm out best 2>&1", 2, "out: there is no file best");
}

/* Trainers that use DeepSpeed write a file `latest` into the folder of a model. */
Test(pointers, of_another_program_mean_nothing)
{
    cr_assert_eq(run("cp -r out/step-00000006 model && rm model/manifest.json && echo global_step6 "
                     ">model/latest"),
                 0);
    expect(LATHE " eval model --data text.txt --tokenizer.path bytes 2>&1", 0, "loss");
    put("latest", "not a pointer");
    expect(LATHE " eval latest --data text.txt 2>&1", 2, "latest");
}

/* ---- evaluating as the run did ---- */

Test(pointers, of_a_run_are_evaluated_as_the_run_did)
{
    expect_same(LATHE " eval $M --json 2>/dev/null", "out", "run.toml");
    expect_same("cd / && " LATHE " eval $M --json 2>/dev/null", "$PWD/out", "$PWD/run.toml");
    expect(LATHE " eval out 2>&1", 0, "on the validation data of its run");
    cr_assert_eq(run("cp -r out/latest x; cp -r out/step-00000006 bare && rm bare/manifest.json"),
                 0);
    expect(
        LATHE " eval bare 2>&1", 2,
        "name a file or folder to evaluate on: bare is of no run, whose validation data could be "
        "taken (--data)");
    expect(LATHE " eval bare --data text.txt --tokenizer.path bytes 2>&1", 0,
           "bare does not say how it was trained, so every token counts");
    put("chat.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    (void)run(LATHE " eval bare --data chat.jsonl --tokenizer.path bytes 2>&1");
    cr_expect_not_null(strstr(output, "the records of chat.jsonl are conversations: stage.name "
                                      "sft"),
                       "%s", output);
    cr_assert_eq(run("mv text.txt gone.txt"), 0);
    expect(LATHE " eval out 2>&1", 2,
           "out/step-00000006: its run was evaluated on text.txt, which is not here");
}

/* Two files, of which the name of one is part of the other's. */
Test(pointers, data_and_validation_are_compared_by_value)
{
    put_times("text.txt.old", "another text that is not the same at all, by no means\n", 40);
    expect(LATHE " eval out --data text.txt --data.validation '[{path = \"text.txt.old\"}]' 2>&1",
           2, "name different data");
    expect(LATHE " eval out --data text.txt --data.validation text.txt.old 2>&1", 2,
           "name different data");
    expect(LATHE " eval out --data text.txt --data.validation '[{path = \"text.txt\"}, {path = "
                 "\"text.txt.old\"}]' 2>&1",
           2, "name different data");
    expect(LATHE " eval out --data text.txt --data.validation '{path = \"./text.txt\"}' 2>&1", 0,
           "loss");
}
