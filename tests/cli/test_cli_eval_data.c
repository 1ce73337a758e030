/* lathe eval --data: records are read as the run's own. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static void put_run(const char *datasets)
{
    char text[2048];
    (void)snprintf(text, sizeof text,
                   "[model]\nmodel_type = \"llama\"\nvocab_size = 300\nhidden_size = 32\n"
                   "intermediate_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
                   "[tokenizer]\npath = \"bytes\"\n[stage]\nname = \"sft\"\n"
                   "[data]\nseq_len = 32\ndatasets = [%s]\n[optimizer]\nlr = 1e-3\n"
                   "[train]\nmax_steps = 1\n[checkpoint]\ndir = \"out\"\n",
                   datasets);
    put("run.toml", text);
}

static void setup(void)
{
    make_folder();
    put("train.jsonl", "{\"q\": \"why?\", \"a\": \"so\", \"n\": 1}\n");
    put("v.jsonl", "{\"q\": \"how?\", \"a\": \"thus\", \"n\": 22}\n");
    put("v.data", "{\"q\": \"how?\", \"a\": \"thus\", \"n\": 22}\n");
}

TestSuite(eval_data, .init = setup, .fini = remove_folder);

/* The answer has 4 bytes and the end of text, the number 2 bytes more and a space. */
Test(eval_data, is_read_with_the_columns_and_format_of_the_run)
{
    put_run("{ path = \"train.jsonl\", columns = { prompt = \"q\", completion = \"a\" } }");
    expect(LATHE " train run.toml 2>&1", 0, "step 1/1");
    expect(LATHE " eval run.toml --data v.jsonl 2>&1", 0, "over 5 targets");
    put_run("{ path = \"train.jsonl\", type = \"jsonl\", columns = { prompt = \"q\" }, "
            "format = { completion = \"{a} {n}\" } }");
    expect(LATHE " eval run.toml --data v.jsonl 2>&1", 0, "over 8 targets");
    expect(LATHE " eval run.toml --data v.data 2>&1", 0, "over 8 targets");
}

Test(eval_data, of_datasets_that_disagree_is_refused_and_named_on_the_command_line)
{
    put_run("{ path = \"train.jsonl\", columns = { prompt = \"q\", completion = \"a\" } }");
    expect(LATHE " train run.toml 2>&1", 0, "step 1/1");
    put_run("{ path = \"train.jsonl\", columns = { prompt = \"q\", completion = \"a\" } },\n"
            "{ path = \"train.jsonl\", columns = { completion = \"a\" } }");
    expect(LATHE " eval run.toml --data v.jsonl 2>&1", 2,
           "run.toml:15:1: the datasets have different columns, so the columns of v.jsonl "
           "are not known; set them: data.validation = '[{path = \"v.jsonl\", columns = {...}}]'");
    static const char own[] =
        " --data.validation '[{path = \"v.jsonl\", columns = {completion = \"q\"}}]' 2>&1";
    char command[512];
    (void)snprintf(command, sizeof command, LATHE " eval run.toml%s", own);
    expect(command, 0, "over 4 targets"); /* the first token of an example is no target */
    (void)snprintf(command, sizeof command, LATHE " eval run.toml --data v.jsonl%s", own);
    expect(command, 0, "over 4 targets");
    (void)snprintf(command, sizeof command, LATHE " eval out --stage.name sft%s", own);
    expect(command, 0, "over 4 targets");
}

Test(eval_data, of_plain_text_has_no_columns)
{
    put("train.txt", "a text that is longer than one row of thirty-two tokens");
    put_run("{ path = \"train.jsonl\", columns = { text = \"a\" } }, { path = \"train.txt\" }");
    expect(LATHE " train run.toml --stage.name pretrain --data.seq_len 8 2>&1", 0, "step 1/1");
    expect(LATHE " eval run.toml --stage.name pretrain --data.seq_len 8 --data train.txt 2>&1", 0,
           "over 55 targets");
}

/* The manifest has the stage, its columns, and the length of rows. */
Test(eval_data, of_a_folder_is_read_as_its_run_reads_it)
{
    static char said[sizeof output];
    put_run("{ path = \"train.jsonl\", columns = { prompt = \"q\", completion = \"a\" } }");
    put("v.jsonl", "{\"q\": \"how?\", \"a\": \"thus\", \"n\": 22}\n"
                   "{\"q\": \"how is it that a row is longer than one?\", \"a\": \"so\"}\n");
    expect(LATHE " train run.toml --train.micro_batch_size 2 2>&1", 0, "step 1/1");
    expect(LATHE " eval run.toml --train.micro_batch_size 2 --train.precision fp32 --data v.jsonl "
                 "--json 2>/dev/null",
           0, "\"count\": 5,");
    strcpy(said, output);
    expect(LATHE " eval out --data v.jsonl --json 2>/dev/null", 0, said);
    expect(LATHE " eval out --data v.jsonl --data.seq_len 60 2>&1", 0, "over 8 targets");
    cr_expect_not_null(strstr(output, "evaluates as out/step-00000001 was trained: stage sft with "
                                      "its settings, and the length of rows and micro-batch of its "
                                      "run (stage.name and the like change it)"),
                       "%s", output);
    expect(LATHE " eval out --stage.name pretrain --data v.jsonl --data.validation "
                 "'[{path = \"v.jsonl\", columns = {text = \"a\"}}]' 2>&1",
           0, "over 6 targets");
}

/* The message begins with the key that the command line can set. */
Test(eval_data, without_the_columns_of_the_stage_is_refused_at_its_key)
{
    put_run("{ path = \"train.jsonl\", columns = { prompt = \"q\", completion = \"a\" } }");
    expect(LATHE " train run.toml 2>&1", 0, "step 1/1");
    expect(
        "rm out/step-00000001/manifest.json; " LATHE
        " eval out --stage.name sft --data v.jsonl --tokenizer.path bytes 2>&1",
        2,
        "--data.validation: error: v.jsonl:1: no column \"completion\"; the columns are q, a, n; "
        "name it in columns.completion");
    expect(LATHE " eval run.toml --data v.jsonl --data.validation '{path = \"w.jsonl\"}' 2>&1", 2,
           "data v.jsonl and data.validation = {path = \"w.jsonl\"} name different data; expected "
           "only one of them");
    expect(LATHE " eval run.toml --data v.jsonl --data.validation '{path = \"v.jsonl\", format = "
                 "{completion = \"{a\"}}' 2>&1",
           2, "--data.validation: error: data.validation.format.completion = \"{a\": the { at");
}

#define TALK(key)                                                                                  \
    "{\"" key "\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "         \
    "\"content\": \"yo\"}]}\n"

Test(eval_data, is_read_with_the_column_of_conversations_of_the_run)
{
    put("c.jinja", "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}"
                   "{{ 'a' if add_generation_prompt }}");
    put("train.jsonl", TALK("talk"));
    put("v.jsonl", TALK("talk"));
    put_run("{ path = \"train.jsonl\", columns = { messages = \"talk\" } }");
    expect(LATHE " train run.toml --data.chat_template c.jinja 2>&1", 0, "step 1/1");
    expect(LATHE " eval run.toml --data.chat_template c.jinja --data v.jsonl 2>&1", 0,
           "over 3 targets");
}

Test(eval_data, that_does_not_exist_is_one_error)
{
    put_run("{ path = \"train.jsonl\", columns = { prompt = \"q\", completion = \"a\" } }");
    expect(LATHE " eval run.toml --data nope 2>&1", 2,
           "data nope: no such file or folder (--data)\n");
    cr_expect_null(strstr(output, "error"), "%s", output);
}

/* A key that only evaluations during a training read. */
Test(eval_data, is_not_cut_by_the_batches_of_a_training)
{
    put_run("{ path = \"train.jsonl\", columns = { prompt = \"q\", completion = \"a\" } }");
    expect(LATHE " eval run.toml --data v.jsonl --train.eval_batches 2 2>&1", 2,
           "train.eval_batches applies to evaluations during a training; use --batches N");
}
